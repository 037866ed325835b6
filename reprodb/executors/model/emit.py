"""What an opcode's emitter sees: its operands as values, its mask, and where its result goes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from reprodb.errors import UnsupportedError
from reprodb.executors.model import layout
from reprodb.executors.model.llvm import BITS, WARP, Code, Value, const, vector
from reprodb.executors.model.ptx import (
    TYPE_BYTES,
    Float,
    Instruction,
    Int,
    Mem,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Sym,
    Vec,
)

INTEGER = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128"}
Mods = dict[str, str]


def register_kind(ptx_type: str) -> str:
    """The LLVM integer that holds a register of a PTX type; predicates are i1."""
    return "i1" if ptx_type == "pred" else INTEGER[TYPE_BYTES[ptx_type]]


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction that can fail while it runs."""

    line: int
    where: str
    opcode: str
    space: str
    nbytes: int  # of one thread's access
    writes: bool


@dataclass
class Frame:
    """What one entry's code needs to know: registers and where they live, symbols, and sites."""

    entry: str
    registers: dict[str, str]  # name → LLVM kind
    shared: frozenset[str]  # registers that hold one value for the whole warp
    offsets: dict[str, int]  # register → offset in the warp's record
    symbols: dict[str, tuple[str, int]]  # variable → (state space, address in it)
    local_at: int  # offset of local memory in the warp's record
    local_bytes: int  # of one thread
    param_bytes: int
    unread: frozenset[str]  # registers that nobody reads
    recorded: bool = False  # whether its accesses to memory are noted and its writes kept
    sites: list[Site] = field(default_factory=list)


W, B, L = Value("ptr", 1, "%w"), Value("ptr", 1, "%b"), Value("ptr", 1, "%l")
_LANEMASKS = {
    "eq": [1 << i for i in range(WARP)],
    "lt": [(1 << i) - 1 for i in range(WARP)],
    "le": [(2 << i) - 1 for i in range(WARP)],
    "gt": [0xFFFFFFFF & ~((2 << i) - 1) for i in range(WARP)],
    "ge": [0xFFFFFFFF & ~((1 << i) - 1) for i in range(WARP)],
}
_AXES = {".x": 0, ".y": 1, ".z": 2}


