"""One entry's flat body to LLVM IR: a function that runs one warp until it waits, returns or fails.

Every basic block is written in two forms. The full form runs all 32 lanes, keeps registers in stack slots
that LLVM turns into values, and jumps to the next full block while branches are uniform. The masked form
runs the lanes of a mask on registers in the warp's record. Between them stands the dispatcher, which
takes the lanes with the lowest block number, so that diverged lanes meet again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reprodb.errors import UnsupportedError
from reprodb.executors.model import barriers, layout, opcodes, replay, runtime
from reprodb.executors.model.emit import Emit, Frame, L, Site, W, register_kind
from reprodb.executors.model.flow import (
    CARRY,
    EXIT,
    Block,
    Flow,
    analyse,
    is_barrier,
    read,
    shared_by_warp,
    written,
)
from reprodb.executors.model.inline import Flat, flatten
from reprodb.executors.model.layout import align_up
from reprodb.executors.model.llvm import BITS, WARP, Code, Helpers, Value, const, type_of
from reprodb.executors.model.ptx import (
    Instruction,
    Mem,
    Module,
    Operand,
    Sym,
    Vec,
)


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter: where it lies in the parameter block, and its size in bytes."""

    name: str
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Lowered:
    """An entry as LLVM IR (function `warp` and its helpers), and what running it needs to know."""

    entry: str
    text: str
    params: tuple[Param, ...]
    param_bytes: int
    shared_bytes: int  # static, up to where dynamic shared memory begins
    warp_bytes: int
    local_at: int  # where local memory begins in a warp's record
    local_bytes: int  # of one thread
    sites: tuple[Site, ...]
    block_lines: tuple[int, ...]  # the PTX line at which each basic block begins
    unfit: str = ""  # why its arrival orders cannot be replayed, as far as the code tells

    def without_text(self) -> Lowered:
        """The same without the IR, which is not needed once it is compiled."""
        return replace(self, text="")


def place_variables(module: Module) -> dict[str, tuple[str, int]]:
    """The addresses of a module's global and constant variables: the same wherever it is loaded."""
    places: dict[str, tuple[str, int]] = {}
    at = {"global": layout.VARIABLES_AT, "const": layout.CONSTANTS_AT}
    for variable in module.variables:
        if variable.space in at:
            start = align_up(at[variable.space], max(256, variable.align))
            places[variable.name] = (variable.space, start)
            at[variable.space] = start + variable.nbytes + 256
    return places


def lower(module: Module, entry: str, *, fma: bool, recorded: bool = False) -> Lowered:
    """The entry as LLVM IR. Whatever the opcode table does not have raises UnsupportedError.

    A `recorded` one says what it reads and writes, and keeps its writes to global memory (`keeping.py`).
    """
    flat = flatten(module, entry)
    if any(
        "cc" in i.parts or i.base in ("addc", "subc", "madc") for i in flat.body if isinstance(i, Instruction)
    ):
        flat.registers[CARRY] = "pred"
    _check(flat)
    flow = analyse(flat)
    frame, warp_bytes, shared, params = _frame(module, flat, flow, recorded=recorded)
    helpers = Helpers(fma=fma)
    text = _Writer(frame, flow, helpers).function()
    lines = tuple(_line(b) for b in flow.blocks)
    param_bytes = params[-1].offset + params[-1].nbytes if params else 0
    return Lowered(
        entry=entry, text=f"{text}\n{helpers.text}\n", params=params, param_bytes=param_bytes,
        shared_bytes=shared, warp_bytes=warp_bytes, local_at=frame.local_at,
        local_bytes=frame.local_bytes, sites=tuple(frame.sites), block_lines=lines,
        unfit=replay.unfit(flow, frozenset(frame.registers), frame.local_bytes, frame.unread),
    )  # fmt: skip


def _line(block: Block) -> int:
    first = block.instructions[0] if block.instructions else block.end
    return first.line if first else 0


_CONTROL = ("bra", "brx", "ret", "exit")


