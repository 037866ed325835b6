"""Values between this program's own processes: what workers answer is of known classes and nothing else.

A worker has run what a pull request brought. What it answers is data: reading it makes frozen values of this
program, and never calls anything that a name in it could mean. Orders, from the parent to a worker, are read
as they are: the parent may do more than its worker, not less.

A pickle can also ask for memory and time out of all proportion: a memo of 2^32 places in nine bytes, a key
whose hash takes years. So its steps are looked through before any of them is done.
"""

from __future__ import annotations

import enum
import importlib
import io
import pickle
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import PosixPath
from typing import Any

# Where the classes of answers are. Importing these has no effect of its own.
MODULES = frozenset(
    ("reprodb.domain", "reprodb.findings", "reprodb.executors.base", "reprodb.executors.task",
     "reprodb.executors.worker", "reprodb.toolchains.protocol", "reprodb.toolchains.worker")
)  # fmt: skip
LONGEST = 8 << 30  # bytes of one value


# The steps of a fixed length that `dumps` writes: no memo by number, no dictionary, no set.
_FIXED = re.compile(
    rb"(?:[().NR\]abet\x81\x85-\x89\x93\x94]|[Kh\x80].|M..|[Jj].{4}|[G\x95].{8})*+", re.DOTALL
)
# Those that hold text, bytes or a large number: how many bytes of length stand before it.
_HOLDING = {0x8C: 1, ord("X"): 4, 0x8D: 8, ord("C"): 1, ord("B"): 4, 0x8E: 8, 0x8A: 1}


class ForeignValueError(ValueError):
    """What came through a pipe is no value of this program."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("pathlib", "PosixPath"):
            return PosixPath
        if module in MODULES and name.isidentifier():
            found = getattr(importlib.import_module(module), name, None)
            if isinstance(found, type) and issubclass(found, enum.Enum):
                return _member_of(found)
            if isinstance(found, type) and is_dataclass(found):
                return found
        raise ForeignValueError(f"{module}.{name} is nothing that goes through a pipe")


def _member_of(kind: type[enum.Enum]) -> Callable[[object], enum.Enum]:
    """The member of a value; a value is looked up by its hash, which nested tuples can make take years."""

    def member(value: object) -> enum.Enum:
        if not isinstance(value, str | int):
            raise ForeignValueError(f"{type(value).__name__} for a {kind.__name__}")
        return kind(value)

    return member


def dumps(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def order(data: bytes) -> Any:
    """What a parent sent its worker."""
    return pickle.loads(data)  # noqa: S301 -- from the process that started this one, over an inherited pipe


def loads(data: bytes) -> Any:
    """The value of an answer. Raises ForeignValueError, whatever the bytes are."""
    _check_steps(data)
    try:
        return _Reader(io.BytesIO(data)).load()
    except ForeignValueError:
        raise
    except Exception as error:  # a pickle may make any library raise anything
        raise ForeignValueError(f"{type(error).__name__}: {error}"[:300]) from None


def _check_steps(data: bytes) -> None:
    """Refuses an answer with a step that `dumps` never writes."""
    at = 0
    while True:
        if run := _FIXED.match(data, at):  # it matches nothing at all, too
            at = run.end()
        if at == len(data):
            return
        width = _HOLDING.get(data[at])
        if width is None:
            raise ForeignValueError(f"a step {data[at : at + 1]!r} at byte {at}, which no answer has")
        at += 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "little")
        if at > len(data):
            raise ForeignValueError("it ends inside a value")
