"""Disassembled cubins in the user's cache folder: nvdisasm takes longer over a kernel than its compiler."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reprodb.digest import content_key, sha256
from reprodb.files import keep_file

_DIGEST = 64  # hexadecimal digits of the text's SHA-256, in front of it


@dataclass(frozen=True, slots=True)
class SassMemory:
    """Texts by the cubin's bytes and the exact version of nvdisasm, the `most` last used.

    A folder that cannot be read or written remembers nothing; a damaged file counts as none.
    """

    folder: Path
    most: int = 2000

    def get(self, cubin: bytes, version: str) -> str | None:
        """The text that `put` was given, or None."""
        path = self._path(cubin, version)
        try:
            data = zlib.decompress(path.read_bytes())
            os.utime(path)  # the oldest go first
        except (OSError, zlib.error):
            return None
        digest, text = data[:_DIGEST], data[_DIGEST:]
        return text.decode() if sha256(text).encode() == digest else None

    def put(self, cubin: bytes, version: str, text: str) -> None:
        """Keep a text, in one step, so that a reader never sees half of it."""
        data = text.encode()
        with suppress(OSError):
            self._trim()
        keep_file(self._path(cubin, version), zlib.compress(sha256(data).encode() + data))

    def _path(self, cubin: bytes, version: str) -> Path:
        return self.folder / content_key("reprodb.sass/1", version, sha256(cubin))

    def _trim(self) -> None:
        if not self.folder.exists():
            return
        kept = sorted(self.folder.iterdir(), key=lambda p: p.stat().st_mtime)
        for path in kept[: max(0, len(kept) + 1 - self.most)]:
            path.unlink(missing_ok=True)
