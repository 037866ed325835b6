"""Records what one block computes: the kernel's PTX is rewritten so that it keeps a log of its own values.

Behind each instruction that sets a floating-point register come PTX instructions that append a record to a
log, a buffer that the entry gets as one argument more. The engine executes that as any other kernel, so a
recorded value is the value that the model computes, and nothing in the engine knows of recordings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reprodb.domain import Arg, ArgKind, Artifact, Buffer, Case, Kernel, Role, Stage
from reprodb.errors import ExecutionError, UnsupportedError
from reprodb.executors.model.device import Memory, Region
from reprodb.executors.model.emit import float_bits
from reprodb.executors.model.engine import ModelExecutor, Program, run
from reprodb.executors.model.events import RECORD, RECORD_BYTES, Kind, Operand, Place, Recording, Step
from reprodb.executors.model.floating import carriers, types_of, words_between
from reprodb.executors.model.flow import written
from reprodb.executors.model.inline import Flat, flatten
from reprodb.executors.model.lower import Lowered, lower
from reprodb.executors.model.machine import Compiled, Compiler
from reprodb.executors.model.ptx import (
    TYPE_BYTES,
    Float,
    Function,
    Guard,
    Instruction,
    Int,
    Label,
    Mem,
    Module,
    Reg,
    Source,
    Statement,
    Sym,
    Variable,
    Vec,
)
from reprodb.executors.model.ptx import Operand as PtxOperand
from reprodb.executors.model.ptxtext import instruction_text, operand_text

LIMIT = 1_000_000  # records of one recording; each takes 64 bytes
NOBODY = (1 << 64) - 1  # the number of a block that no grid has
LAST_STORES = 1 << 14  # records where stores alone are recorded
STAGE_STEPS = 1 << 20  # step numbers of one stage

_LOG = "~log"
_PARAMETERS = (_LOG, "~block", "~low", "~high", "~first", "~count")
_SPACES = ("global", "shared", "local", "const", "param")
_WATCHED = ("global", "generic")  # state spaces in which stores are watched
_ENDS = ("bra", "brx", "ret", "exit")
_MOST_SOURCES = 3


@dataclass(frozen=True, slots=True)
class Target:
    """The block whose values are recorded: number of the stage, and of the block in its grid."""

    stage: int
    block: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Addresses whose stores are recorded, whichever block makes them."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Store:
    """One store into watched addresses. `at` is its position in time among the log's records."""

    target: Target
    thread: int
    step: Step
    at: int


@dataclass(frozen=True, slots=True)
class Log:
    """What one execution of all stages left: the block's recording, watched stores in order, and all bits.

    `times` has the position in time of each event of the recording, to be compared with those of stores.
    """

    recording: Recording
    times: NDArray[np.int64]
    stores: tuple[Store, ...]
    raws: Mapping[str, bytes]  # of every buffer of the case


