"""One thread: its registers, its calls and its place in the grid, and how operands are read and written."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from tests.model.reference import exact
from tests.model.reference.bits import mask, signed
from tests.model.reference.errors import Refused, Trap
from tests.model.reference.memory import LOCAL, SHARED, UNSET, WINDOW, Memory, aligned
from tests.model.reference.parse import BYTES, Function, Ins, Module, Operand

Dim3 = tuple[int, int, int]


def width_of(type_: str) -> int:
    return 1 if type_ == "pred" else 8 * BYTES[type_]


@dataclass
class Block:
    """What the threads of a block share."""

    module: Module
    memory: Memory
    addresses: dict[str, int]  # of global and constant variables, and offsets of shared ones
    shared: bytearray
    grid: Dim3
    shape: Dim3
    index: Dim3


@dataclass
class Frame:
    """One activation of a function."""

    function: Function
    params: dict[str, bytearray]
    registers: dict[str, int] = field(default_factory=dict)
    locals: dict[str, int] = field(default_factory=dict)  # offsets in the thread's local memory
    carry: int = 0
    at: int = 0


class Thread:
    def __init__(self, block: Block, linear: int, function: Function, params: dict[str, bytearray]) -> None:
        self.block = block
        self.linear = linear
        self.lane, self.warp = linear % 32, linear // 32
        self.local = bytearray()
        self.frames: list[Frame] = []
        self.done = False
        self.waiting: Ins | None = None
        self.arrived = False  # at the barrier it waits at
        self.steps = 0
        self.enter(function, params)

    # --- Calls ---

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def enter(self, function: Function, params: dict[str, bytearray]) -> None:
        frame = Frame(function, dict(params))
        for variable in (*function.variables, *function.results):
            if variable.space == "local":
                start = -(-len(self.local) // 16) * 16
                self.local.extend(bytes([UNSET]) * (start + variable.size - len(self.local)))
                frame.locals[variable.name] = start
            elif variable.space == "param":
                frame.params[variable.name] = bytearray([UNSET]) * variable.size
        self.frames.append(frame)

    def leave(self) -> None:
        frame = self.frames.pop()
        if frame.locals:
            del self.local[min(frame.locals.values()) :]
        if not self.frames:
            self.done = True

    # --- Operands ---

    def read(self, operand: Operand, type_: str) -> int:
        """The bits of an operand as `type_`, which cuts a wider register."""
        if operand.kind == "reg":
            return self.register(operand.text) & mask(width_of(type_))
        if operand.kind == "imm":
            return immediate(operand.text, type_)
        if operand.kind == "sym":
            return (self.address_of(operand.text) + operand.offset) & mask(width_of(type_))
        if operand.kind == "not":
            return 1 - self.read(operand.items[0], "pred")
        if operand.kind == "vec":  # {low, …, high} packed
            part = width_of(type_) // len(operand.items)
            return sum((self.read_raw(item) & mask(part)) << part * i for i, item in enumerate(operand.items))
        raise Refused(f"an operand of kind {operand.kind}")

    def read_raw(self, operand: Operand) -> int:
        return self.register(operand.text) if operand.kind == "reg" else self.read(operand, "b64")

    def register(self, name: str) -> int:
        frame = self.frame
        if name in frame.registers:
            return frame.registers[name]
        return self.special(name)

    def write(self, operand: Operand, type_: str, bits: int) -> None:
        """Bits of `type_` into a register: a wider one is filled with the sign or with zeros."""
        if operand.kind == "sink":
            return
        if operand.kind == "vec":
            part = width_of(type_) // len(operand.items)
            for i, item in enumerate(operand.items):
                self.write(item, f"b{part}", bits >> part * i & mask(part))
            return
        if operand.kind != "reg":
            raise Refused(f"writing to an operand of kind {operand.kind}")
        width = width_of(type_)
        bits &= mask(width)
        target = width_of(self.frame.function.type_of(operand.text))
        if type_[0] == "s" and target > width:
            bits = signed(bits, width) & mask(target)
        self.frame.registers[operand.text] = bits & mask(target)

    def special(self, name: str) -> int:
        x, y, _ = self.block.shape
        tid = (self.linear % x, self.linear // x % y, self.linear // (x * y))
        for prefix, value in (
            ("%tid", tid),
            ("%ntid", self.block.shape),
            ("%ctaid", self.block.index),
            ("%nctaid", self.block.grid),
        ):
            if name[:-2] == prefix and name[-2:] in (".x", ".y", ".z"):
                return value["xyz".index(name[-1])]
        lane = self.lane
        table = {
            "%laneid": lane,
            "%warpid": self.warp,
            "%lanemask_eq": 1 << lane,
            "%lanemask_lt": mask(lane),
            "%lanemask_le": mask(lane + 1),
            "%lanemask_gt": mask(32) & ~mask(lane + 1),
            "%lanemask_ge": mask(32) & ~mask(lane),
        }
        if name in table:
            return table[name]
        raise Refused(f"the register {name} was never written, or its value is no part of PTX's promise")

    # --- Memory ---

    def address_of(self, name: str) -> int:
        if name == "WARP_SZ":
            return 32
        if name in self.frame.locals:
            return self.frame.locals[name]
        if name in self.block.addresses:
            return self.block.addresses[name]
        raise Refused(f"the address of {name}")

    def bytes_at(self, space: str, operand: Operand, size: int) -> tuple[bytearray, int]:
        """The memory and the offset in it that an address operand means."""
        base, offset = operand.items[0], operand.offset
        if space.startswith("param"):
            data = self.frame.params[base.text]
            offset += base.offset
            if not 0 <= offset <= len(data) - size:
                raise Trap(f"{size} bytes at {offset} of parameter {base.text}")
            return data, offset
        kind = "b32" if base.kind == "reg" and self.frame.function.type_of(base.text)[1:] == "32" else "b64"
        address = (self.read(base, kind) + offset) & mask(64)
        aligned(address, size)
        return self.place(space, address, size)

    def place(self, space: str, address: int, size: int) -> tuple[bytearray, int]:
        if space == "generic":
            if SHARED <= address < SHARED + WINDOW:
                space, address = "shared", address - SHARED
            elif LOCAL <= address < LOCAL + WINDOW:
                space, address = "local", address - LOCAL
        if space in ("shared", "local"):
            data = self.block.shared if space == "shared" else self.local
            if not 0 <= address <= len(data) - size:
                raise Trap(f"{size} bytes at {address:#x} of {space} memory")
            return data, address
        return self.block.memory.find(address, size)

    def is_global(self, space: str, operand: Operand) -> bool:
        """Whether an atomic's address lies in global memory."""
        if space != "generic":
            return space == "global"
        address = self.read(operand.items[0], "b64") + operand.offset
        return not SHARED <= address < SHARED + WINDOW


def immediate(text: str, type_: str) -> int:
    minus, word = text.startswith("-"), text.removeprefix("-")
    if word[:2] in ("0f", "0F", "0d", "0D"):
        bits = int(word[2:], 16)
        source = exact.F32 if word[1] in "fF" else exact.F64
        if type_ in exact.FORMATS and exact.FORMATS[type_] is not source:
            bits = exact.convert(source, exact.FORMATS[type_], bits)
        return bits ^ (source.sign if minus else 0)
    if "." in word:
        f = exact.FORMATS[type_ if type_ in exact.FORMATS else "f64"]
        number = Fraction(word)
        return (exact.round_to(f, number) if number else 0) | (f.sign if minus else 0)
    value = int(word.rstrip("U"), 0)
    return (-value if minus else value) & mask(width_of(type_))