class Emit:
    """The state while one basic block is written in one form: for all 32 lanes, or for a mask of them.

    Registers are read once and written back once a block. `mods` are the modifiers of the instruction at
    hand as the opcode table matched them; `lanes` is 1 where its result is one value for the whole warp.
    """

    def __init__(self, code: Code, frame: Frame, *, full: bool, fail: str) -> None:
        self.code = code
        self.frame = frame
        self.full = full
        self.fail = fail  # label to leave to when an error has been recorded
        self.active = const("i32", -1) if full else Value("i32", 1, "%mask")
        self.values: dict[str, Value] = {}
        self.dirty: dict[str, None] = {}
        self._ins = Instruction("nop", (), 0)
        self._guard: Value | None = None
        self.mods: Mods = {}
        self.lanes = WARP

    @property
    def ins(self) -> Instruction:
        """The instruction at hand."""
        return self._ins

    @ins.setter
    def ins(self, value: Instruction) -> None:
        self._ins = value
        self._guard = None

    # Registers.

    def home(self, name: str) -> Value:
        """Where a register lives: a stack slot in the full form, the warp's record in the masked one."""
        if self.full:
            return Value("ptr", 1, f'%"r:{name}"')
        return self.code.at(W, self.frame.offsets[name])

    def load_register(self, name: str, home: Value, *, packed: bool) -> Value:
        if name not in self.frame.registers:
            raise self.refuse(f"reads {name}, which is not declared")
        kind = self.frame.registers[name]
        if name in self.frame.shared:
            if kind == "i1":
                return self.code.cast("trunc", self.code.load("i8", home), "i1")
            return self.code.load(kind, home, 1, 8)
        if kind == "i1" and packed:
            return self.code.lanes_of(self.code.load("i32", home))
        return self.code.load(kind, home, WARP, 64 if BITS[kind] >= 16 else 32)

    def store_register(self, name: str, value: Value, home: Value, *, packed: bool) -> None:
        if name in self.frame.shared:
            if value.kind == "i1":
                self.code.store(self.code.cast("zext", value, "i8"), home)
            else:
                self.code.store(value, home, 8)
        elif value.kind == "i1" and packed:
            self.code.store(self.code.bits(value), home)
        else:
            self.code.store(value, home, 64 if value.bits >= 16 else 32)

    def read(self, name: str) -> Value:
        found = self.values.get(name)
        if found is None:
            found = self.load_register(name, self.home(name), packed=not self.full)
            self.values[name] = found
        return found

    def write(self, name: str, value: Value) -> None:
        """Sets a register in the lanes where the instruction's guard holds."""
        kind = self.frame.registers[name]
        if name not in self.frame.shared:
            value = self.code.splat(value)
        if value.kind != kind:
            raise self.refuse(f"writes {value.bits} bits to {name}, a register of {BITS[kind]}")
        if self.ins.guard is not None:
            value = self.code.select(self.guard(), value, self.read(name))
        self.values[name] = value
        self.dirty[name] = None

    def write_back(self, live: frozenset[str]) -> None:
        """Puts what the block has set and somebody may still read where the registers live."""
        active = None
        for name in self.dirty:
            if name not in live:
                continue
            value, home = self.values[name], self.home(name)
            if not self.full and name not in self.frame.shared:
                if value.kind == "i1":
                    old = self.code.load("i32", home)
                    new = self.code.bits(value)
                    kept = self.code.op("and", old, self.code.inv(self.active))
                    mixed = self.code.op("or", kept, self.code.op("and", new, self.active))
                    self.code.store(mixed, home)
                    continue
                active = active or self.code.lanes_of(self.active)
                value = self.code.select(active, value, self.load_register(name, home, packed=True))
            self.store_register(name, value, home, packed=not self.full)
        self.dirty.clear()

    # Masks.

    def guard(self) -> Value:
        """The guard's predicate, true where the instruction is to run.

        Read once an instruction: it holds for all destinations, also where one of them is the guard itself.
        """
        guard = self.ins.guard
        if guard is None:
            return const("i1", 1, self.lanes)
        if self._guard is None:
            value = self.read(guard.register)
            self._guard = self.code.inv(value) if guard.negated else value
        return self._guard

    def mask(self) -> Value:
        """The lanes that run the instruction, as bits of an i32."""
        if self.ins.guard is None:
            return self.active
        bits = self.code.bits(self.code.splat(self.guard()))
        return bits if self.full else self.code.op("and", bits, self.active)

    # Operands.

    def refuse(self, why: str) -> UnsupportedError:
        return UnsupportedError(
            f"{self.frame.entry}: {self.ins.opcode} at {self.ins.where} {why}",
            remedy="execute this kernel on a GPU",
        )

    def refuse_guard(self) -> None:
        """For instructions that ptxas (12.4 and 13.0 seen) makes several of, guarding some of them alone."""
        if self.ins.guard is not None:
            raise self.refuse("has a guard, which ptxas does not keep to")

    def operand(self, index: int) -> Operand:
        if index >= len(self.ins.operands):
            raise self.refuse(f"has {len(self.ins.operands)} operands")
        return self.ins.operands[index]

    def src(self, index: int, bits: int) -> Value:
        """Operand `index` as an integer (i1 for a predicate), in as many lanes as the result has."""
        return self.value(self.operand(index), bits)

    def value(self, operand: Operand, bits: int, lanes: int | None = None) -> Value:
        kind = "i1" if bits == 1 else f"i{bits}"
        lanes = lanes or self.lanes
        match operand:
            case Reg(name) if name in self.frame.registers:
                value = self.read(name)
            case Reg(name):
                value = self.special(name)
            case Int(number):
                return const(kind, number, lanes)
            case Float():
                return const(kind, float_bits(operand, bits), lanes)
            case Sym(name):
                return const(kind, self.address_of(name), lanes)
            case Not(Reg(name)):
                value = self.code.inv(self.read(name))
            case _:
                raise self.refuse(f"has operand {operand}")
        if (value.kind == "i1") != (bits == 1):
            raise self.refuse("mixes a predicate with other registers")
        if value.bits != bits:
            value = self.code.resize(value, kind)
        return self.code.splat(value) if lanes == WARP else value

    def address_of(self, name: str) -> int:
        found = self.frame.symbols.get(name)
        if found is None:
            raise self.refuse(f"names {name}, which the PTX does not declare")
        return found[1]

    def space_of(self, name: str) -> str:
        found = self.frame.symbols.get(name)
        return found[0] if found else ""

    def special(self, name: str) -> Value:
        """A special register; those that PTX leaves to the moment (clocks, SM numbers) are refused."""
        stem, axis = (name[1:-2], name[-2:]) if name[-2:] in _AXES else (name[1:], "")
        code = self.code
        match stem:
            case "tid" if axis:
                tids = code.load("ptr", code.at(W, layout.W_TIDS))
                return code.load("i32", code.at(tids, 128 * _AXES[axis]), WARP, 64)
            case "ntid" if axis:
                return code.load("i32", code.at(L, layout.L_NTID + 4 * _AXES[axis]))
            case "ctaid" | "clusterid" if axis:
                return code.load("i32", code.at(B, layout.B_CTAID + 4 * _AXES[axis]))
            case "nctaid" | "nclusterid" if axis:
                return code.load("i32", code.at(L, layout.L_NCTAID + 4 * _AXES[axis]))
            case "cluster_ctaid" if axis:
                return const("i32", 0)
            case "cluster_nctaid" if axis:
                return const("i32", 1)
            case "cluster_ctarank":
                return const("i32", 0)
            case "cluster_nctarank":
                return const("i32", 1)
            case "is_explicit_cluster":
                return const("i1", 0)
            case "laneid":
                return vector("i32", range(WARP))
            case "warpid":
                return code.load("i32", code.at(W, layout.W_INDEX))
            case "dynamic_smem_size":
                return code.cast("trunc", code.load("i64", code.at(L, layout.L_DYNAMIC)), "i32")
            case "total_smem_size":
                return code.cast("trunc", code.load("i64", code.at(L, layout.L_SHARED)), "i32")
        if stem.startswith("lanemask_") and stem[9:] in _LANEMASKS:
            return vector("i32", _LANEMASKS[stem[9:]])
        raise self.refuse(f"reads {name}, whose value PTX does not define")

    def dst(self, value: Value, index: int = 0) -> None:
        """Sets operand `index`, a register or the sink."""
        self.assign(self.operand(index), value)

    def assign(self, operand: Operand, value: Value) -> None:
        match operand:
            case Sink():
                return
            case Reg(name) if name in self.frame.registers:
                self.write(name, value)
            case Pair(first, _):
                self.assign(first, value)
            case _:
                raise self.refuse(f"has destination {operand}")

    def extend(self, operand: Operand, value: Value, *, signed: bool) -> None:
        """Sets a register that may be wider than the value, as loads and conversions allow."""
        if isinstance(operand, Reg) and operand.name in self.frame.registers:
            kind = self.frame.registers[operand.name]
            if kind != "i1" and BITS[kind] > value.bits:
                value = self.code.resize(value, kind, signed=signed)
        self.assign(operand, value)

    def unread(self, operand: Operand) -> bool:
        """Whether nobody reads what the operand is set to."""
        match operand:
            case Sink():
                return True
            case Reg(name):
                return name in self.frame.unread
            case Vec(items):
                return all(map(self.unread, items))
            case _:
                return False

    # Errors while running.

    def site(self, space: str = "", nbytes: int = 0, *, writes: bool = False) -> Value:
        """A number for this instruction, by which a failure names it."""
        self.frame.sites.append(Site(self.ins.line, self.ins.where, self.ins.opcode, space, nbytes, writes))
        return const("i32", len(self.frame.sites) - 1)

    def number(self) -> Value:
        """A number for this instruction + 1, by which a note names it."""
        return const("i32", int(self.site().text) + 1)

    def leave_on_error(self) -> None:
        """After a call that may have recorded an error: goes on, or leaves."""
        code = self.code
        error = code.load("i32", code.at(L, layout.L_ERROR))
        fine = code.fresh("fine")
        code.branch(code.cmp("icmp eq", error, const("i32", 0)), fine, self.fail)
        code.label(fine)

    def fail_where(self, bad: Value, error: int) -> None:
        """Records `error` for the first running lane of `bad` (an i1 of every lane), if there is one."""
        code = self.code
        bits = code.bits(code.splat(bad))
        bits = code.op("and", bits, self.mask())
        record, fine = code.fresh("record"), code.fresh("fine")
        code.branch(code.cmp("icmp eq", bits, const("i32", 0)), fine, record)
        code.label(record)
        lane = code.intrinsic("cttz", bits, const("i1", 0))
        code.invoke("fail", W, L, const("i32", error), self.site(), lane, const("i64", 0))
        code.jump(self.fail)
        code.label(fine)

    def memory(self, index: int) -> Mem:
        operand = self.operand(index)
        if not isinstance(operand, Mem) or operand.extra:
            raise self.refuse(f"has operand {operand}")
        return operand


def float_bits(constant: Float, bits: int) -> int:
    """A floating constant in a format of 32 or 64 bits, as bits."""
    if constant.width == bits:
        return constant.bits
    if constant.width == 64 and bits == 32:
        value = struct.unpack("<d", constant.bits.to_bytes(8, "little"))[0]
        try:
            return int.from_bytes(struct.pack("<f", value), "little")
        except OverflowError:
            raise UnsupportedError(f"{value!r} in a register of 32 bits") from None
    if constant.width == 32 and bits == 64:
        value = struct.unpack("<f", constant.bits.to_bytes(4, "little"))[0]
        return int.from_bytes(struct.pack("<d", value), "little")
    raise UnsupportedError(f"a floating constant in a register of {bits} bits")
