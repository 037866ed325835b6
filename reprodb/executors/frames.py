"""Length-framed pickles over a pipe between the pool and its own workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from reprodb import pipes

_HEADER = 8
_CHUNK = 1 << 20


def pack(message: Any) -> bytes:
    """The frame of a message: 8 bytes of length, little endian, and its pickle."""
    body = pipes.dumps(message)
    return len(body).to_bytes(_HEADER, "little") + body


def unpack(body: bytes) -> Any:
    """The message of a frame's body. Raises ForeignValueError for anything that is none of ours."""
    return pipes.loads(body)


def order(body: bytes) -> Any:
    """The message of a frame from the pool, in a worker."""
    return pipes.order(body)


def write(fd: int, frame: bytes) -> None:
    """Write a whole frame to a blocking pipe."""
    view = memoryview(frame)
    while view:
        view = view[os.write(fd, view) :]


def read(fd: int) -> bytes | None:
    """The body of the next frame of a blocking pipe, or None once the other end is gone."""
    header = _exactly(fd, _HEADER)
    return None if header is None else _exactly(fd, int.from_bytes(header, "little"))


def _exactly(fd: int, count: int) -> bytes | None:
    parts: list[bytes] = []
    while count:
        part = os.read(fd, min(count, _CHUNK))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


class FrameReader:
    """Frames that arrive in pieces, for a reader that may not block."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that `data` completes. Raises ForeignValueError for a length that no message has."""
        self._buffer += data
        while len(self._buffer) >= _HEADER:
            end = _HEADER + int.from_bytes(self._buffer[:_HEADER], "little")
            if end > pipes.LONGEST:
                raise pipes.ForeignValueError(f"a frame of {end} bytes")
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEADER:end])
            del self._buffer[:end]
            yield body