def _check(flat: Flat) -> None:
    """Refuses the first instruction that no row of the table matches."""
    for ins in flat.body:
        if not isinstance(ins, Instruction) or (ins.base in _CONTROL and ins.opcode in _CONTROL_FORMS):
            continue
        if is_barrier(ins):
            if barriers.read(ins) is None and "red" not in ins.parts:
                raise _unsupported(flat, ins)
        elif opcodes.lookup(ins.opcode) is None:
            raise _unsupported(flat, ins)


_CONTROL_FORMS = ("bra", "bra.uni", "brx.idx", "brx.idx.uni", "ret", "ret.uni", "exit")


def _unsupported(flat: Flat, ins: Instruction) -> UnsupportedError:
    approximate = "approx" in ins.parts or ins.opcode.startswith("div.full")
    why = "whose bits PTX does not define" if approximate else "which the model does not execute"
    return UnsupportedError(
        f"{flat.name}: {ins.opcode} at {ins.where}, {why}",
        remedy="execute this kernel on a GPU" + (", or build it without fast math" if approximate else ""),
    )


def _frame(
    module: Module, flat: Flat, flow: Flow, *, recorded: bool
) -> tuple[Frame, int, int, tuple[Param, ...]]:
    """Where registers, variables and parameters lie; bytes of a warp's record and of shared memory."""
    instructions = [i for i in flat.body if isinstance(i, Instruction)]
    lanewise = frozenset(id(i) for b in flow.blocks for i in b.instructions if opcodes.is_lanewise(i))
    shared_registers = shared_by_warp(flow, flat.registers, lanewise)
    reads: set[str] = set()
    used: dict[str, None] = {}
    for block in flow.blocks:
        for ins in (*block.instructions, *((block.end,) if block.end else ())):
            reads.update(read(ins))
            used |= dict.fromkeys((*read(ins), *written(ins)))
    kinds = {name: register_kind(flat.registers[name]) for name in used if name in flat.registers}
    offsets: dict[str, int] = {}
    at = layout.W_REGISTERS
    for name in sorted(kinds, key=lambda n: -_register_bytes(kinds[n], n in shared_registers)):
        size = _register_bytes(kinds[name], name in shared_registers)
        at = align_up(at, min(64, size))
        offsets[name] = at
        at += size
    symbols = place_variables(module)
    local_at = align_up(at, 64)
    local = 0
    for variable in flat.variables.values():
        if variable.space == "local":
            local = align_up(local, variable.align)
            symbols[variable.name] = ("local", local)
            local += variable.nbytes
    local = align_up(local, 16)
    shared = _place_shared(module, flat, instructions, symbols)
    params = _params(flat)
    symbols |= {p.name: ("param", p.offset) for p in params}
    frame = Frame(
        entry=flat.name, registers=kinds, shared=shared_registers & set(kinds), offsets=offsets,
        symbols=symbols, local_at=local_at, local_bytes=local,
        param_bytes=params[-1].offset + params[-1].nbytes if params else 0,
        unread=frozenset(kinds) - reads, recorded=recorded,
    )  # fmt: skip
    return frame, align_up(local_at + WARP * local, 64), shared, params


def _register_bytes(kind: str, is_shared: bool) -> int:
    if is_shared:
        return 8
    return 4 if kind == "i1" else WARP * BITS[kind] // 8


def _place_shared(
    module: Module, flat: Flat, instructions: list[Instruction], symbols: dict[str, tuple[str, int]]
) -> int:
    """Static shared variables that the entry names, one after another; the dynamic one begins behind."""
    named = {name for ins in instructions for name in _symbols(ins.operands)}
    candidates = [v for v in module.variables if v.space == "shared"]
    candidates += [v for v in flat.variables.values() if v.space == "shared"]
    static = [v for v in candidates if v.name in named and not v.extern]
    dynamic = [v for v in candidates if v.name in named and v.extern]
    at = 0
    for variable in static:
        at = align_up(at, variable.align)
        symbols[variable.name] = ("shared", at)
        at += variable.nbytes
    for variable in dynamic:
        at = align_up(at, variable.align)
    for variable in dynamic:
        symbols[variable.name] = ("shared", at)
    return at


