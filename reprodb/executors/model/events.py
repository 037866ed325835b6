"""What a recording of one block holds: the places in the code that were recorded, and what happened there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# One record of the log, little endian: eight words, the last two unused. `sources` are register operands as
# the instruction found them; an access to memory has its address in the first.
RECORD = [
    ("step", "<u4"), ("thread", "<u4"), ("value", "<u8"), ("sources", "<u8", (3,)), ("block", "<u8"),
    ("unused", "<u8", (2,)),
]  # fmt: skip
RECORD_BYTES = 64


class Kind(StrEnum):
    """What a recorded place is: the start of a basic block, or what an instruction does with a value."""

    MARK = "mark"
    VALUE = "value"  # computes or chooses
    MOVE = "move"  # copies
    WORD = "word"  # carries a value on its way as a plain word
    LOAD = "load"
    STORE = "store"  # atomics too


@dataclass(frozen=True, slots=True)
class Place:
    """A statement of the source by line information; `file` as the suite names it, empty where unknown.

    `root` is the statement outside of all inlined functions: (file, line, column).
    """

    file: str = ""
    line: int = 0
    column: int = 0
    root: tuple[str, int, int] = ("", 0, 0)

    @property
    def known(self) -> bool:
        return bool(self.file)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.known else "no known line"


@dataclass(frozen=True, slots=True)
class Operand:
    """A source of an instruction: as written, the register behind it, its bits where it is a constant.

    `slot` is its place in a record's `sources`; `dtype` its floating-point type, empty where it has none.
    """

    text: str
    dtype: str = ""
    register: str = ""
    constant: int | None = None
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A place in the code that is recorded. `number` names it in the log.

    `dtype` is the PTX type of the value (`f32`); `result` the register that holds it. `basic_block` and `run`
    say where it stands: the run is its index among the basic block's stretches of one statement each.
    `space`, `offset` and `nbytes` belong to accesses: the first source is the address without the offset.
    """

    number: int
    kind: Kind
    basic_block: int
    run: int
    place: Place
    opcode: str = ""
    text: str = ""
    ptx_line: int = 0
    dtype: str = ""
    result: str = ""
    operands: tuple[Operand, ...] = ()
    space: str = ""
    offset: int = 0
    nbytes: int = 0

    @property
    def base(self) -> str:
        return self.opcode.split(".", 1)[0]


@dataclass(frozen=True, slots=True)
class Recording:
    """What the threads of one block did in one stage, in the order in which the model ran them.

    `runs` has, for each basic block, the statements of its stretches in order. `events` is an array of
    RECORD, marks included. `lost` counts what came after the log was full.
    """

    steps: dict[int, Step]
    runs: tuple[tuple[Place, ...], ...]
    events: npt.NDArray[np.void]
    lost: int = 0
