"""Values between this program's own processes: what workers answer is of known classes and nothing else.

A worker has run what a pull request brought. What it answers is data: reading it makes frozen values of this
program, and never calls anything that a name in it could mean. Orders, from the parent to a worker, are read
as they are: the parent may do more than its worker, not less.
"""

from __future__ import annotations

import enum
import importlib
import io
import pickle
from dataclasses import is_dataclass
from pathlib import PosixPath
from typing import Any

# Where the classes of answers are. Importing these has no effect of its own.
MODULES = frozenset(
    ("reprodb.domain", "reprodb.findings", "reprodb.executors.base", "reprodb.executors.task",
     "reprodb.executors.worker", "reprodb.toolchains.protocol", "reprodb.toolchains.worker")
)  # fmt: skip
LONGEST = 8 << 30  # bytes of one value


class ForeignValueError(ValueError):
    """What came through a pipe is no value of this program."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("pathlib", "PosixPath"):
            return PosixPath
        if module in MODULES and name.isidentifier():
            found = getattr(importlib.import_module(module), name, None)
            if isinstance(found, type) and (is_dataclass(found) or issubclass(found, enum.Enum)):
                return found
        raise ForeignValueError(f"{module}.{name} is nothing that goes through a pipe")


def dumps(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def order(data: bytes) -> Any:
    """What a parent sent its worker."""
    return pickle.loads(data)  # noqa: S301 -- from the process that started this one, over an inherited pipe


def loads(data: bytes) -> Any:
    """The value of an answer. Raises ForeignValueError, whatever the bytes are."""
    try:
        return _Reader(io.BytesIO(data)).load()
    except ForeignValueError:
        raise
    except Exception as error:  # a pickle may make any library raise anything
        raise ForeignValueError(f"{type(error).__name__}: {error}"[:300]) from None