def _symbols(operands: tuple[Operand, ...]) -> list[str]:
    found: list[str] = []
    for operand in operands:
        match operand:
            case Sym(name) | Mem(Sym(name), _, _):
                found.append(name)
            case Vec(items):
                found += _symbols(items)
    return found


def _params(flat: Flat) -> tuple[Param, ...]:
    found = []
    at = 0
    for variable in flat.params:
        at = align_up(at, variable.align)
        found.append(Param(variable.name, at, variable.nbytes))
        at += variable.nbytes
    return tuple(found)


# --- Writing the function ----------------------------------------------------------------------


class _Writer:
    def __init__(self, frame: Frame, flow: Flow, helpers: Helpers) -> None:
        self.frame = frame
        self.flow = flow
        self.code = Code(helpers)
        self.changed = _changed(flow)
        # Where whole warps go on after a barrier or when their turn was over.
        self.resumed = {0} | {
            t for b in flow.blocks for t in b.targets if t <= b.index or (b.end and is_barrier(b.end))
        }
        for text in runtime.declarations():
            helpers.declare(text)

    def function(self) -> str:
        code = self.code
        code.helpers.declare("declare i16 @llvm.vector.reduce.umin.v32i16(<32 x i16>)")
        self.prologue()
        self.dispatcher()
        for block in self.flow.blocks:
            self.full(block)
            self.masked(block)
        code.label("failed")
        code.line(f"ret i32 {layout.RC_ERROR}")
        body = "\n".join(code.lines)
        return f"define i32 @warp(ptr %w, ptr %b, ptr %l) {{\n{body}\n}}"

    def prologue(self) -> None:
        """Stack slots: one a register for the full form, and two through which helpers get vectors."""
        code = self.code
        code.label("entry")
        for name, kind in self.frame.registers.items():
            lanes = 1 if name in self.frame.shared else WARP
            held = "i8" if kind == "i1" and lanes == 1 else kind
            align = 8 if lanes == 1 else 64
            code.line(f'%"r:{name}" = alloca {type_of(held, lanes)}, align {align}')
        code.line("%slot.addresses = alloca <32 x i64>, align 64")
        code.line("%slot.data = alloca [8 x <32 x i64>], align 64")
        whole = code.load("i32", code.at(W, layout.W_WHOLE))
        cases = " ".join(f"i32 {b.index}, label %e{b.index}" for b in self.flow.blocks if self.enters(b))
        code.line(f"switch i32 {whole.text}, label %dispatch [ {cases} ]")

    def dispatcher(self) -> None:
        """Takes the lanes of the lowest block number; waiting lanes last; leaves when none can run."""
        code = self.code
        code.label("dispatch")
        pc = code.load("i16", W, WARP, 64)
        lowest = code.define(f"call i16 @llvm.vector.reduce.umin.v32i16({pc.typed})", "i16")
        code.branch(code.cmp("icmp ult", lowest, const("i16", layout.PC_WAITING | layout.PC_TRIED)),
                    "choose", "idle")  # fmt: skip
        code.label("idle")
        code.line(f"switch i16 {lowest.text}, label %stuck [ i16 {layout.PC_DONE}, label %returned ]")
        code.label("stuck")
        parked = code.cmp("icmp uge", lowest, const("i16", layout.PC_PARKED))
        code.branch(parked, "parked", "deadlock")
        code.label("parked")
        code.line(f"ret i32 {layout.RC_BARRIER}")
        code.label("returned")
        code.line(f"ret i32 {layout.RC_DONE}")
        code.label("deadlock")
        block = code.op("and", lowest, const("i16", layout.PC_BLOCK))
        here = code.bits(code.cmp("icmp eq", pc, code.splat(lowest)))
        lane = code.intrinsic("cttz", here, const("i1", 0))
        code.invoke("fail", W, L, const("i32", layout.E_WARP_DEADLOCK), const("i32", -1), lane,
                    code.cast("zext", block, "i64"))  # fmt: skip
        code.jump("failed")
        code.label("choose")
        block = code.op("and", lowest, const("i16", layout.PC_BLOCK))
        numbers = code.op("and", pc, const("i16", layout.PC_BLOCK | layout.PC_PARKED, WARP))
        code.line(f"%here = icmp eq {numbers.typed}, {code.splat(block).text}")
        code.line("%mask = bitcast <32 x i1> %here to i32")
        code.line("%all = icmp eq i32 %mask, -1")
        code.line("br i1 %all, label %choose.full, label %choose.masked")
        for form, prefix in (("full", "e"), ("masked", "m")):
            cases = " ".join(
                f"i16 {b.index}, label %{prefix}{b.index}"
                for b in self.flow.blocks
                if form == "masked" or self.enters(b)
            )
            other = "impossible" if form == "masked" else "choose.masked"
            code.label(f"choose.{form}")
            code.line(f"switch i16 {block.text}, label %{other} [ {cases} ]")
        code.label("impossible")
        code.line("unreachable")

    def enters(self, block: Block) -> bool:
        """Whether warps enter the full form here: not behind a split for a shuffle, it is not worth it."""
        return not block.syncs or block.index in self.resumed

    def stand(self, block: int) -> None:
        """Says that all 32 lanes run that block next."""
        self.code.store(const("i32", block), self.code.at(W, layout.W_WHOLE))

    def part(self, pc: Value) -> None:
        """Says where each lane goes on, when they differ."""
        self.code.store(pc, W, 64)
        self.stand(layout.NOT_WHOLE)

    # The full form.

    def full(self, block: Block) -> None:
        code, index = self.code, block.index
        emit = Emit(code, self.frame, full=True, fail="failed")
        if self.enters(block):
            code.label(f"e{index}")
            for name in sorted(self.flow.live_in[index]):
                home = code.at(W, self.frame.offsets[name])
                value = emit.load_register(name, home, packed=True)
                emit.store_register(name, value, emit.home(name), packed=False)
            code.jump(f"f{index}")
        code.label(f"f{index}")
        self.instructions(emit, block)
        end = block.end
        emit.ins = end or Instruction("nop", (), 0)
        guard = None if end is None or end.guard is None else code.bits(code.splat(emit.guard()))
        if end is not None and is_barrier(end):
            self.park_full(emit, block, guard)
        elif end is not None and end.base == "brx":
            self.table(emit, block)
        elif guard is not None and len(block.targets) > 1 and block.targets[0] != block.targets[1]:
            self.branch_full(emit, block, guard)
        else:
            emit.write_back(self.flow.live_at(block.targets[0]))
            self.edge(emit, block.index, block.targets[0])

    def branch_full(self, emit: Emit, block: Block, taken: Value) -> None:
        """All lanes one way, or all the other, or the warp diverges."""
        code, (yes, no) = self.code, block.targets
        emit.write_back(self.flow.live_at(yes) | self.flow.live_at(no))
        to_yes, to_no, mixed, part = (code.fresh(s) for s in ("yes", "no", "mixed", "part"))
        code.branch(code.cmp("icmp eq", taken, const("i32", -1)), to_yes, part)
        code.label(part)
        code.branch(code.cmp("icmp eq", taken, const("i32", 0)), to_no, mixed)
        code.label(to_yes)
        self.edge(emit, block.index, yes)
        code.label(to_no)
        self.edge(emit, block.index, no)
        code.label(mixed)
        self.spill(emit, block.index, yes, no)
        pc = code.select(code.lanes_of(taken), const("i16", yes, WARP), const("i16", no, WARP))
        self.part(pc)
        code.jump("dispatch")

    def edge(self, emit: Emit, source: int, target: int) -> None:
        """From a full block to the next one, to the end, or out when the warp's turn is over."""
        code = self.code
        if target == EXIT:
            code.line(f"ret i32 {layout.RC_DONE}")
            return
        if target <= source:
            over, on = code.fresh("over"), code.fresh("on")
            code.branch(self.burn(), over, on)
            code.label(over)
            self.spill(emit, source, target)
            self.stand(target)
            code.line(f"ret i32 {layout.RC_QUANTUM}")
            code.label(on)
        code.jump(f"f{target}")

    def burn(self) -> Value:
        """Takes one backward branch off the warp's turn; whether it is over."""
        code = self.code
        at = code.at(W, layout.W_FUEL)
        left = code.op("sub", code.load("i64", at), const("i64", 1))
        code.store(left, at)
        return code.cmp("icmp slt", left, const("i64", 0))

    def spill(self, emit: Emit, source: int, *targets: int) -> None:
        """Registers that the targets read go from stack slots into the warp's record, where it has others."""
        names = frozenset().union(*(self.flow.live_at(t) for t in targets)) & self.changed[source]
        for name in sorted(names):
            value = emit.load_register(name, emit.home(name), packed=False)
            home = self.code.at(W, self.frame.offsets[name])
            emit.store_register(name, value, home, packed=True)

    def park_full(self, emit: Emit, block: Block, guard: Value | None) -> None:
        code, following = self.code, block.targets[0]
        barriers.announce(emit)
        emit.write_back(self.flow.live_at(following))
        self.spill(emit, block.index, following)
        if guard is None:
            self.stand(following)
            code.line(f"ret i32 {layout.RC_BARRIER}")
            return
        parked = const("i16", layout.PC_PARKED | following, WARP)
        self.part(code.select(code.lanes_of(guard), parked, const("i16", following, WARP)))
        code.jump("dispatch")

    def table(self, emit: Emit, block: Block) -> None:
        """`brx.idx`: each lane to the block that its index names."""
        code = self.code
        end = emit.ins
        index = emit.value(end.operands[0], 32, WARP)
        count = len(block.targets) - (end.guard is not None)
        emit.fail_where(code.cmp("icmp uge", index, const("i32", count, WARP)), layout.E_BRANCH_TABLE)
        guard = None if end.guard is None else code.splat(emit.guard())
        pc = const("i16", block.targets[-1], WARP)
        for number, target in enumerate(block.targets[:count]):
            hit = code.cmp("icmp eq", index, const("i32", number, WARP))
            hit = hit if guard is None else code.op("and", hit, guard)
            pc = code.select(hit, const("i16", target, WARP), pc)
        live = frozenset().union(*(self.flow.live_at(t) for t in block.targets))
        emit.write_back(live)
        if emit.full:
            self.spill(emit, block.index, *block.targets)
            self.part(pc)
            code.jump("dispatch")
        else:
            self.go(emit, block, pc)

    # The masked form.

    def masked(self, block: Block) -> None:
        code = self.code
        emit = Emit(code, self.frame, full=False, fail="failed")
        code.label(f"m{block.index}")
        if block.syncs:
            self.gather(emit, block)
        self.instructions(emit, block)
        end = block.end
        emit.ins = end or Instruction("nop", (), 0)
        guard = None if end is None or end.guard is None else code.splat(emit.guard())
        if end is not None and end.base == "brx":
            self.table(emit, block)
            return
        first = block.targets[0]
        if end is not None and is_barrier(end):
            barriers.announce(emit)
            taken, other = layout.PC_PARKED | first, first
        else:
            taken, other = first, block.targets[-1]
        live = frozenset().union(*(self.flow.live_at(t) for t in block.targets))
        emit.write_back(live)
        pc = const("i16", taken, WARP)
        if guard is not None:
            pc = code.select(guard, pc, const("i16", other, WARP))
        self.go(emit, block, pc)

    def go(self, emit: Emit, block: Block, target: Value) -> None:
        """Sends the running lanes on. Lanes whose turn is over go behind the others."""
        code = self.code
        pc = code.load("i16", W, WARP, 64)
        if EXIT in block.targets:
            pc = self.untry(pc)
        running = code.lanes_of(emit.active)
        code.store(code.select(running, target, pc), W, 64)
        if any(t <= block.index for t in block.targets):
            over = code.fresh("over")
            code.branch(self.burn(), over, "dispatch")
            code.label(over)
            moved = code.load("i16", W, WARP, 64)
            alive = code.cmp("icmp ult", moved, const("i16", layout.PC_PARKED, WARP))
            behind = code.op("or", moved, const("i16", layout.PC_WAITING, WARP))
            put = code.op("and", alive, running)
            code.store(code.select(put, behind, moved), W, 64)
            code.line(f"ret i32 {layout.RC_QUANTUM}")
        else:
            code.jump("dispatch")

    def untry(self, pc: Value) -> Value:
        """Something has changed: lanes that wait for others of their warp are worth another look."""
        code = self.code
        waiting = code.cmp("icmp ult", pc, const("i16", layout.PC_PARKED, WARP))
        again = code.op("and", pc, const("i16", 0xFFFF & ~layout.PC_TRIED, WARP))
        return code.select(waiting, again, pc)

    def gather(self, emit: Emit, block: Block) -> None:
        """Waits for the lanes that the mask of a `.sync` instruction names, those that have not returned."""
        code = self.code
        emit.ins = block.instructions[0]
        member = emit.value(emit.operand(_mask_operand(emit.ins)), 32)
        if member.lanes == 1:
            wanted = member
        else:
            code.helpers.declare("declare i32 @llvm.vector.reduce.or.v32i32(<32 x i32>)")
            own = code.select(code.lanes_of(emit.active), member, const("i32", 0, WARP))
            wanted = code.define(f"call i32 @llvm.vector.reduce.or.v32i32({own.typed})", "i32")
        pc = code.load("i16", W, WARP, 64)
        alive = code.bits(code.cmp("icmp ne", pc, const("i16", layout.PC_DONE, WARP)))
        missing = code.op("and", code.op("and", wanted, alive), code.inv(emit.active))
        wait, met = code.fresh("wait"), code.fresh("met")
        code.branch(code.cmp("icmp eq", missing, const("i32", 0)), met, wait)
        code.label(wait)
        waited = code.op("and", pc, const("i16", layout.PC_WAITING, WARP))
        tried = code.op("lshr", waited, const("i16", 1, WARP))
        flags = code.op("or", tried, const("i16", layout.PC_WAITING | block.index, WARP))
        code.store(code.select(code.lanes_of(emit.active), flags, pc), W, 64)
        code.jump("dispatch")
        code.label(met)
        code.store(self.untry(pc), W, 64)

    # Both forms.

    def instructions(self, emit: Emit, block: Block) -> None:
        for ins in block.instructions:
            found = opcodes.lookup(ins.opcode)
            if found is None:
                raise UnsupportedError(f"{self.frame.entry}: {ins.opcode} at {ins.where}")
            row, mods = found
            names = written(ins)
            emit.ins, emit.mods = ins, dict(mods)
            emit.lanes = 1 if names and all(n in self.frame.shared for n in names) else WARP
            row.emit(emit, emit.mods)


def _changed(flow: Flow) -> list[frozenset[str]]:
    """For each block the registers that may differ from the warp's record at its end, in the full form.

    Full blocks follow each other without the record, until a barrier: behind it, and where warps enter
    otherwise, registers are as the record has them.
    """
    own = [frozenset(name for i in b.instructions for name in written(i)) for b in flow.blocks]
    found = list(own)
    again = True
    while again:
        again = False
        for block in flow.blocks:
            if block.end is not None and (is_barrier(block.end) or block.end.base == "brx"):
                continue
            for target in block.targets:
                if target != EXIT and not found[block.index] <= found[target]:
                    found[target] |= found[block.index]
                    again = True
    return found


def _mask_operand(ins: Instruction) -> int:
    return {"bar": 0, "elect": 1, "shfl": 4}.get(ins.base, 2)