class Recorder:
    """Executes one case of a built kernel on the model, once a recording, always in the same order."""

    def __init__(
        self,
        artifact: Artifact,
        kernel: Kernel,
        case: Case,
        *,
        limit: int = LIMIT,
        seed: int = 0,
        cache: Path | None = None,
    ) -> None:
        from reprodb.inputs import generate

        if artifact.ptx is None:
            raise ExecutionError(
                f"{kernel.name}: the artifact has no PTX, and the model executes nothing else"
            )
        if kernel.composition is not None:
            raise UnsupportedError(
                f"{kernel.name} serves requests in compositions: a trace follows launches of one shape",
                allowed="kernels without a [composition]",
                remedy=f"reprodb explain and reprodb code say what moved in {kernel.name}",
            )
        executor = ModelExecutor(cache)
        self.program: Program = executor.program(kernel.name, artifact.ptx, kernel.stages, artifact)
        self.case = case
        self.limit = limit
        self._seed = seed
        self._fma = executor.host.fma
        self._compiler = Compiler(executor.host, cache)
        self._ptx = artifact.ptx
        self._arrays = {i.name: generate(i) for i in case.inputs}
        self._memory = Memory(self.program.module, case.buffers, self._arrays)
        self._stages: dict[tuple[int, bool], _Instrumented] = {}

    @property
    def regions(self) -> tuple[Region, ...]:
        """Inputs, buffers and variables where kernels see them; their bytes here are of no meaning."""
        return self._memory.regions

    def is_input(self, name: str) -> bool:
        return name in self._memory.inputs

    def address_of(self, buffer: str) -> int:
        return self._memory.buffers[buffer].address

    def record(self, target: Target | None, watch: Watch | None = None) -> Log:
        """Execute every stage once, `target`'s values and stores into `watch` recorded.

        A log that fills up keeps its beginning where a block is recorded, else its end: of many stores the
        last are of interest.
        """
        room = self.limit if target is not None else min(self.limit, LAST_STORES)
        log, count = self._run(target, watch, 0, room)
        if target is None and count > room:
            log, _ = self._run(target, watch, count - room, room)
        return log

    def _run(self, target: Target | None, watch: Watch | None, first: int, room: int) -> tuple[Log, int]:
        """The log with `room` records from number `first` on, and how many there would have been."""
        numbers = range(len(self.program.stages))
        parts = [self._stage(n, everything=target is not None and target.stage == n) for n in numbers]
        low, high = (watch.address, watch.address + watch.nbytes) if watch else (0, 0)
        stages = []
        for number, part in enumerate(parts):
            block = target.block if target is not None and target.stage == number else NOBODY
            values = (block, low, high, first, room)
            stages.append((_with_arguments(part.stage, values), part.compiled))
        program = Program(self.program.name, self.program.module, tuple(stages), self.program.notes)
        size = (room + 1) * RECORD_BYTES
        buffers = (*self.case.buffers, Buffer(_LOG, "uint8", (size,), Role.SCRATCH, init="zero"))
        raws = {
            name: held[0]
            for name, held in run(program, buffers, self._arrays, self.case.n, 1, self._seed).raws.items()
        }
        records = np.frombuffer(raws.pop(_LOG), np.dtype(RECORD))
        count = int.from_bytes(records[:1].tobytes()[:8], "little")
        kept = records[1 : 1 + min(room, count - first)]
        steps = {step.number: step for part in parts for step in part.steps}
        if target is None:
            here, recording = np.empty(0, np.int64), Recording(steps, (), kept[:0])
        else:
            of_block = (kept["step"] // STAGE_STEPS == target.stage) & (kept["block"] == target.block)
            here = np.flatnonzero(of_block)
            lost = max(0, count - len(kept))
            recording = Recording(steps, parts[target.stage].runs, kept[here], lost)
        return Log(recording, here, _stores(kept, steps, watch), raws), count

    def _stage(self, number: int, *, everything: bool) -> _Instrumented:
        found = self._stages.get((number, everything))
        if found is None:
            stage = self.program.stages[number][0]
            module, steps, runs = instrument(
                self.program.module, stage, number * STAGE_STEPS, everything=everything
            )

            def lowering() -> tuple[Lowered, str]:
                lowered = lower(module, stage.entry, fma=self._fma)
                return lowered.without_text(), lowered.text

            shape = f"recording {number} {everything} {stage.grid} {stage.block}"
            key = self._compiler.key(self._ptx, stage.entry, *self.program.notes, shape)
            found = _Instrumented(stage, self._compiler.stage(key, lowering), steps, runs)
            self._stages[number, everything] = found
        return found


@dataclass(frozen=True, slots=True)
class _Instrumented:
    stage: Stage
    compiled: Compiled
    steps: tuple[Step, ...]
    runs: tuple[tuple[Place, ...], ...]


def _with_arguments(stage: Stage, values: Sequence[int]) -> Stage:
    scalars = (
        Arg(ArgKind.SCALAR, name, "uint64", value.to_bytes(8, "little"))
        for name, value in zip(_PARAMETERS[1:], values, strict=True)
    )
    return replace(stage, args=(*stage.args, Arg(ArgKind.BUFFER, _LOG), *scalars))


def _stores(kept: NDArray[np.void], steps: Mapping[int, Step], watch: Watch | None) -> tuple[Store, ...]:
    """The records of stores into watched addresses, in the order of time."""
    if watch is None:
        return ()
    watched = [n for n, step in steps.items() if step.kind is Kind.STORE and step.space in _WATCHED]
    found = []
    for at in np.flatnonzero(np.isin(kept["step"], watched)):
        number, thread, block = (int(kept[field][at]) for field in ("step", "thread", "block"))
        step = steps[number]
        address = int(kept["sources"][at][0]) + step.offset
        if watch.address - step.nbytes < address < watch.address + watch.nbytes:
            found.append(Store(Target(number // STAGE_STEPS, block), thread, step, int(at)))
    return tuple(found)


# --- Rewriting -----------------------------------------------------------------------------------


def instrument(
    module: Module, stage: Stage, first: int, *, everything: bool
) -> tuple[Module, tuple[Step, ...], tuple[tuple[Place, ...], ...]]:
    """The module with the stage's entry keeping a log, its steps numbered from `first`, and its runs.

    The entry takes six arguments more: the log, the block to record, the bounds of watched addresses, and
    which records to keep. Without `everything` only stores into global memory are recorded.
    """
    flat = flatten(module, stage.entry)
    writer = _Rewriter(flat, stage, first, everything=everything)
    body = tuple(writer.body())
    params = (*flat.params, *(Variable(name, "param", "u64", 8, 8, flat.line) for name in _PARAMETERS))
    entry = Function(
        flat.name, True, params, (), flat.registers | writer.registers, tuple(flat.variables.values()),
        flat.tables, body, flat.line,
    )  # fmt: skip
    others = tuple(f for f in module.functions if f.name != stage.entry)
    return (
        replace(module, functions=(entry, *others)),
        tuple(writer.steps),
        tuple(tuple(each) for each in writer.runs),
    )


class _Rewriter:
    """Walks a flat body once and writes it again with its records."""

    def __init__(self, flat: Flat, stage: Stage, first: int, *, everything: bool) -> None:
        self.flat, self.stage, self.first, self.everything = flat, stage, first, everything
        self.floats = carriers(flat)
        self.words = words_between(flat, self.floats)
        self.steps: list[Step] = []
        self.runs: list[list[Place]] = [[]]
        self.registers = {
            **dict.fromkeys((*_PARAMETERS, "~here", "~thread", "~place", "~at", "~head"), "u64"),
            **dict.fromkeys(("~base", "~address", "~end", *(f"~word{n}" for n in range(1, 5))), "u64"),
            **dict.fromkeys(("~x", "~y"), "u32"),
            **dict.fromkeys(("~on", "~due", "~keep"), "pred"),
        }

    def body(self) -> Iterator[Statement]:
        yield from self.prologue()
        begins = True
        for statement in self.flat.body:
            if isinstance(statement, Label):
                yield statement
                begins = True
                continue
            if begins:
                yield from self.mark(statement)
                begins = False
            place = _place(statement.source)
            if self.runs[-1][-1:] != [place]:
                self.runs[-1].append(place)
            yield from self.recorded(statement, place)
            begins = statement.base in _ENDS

    def step(self, kind: Kind, place: Place, ins: Instruction, **more: Any) -> Step:
        step = Step(
            self.first + len(self.steps), kind, len(self.runs) - 1, len(self.runs[-1]) - 1, place, **more
        )
        self.steps.append(step)
        if len(self.steps) > STAGE_STEPS:
            raise ExecutionError(f"{self.flat.name} is too long to be recorded at {ins.where}")
        return step

    # What is added.

    def prologue(self) -> Iterator[Statement]:
        """Parameters, this thread's number in its block and this block's in the grid."""

        def plain(opcode: str, *operands: PtxOperand) -> Instruction:
            return Instruction(opcode, operands, self.flat.line)

        for name in _PARAMETERS:
            yield plain("ld.param.u64", Reg(name), Mem(Sym(name)))
        (bx, by, _), (gx, gy, _) = self.stage.block, self.stage.grid
        x, y = Reg("~x"), Reg("~y")
        for register, special, sizes in ((x, "tid", (bx, bx * by)), (y, "ctaid", (gx, gx * gy))):
            yield plain("mov.u32", register, Reg(f"%{special}.x"))
            for axis, size in zip("yz", sizes, strict=True):
                yield plain("mad.lo.u32", register, Reg(f"%{special}.{axis}"), Int(size), register)
        yield plain("cvt.u64.u32", Reg("~thread"), x)
        yield plain("shl.b64", Reg("~thread"), Reg("~thread"), Int(32))  # a record's upper half
        yield plain("cvt.u64.u32", Reg("~here"), y)
        yield plain("setp.eq.u64", Reg("~on"), Reg("~here"), Reg("~block"))

    def mark(self, ins: Instruction) -> Iterator[Statement]:
        if self.runs[-1]:
            self.runs.append([])
        if self.everything:
            yield from self.record(self.step(Kind.MARK, Place(), ins), ins, Reg("~on"), {})

    def record(self, step: Step, ins: Instruction, due: Reg, aside: Mapping[str, str]) -> Iterator[Statement]:
        """Takes the next place in the log where `due` holds, and fills it if it is to be kept."""
        place, keep, at, head = Reg("~place"), Reg("~keep"), Reg("~at"), Reg("~head")
        yield _at(ins, "atom.global.add.u64", place, Mem(Reg(_LOG)), Int(1), guard=due)
        yield _at(ins, "sub.u64", place, place, Reg("~first"))
        yield _at(ins, "setp.lt.and.u64", keep, place, Reg("~count"), due)
        yield _at(ins, "mad.lo.u64", at, place, Int(RECORD_BYTES), Reg(_LOG))
        yield _at(ins, "add.u64", head, Reg("~thread"), Int(step.number))
        words: list[PtxOperand] = [head, Int(0), Int(0), Int(0), Int(0), Reg("~here"), Int(0), Int(0)]
        held = {1: step.result} if step.result else {}
        for operand in step.operands:
            if operand.slot is not None:
                held[2 + operand.slot] = aside.get(operand.register, operand.register)
        if step.operands and not step.result:
            stored = step.operands[-1]
            if stored.register:
                held[1] = aside.get(stored.register, stored.register)
            elif stored.constant is not None:
                words[1] = Int(stored.constant)
        for index, name in held.items():
            words[index] = Reg(name)
            if self.width(name) < 8:
                words[index] = Reg(f"~word{index}")
                yield _at(ins, f"cvt.u64.u{8 * self.width(name)}", words[index], Reg(name))
        # The log's own count lies before the records.
        yield _at(ins, "st.global.v8.b64", Mem(at, RECORD_BYTES), Vec(tuple(words)), guard=keep)

    def recorded(self, ins: Instruction, place: Place) -> Iterator[Statement]:
        """An instruction with its records behind it; what it overwrites and they need is put aside before."""
        steps = list(self.steps_of(ins, place))
        if not steps:
            yield ins
            return
        due = Reg("~due")
        if ins.guard is None and steps[0].kind is not Kind.STORE:
            due = Reg("~on")
        else:
            yield from self.due(ins, steps[0])
        set_here = set(written(ins))
        aside: dict[str, str] = {}
        if steps[0].operands and steps[0].operands[0].register == "~base":
            yield _at(ins, "mov.u64", Reg("~base"), _memory(ins).base)
        for operand in steps[0].operands:
            if operand.slot is not None and operand.register in set_here:
                kind = f"b{8 * self.width(operand.register)}"
                aside[operand.register] = f"~{kind}~{operand.slot}"
                self.registers[aside[operand.register]] = kind
                yield _at(ins, f"mov.{kind}", Reg(aside[operand.register]), Reg(operand.register))
        yield ins
        for step in steps:
            yield from self.record(step, ins, due, aside)

    def due(self, ins: Instruction, step: Step) -> Iterator[Statement]:
        """Sets `~due`: the block is recorded, or the store meets watched addresses; and the guard holds."""
        due = Reg("~due")
        yield _at(ins, "mov.pred", due, Reg("~on"))
        if step.kind is Kind.STORE and step.space in _WATCHED:
            address = _memory(ins)
            reach = step.nbytes * (len(_items(_stored(ins))))
            start, end, met = Reg("~address"), Reg("~end"), Reg("~keep")
            yield _at(ins, "mov.u64", start, address.base)
            yield _at(ins, "add.u64", end, start, Int(address.offset + reach))
            yield _at(ins, "add.u64", start, start, Int(address.offset))
            yield _at(ins, "setp.lt.u64", met, start, Reg("~high"))
            yield _at(ins, "setp.gt.and.u64", met, end, Reg("~low"), met)
            yield _at(ins, "or.pred", due, due, met)
        if ins.guard is not None:
            holds = Reg(ins.guard.register)
            if ins.guard.negated:
                yield _at(ins, "not.pred", Reg("~keep"), holds)
                holds = Reg("~keep")
            yield _at(ins, "and.pred", due, due, holds)

    def steps_of(self, ins: Instruction, place: Place) -> Iterator[Step]:
        """What is to be recorded of an instruction: one step for each result or stored element."""
        common = {"opcode": ins.opcode, "text": instruction_text(ins), "ptx_line": ins.line}
        if ins.base in ("st", "atom", "red"):
            space, items = _space(ins), _items(_stored(ins))
            watched = space in _WATCHED
            nbytes = _nbytes(ins)
            for number, item in enumerate(items):
                kind = self.floats.get(item.name, "") if isinstance(item, Reg) else ""
                if watched or (self.everything and (kind or isinstance(item, Float))):
                    operands = (*self.address(ins), self.operand(item, 1, nbytes, types_of(ins)[1]))
                    yield self.step(
                        Kind.STORE, place, ins, **common, dtype=kind or _float_type(ins), operands=operands,
                        space=space, offset=_memory(ins).offset + number * nbytes, nbytes=nbytes,
                    )  # fmt: skip
            return
        results = [n for n in written(ins) if n in self.floats or n in self.words] if self.everything else []
        if ins.base in ("ld", "ldu"):
            nbytes = _nbytes(ins)
            order = [o.name if isinstance(o, Reg) else "" for o in _items(ins.operands[0])]
            for name in results:
                yield self.step(
                    Kind.LOAD, place, ins, **common, dtype=self.floats.get(name, ""), result=name,
                    operands=self.address(ins), space=_space(ins),
                    offset=_memory(ins).offset + order.index(name) * nbytes, nbytes=nbytes,
                )  # fmt: skip
            return
        for name in results:
            whole = ins.base == "mov" and not any(isinstance(o, Vec) for o in ins.operands)
            kind = Kind.WORD if name in self.words else Kind.MOVE if whole else Kind.VALUE
            dtype = types_of(ins)[0] or self.floats.get(name, "")
            yield self.step(
                kind, place, ins, **common, dtype=dtype, result=name, operands=self.sources(ins, dtype)
            )

    # Operands.

    def width(self, register: str) -> int:
        """Bytes of a register; 0 for what is no register of the kernel, and for predicates."""
        kind = (self.flat.registers | self.registers).get(register, "pred")
        return 0 if kind == "pred" else TYPE_BYTES[kind]

    def operand(self, item: PtxOperand, slot: int | None, nbytes: int, dtype: str = "") -> Operand:
        text = operand_text(item)
        match item:
            case Reg(name) if 0 < self.width(name) <= 8:
                return Operand(text, self.floats.get(name, ""), name, slot=slot)
            case Float():
                bits = float_bits(item, 8 * nbytes) if nbytes in (4, 8) else item.bits
                return Operand(text, dtype, constant=bits)
            case Int(value):
                return Operand(text, dtype, constant=value & ((1 << 8 * nbytes) - 1))
        return Operand(text)

    def sources(self, ins: Instruction, dtype: str) -> tuple[Operand, ...]:
        found: list[Operand] = []
        free = 0
        source = types_of(ins)[1] or dtype
        nbytes = TYPE_BYTES[source] if source else 8
        for item in (i for o in ins.operands[1:] for i in _items(o)):
            operand = self.operand(item, free if free < _MOST_SOURCES else None, nbytes, types_of(ins)[1])
            free += operand.slot is not None
            found.append(operand)
        return tuple(found)

    def address(self, ins: Instruction) -> tuple[Operand, ...]:
        memory = _memory(ins)
        if isinstance(memory.base, Sym):
            return (Operand(operand_text(memory), register="~base", slot=0),)
        return (replace(self.operand(memory.base, 0, 8), text=operand_text(memory), dtype=""),)


def _at(ins: Instruction, opcode: str, *operands: PtxOperand, guard: Reg | None = None) -> Instruction:
    """An added instruction: of the line of the instruction that it is about."""
    return Instruction(opcode, operands, ins.line, Guard(guard.name) if guard else None, ins.source)


def _place(source: Source | None) -> Place:
    if source is None:
        return Place()
    root = source.root or source
    return Place(source.file, source.line, source.column, (root.file, root.line, root.column))


def _items(operand: PtxOperand) -> tuple[PtxOperand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _stored(ins: Instruction) -> PtxOperand:
    """What a store or atomic writes or combines; the new value of a compare-and-swap."""
    return ins.operands[-1] if ins.base != "st" else ins.operands[1]


def _space(ins: Instruction) -> str:
    return next((p.split("::")[0] for p in ins.parts[1:] if p.split("::")[0] in _SPACES), "generic")


def _nbytes(ins: Instruction) -> int:
    return TYPE_BYTES[next(p for p in reversed(ins.parts) if p in TYPE_BYTES)]


def _memory(ins: Instruction) -> Mem:
    return next(o for o in ins.operands if isinstance(o, Mem))


def _float_type(ins: Instruction) -> str:
    return types_of(ins)[1]
