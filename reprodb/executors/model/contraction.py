"""What ptxas fuses behind the PTX's back: bare multiplications that feed bare additions.

PTX lets an assembler fuse a `mul` and an `add` or `sub` that name no rounding mode; ptxas does. The rule
was read off ptxas 12.0, 12.6, 13.0 and 13.5 for sm_75 to sm_120: thousands of random expressions assembled,
the machine code evaluated symbolically. A product is fused into the additions that use it only where nothing
else in its basic block uses it and nothing outside does, so that the multiplication goes away; single-use
products come first; where an addition could take either operand it takes the one with fewer uses, else its
first.

The rule says which pairs fuse, the SASS's opcode counts say whether this build did it: flags may forbid it,
and unrolled loops can fuse across iterations, which a static text cannot say. What does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from reprodb.domain import FunctionCounts
from reprodb.errors import UnsupportedError
from reprodb.executors.model.flow import is_barrier, read, written
from reprodb.executors.model.ptx import Float, Function, Instruction, Label, Module, Not, Reg, Statement, Sym

_TYPES = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
_ROUNDED = ("rn", "rz", "rm", "rp")
# Opcodes of SASS by the type that they compute: fused, product, sum.
_SASS = {"f32": ("FFMA", "FMUL", "FADD"), "f64": ("DFMA", "DMUL", "DADD")}
# PTX that expands to multiplications and fused ones of its own.
_EXPANDING = ("div", "rcp", "sqrt", "rem", "ex2", "lg2", "sin", "cos", "tanh", "rsqrt")


def reconcile(
    module: Module,
    counts: tuple[FunctionCounts, ...] | None,
    options: tuple[str, ...] = (),
    entries: tuple[str, ...] | None = None,
) -> tuple[Module, tuple[str, ...]]:
    """The module with the pairs fused that its machine code has fused, and a note on each function changed.

    `counts` are the opcode counts by entry, None where the machine code could not be read. Only functions
    that `entries` reach are looked at (all by default). Raises UnsupportedError where a pair could be fused
    and the counts do not say, or fit neither reading.
    """
    if _forbidden(options):
        return module, ()
    reached = _reached(module, entries)
    plans = {f.name: _plan(f) for f in module.functions if f.body is not None and f.name in reached}
    notes: list[str] = []
    fused: dict[str, Function] = {}
    for entry in _entries(module, entries):
        members = [module.function(name) for name in _calls(module, entry)]
        bodies = [f for f in members if f is not None]
        if not any(plans[f.name].pairs or plans[f.name].carried for f in bodies):
            continue
        if not _decide(entry, bodies, plans, counts):
            continue
        for function in bodies:
            plan = plans[function.name]
            if plan.pairs and function.name not in fused:
                fused[function.name] = _fuse(function, plan)
                notes.append(f"contracted as the SASS shows: {len(plan.pairs)} in {function.name}")
    functions = tuple(fused.get(f.name, f) if f.body is not None else f for f in module.functions)
    return replace(module, functions=functions), tuple(notes)


def _forbidden(options: tuple[str, ...]) -> bool:
    """Whether flags keep ptxas from fusing: `-fmad=false`, or device debugging."""
    text = " ".join(options).replace("--fmad", "-fmad")
    last = max(text.rfind("-fmad=false"), text.rfind("-fmad false"))
    on = max(text.rfind("-fmad=true"), text.rfind("-fmad true"))
    return last > on or any(o in ("-G", "--device-debug") for o in options)


# --- Which functions belong to an entry --------------------------------------------------------


def _entries(module: Module, wanted: tuple[str, ...] | None) -> list[str]:
    names = [f.name for f in module.functions if f.entry and f.body is not None]
    return [n for n in names if wanted is None or n in wanted]


def _calls(module: Module, entry: str) -> list[str]:
    """The entry and the functions that it calls, directly or not."""
    found = [entry]
    for name in found:
        function = module.function(name)
        for ins in function.instructions if function else ():
            if ins.base == "call":
                found += [o.name for o in ins.operands if isinstance(o, Sym) and o.name not in found]
    return [n for n in found if module.function(n) is not None]


def _reached(module: Module, entries: tuple[str, ...] | None) -> set[str]:
    return {name for entry in _entries(module, entries) for name in _calls(module, entry)}


# --- What ptxas would fuse ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pair:
    """A product and the addition that takes it: positions in the body, and which operand it is (1 or 2)."""

    product: int
    sum: int
    operand: int
    negated: bool  # a `neg` stands between them


@dataclass
class Plan:
    """What the rule says of one function. `carried` are additions that a product reaches around a loop."""

    pairs: list[Pair] = field(default_factory=list)
    carried: list[int] = field(default_factory=list)
    loops: bool = False


@dataclass
class _Product:
    """A bare multiplication in a block: where, its kind, and who uses its value."""

    at: int
    kind: tuple[str, bool]  # type, ftz
    uses: list[tuple[int, int, bool]] = field(default_factory=list)  # addition, operand, negated
    other: bool = False  # something else uses it

    @property
    def free(self) -> bool:
        return not self.other


def _kind(ins: Instruction) -> tuple[str, bool] | None:
    """Type and flushing of a bare multiplication, addition or subtraction; None for all else."""
    parts = ins.parts
    if ins.base not in ("mul", "add", "sub") or parts[-1] not in _TYPES:
        return None
    if any(p in _ROUNDED for p in parts) or (ins.base == "mul" and "sat" in parts):
        return None
    return parts[-1], "ftz" in parts


def _plan(function: Function) -> Plan:
    body = function.body or ()
    plan = Plan()
    blocks, follow = _blocks(body, function.tables)
    live = _live_out(body, blocks, follow)
    plan.loops = any(b <= a for a, targets in enumerate(follow) for b in targets)
    for number, block in enumerate(blocks):
        products, sums, names = _products(body, block, live[number])
        _choose(body, products, sums, plan)
        if _returns_to(number, follow):
            plan.carried += _carried(body, blocks, follow, number, products, names)
    return plan


_BRANCHES = ("bra", "brx", "ret", "exit")
# What a guard turns into a branch around, where others are merely predicated.
_BRANCHING_WHEN_GUARDED = ("ld", "ldu", "st", "atom", "red", "shfl", "vote", "match", "redux", "elect", "bar",
                           "barrier", "trap")  # fmt: skip


def _ends_block(ins: Instruction) -> bool:
    """Whether ptxas's basic block ends here.

    At branches, calls and fences; at what expands to code with branches (divisions, reciprocals and roots
    with a rounding mode, integer divisions but those of u32); and at guarded accesses.
    """
    if ins.base in (*_BRANCHES, "call", "membar", "fence"):
        return True
    if ins.base in ("div", "rcp", "sqrt") and any(p in _ROUNDED for p in ins.parts):
        return True
    if ins.base in ("div", "rem") and ins.parts[-1] in ("u16", "s16", "s32", "u64", "s64"):
        return True
    return ins.guard is not None and ins.base in _BRANCHING_WHEN_GUARDED


def _blocks(
    body: tuple[Statement, ...], tables: dict[str, tuple[str, ...]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Basic blocks as ptxas sees them (positions in the body), and the blocks that may follow each.

    Labels that nobody branches to, and jumps to a block that nobody else reaches, do not part blocks.
    """
    pieces: list[list[int]] = [[]]
    label_piece: dict[str, int] = {}
    ends: dict[int, Instruction] = {}
    for at, statement in enumerate(body):
        if isinstance(statement, Label):
            if pieces[-1]:
                pieces.append([])
            label_piece[statement.name] = len(pieces) - 1
            continue
        pieces[-1].append(at)
        if _ends_block(statement):
            ends[len(pieces) - 1] = statement
            pieces.append([])
    follow: list[list[int]] = []
    for number in range(len(pieces)):
        end = ends.get(number)
        following = [number + 1] if number + 1 < len(pieces) else []
        if end is None or end.base not in _BRANCHES:
            follow.append(following)
        elif end.base == "bra":
            target = end.operands[0]
            jump = [label_piece[target.name]] if isinstance(target, Sym) else []
            follow.append(jump + (following if end.guard else []))
        elif end.base == "brx":
            table = end.operands[1]
            labels = tables[table.name] if isinstance(table, Sym) else ()
            follow.append([*(label_piece[name] for name in labels), *(following if end.guard else [])])
        else:
            follow.append(following if end.guard else [])
    return _joined(pieces, follow, ends)


def _joined(
    pieces: list[list[int]], follow: list[list[int]], ends: dict[int, Instruction]
) -> tuple[list[list[int]], list[list[int]]]:
    reached = [0] * len(pieces)
    seen = {0}
    stack = [0]
    while stack:
        here = stack.pop()
        for target in follow[here]:
            reached[target] += 1
            if target not in seen:
                seen.add(target)
                stack.append(target)
    owner = list(range(len(pieces)))
    blocks: list[list[int]] = []
    after: list[list[int]] = []
    index: dict[int, int] = {}
    for number in range(len(pieces)):
        if number not in seen or owner[number] != number:
            continue
        members, last = list(pieces[number]), number
        while len(follow[last]) == 1 and reached[follow[last][0]] == 1 and follow[last][0] != number:
            end = ends.get(last)
            if end is not None and (end.base != "bra" or end.guard is not None):
                break
            last = follow[last][0]
            owner[last] = number
            members += pieces[last]
        index[number] = len(blocks)
        blocks.append(members)
        after.append(follow[last])
    for number, head in enumerate(owner):
        if number in seen and head in index:
            index[number] = index[head]
    return blocks, [[index[t] for t in targets if t in index] for targets in after]


def _instructions(body: tuple[Statement, ...], block: list[int]) -> Iterator[tuple[int, Instruction]]:
    for at in block:
        statement = body[at]
        if isinstance(statement, Instruction):
            yield at, statement


def _live_out(
    body: tuple[Statement, ...], blocks: list[list[int]], follow: list[list[int]]
) -> list[set[str]]:
    live_in: list[set[str]] = [set() for _ in blocks]
    live_out: list[set[str]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            out = set().union(*(live_in[t] for t in follow[number])) if follow[number] else set()
            live = set(out)
            for _, ins in reversed(list(_instructions(body, blocks[number]))):
                if ins.guard is None:
                    live -= set(written(ins))
                live |= set(read(ins))
            if live != live_in[number] or out != live_out[number]:
                live_in[number], live_out[number] = live, out
                changed = True
    return live_out


def _products(
    body: tuple[Statement, ...], block: list[int], live_out: set[str]
) -> tuple[list[_Product], list[int], dict[str, tuple[_Product, bool]]]:
    """The block's bare products with their uses, its bare additions, and who holds products at its end.

    A value is followed through `mov` and `neg`; what a dead instruction uses does not count.
    """
    dead = _dead(body, block, live_out)
    held: dict[str, tuple[_Product, bool]] = {}  # register → product, negated
    products: list[_Product] = []
    sums: list[int] = []
    for at, ins in _instructions(body, block):
        if at in dead:
            continue
        kind = _kind(ins)
        carried: tuple[_Product, bool] | None = None
        if kind is not None and ins.base != "mul":
            sums.append(at)
            names = [o.name if isinstance(o, Reg) else "" for o in ins.operands[1:3]]
            for operand, name in enumerate(names, 1):
                if name not in held:
                    continue
                product, negated = held[name]
                if product.kind == kind and names[0] != names[1]:
                    product.uses.append((at, operand, negated))
                else:
                    product.other = True
            if ins.guard and ins.guard.register in held:
                held[ins.guard.register][0].other = True
        elif ins.guard is None and _passes(ins):
            source = ins.operands[1]
            if isinstance(source, Reg) and source.name in held:
                product, negated = held[source.name]
                carried = product, negated ^ (ins.base == "neg")
        else:
            for name in read(ins):
                if name in held:
                    held[name][0].other = True
        for name in written(ins):
            if ins.guard is not None and name in held:
                held[name][0].other = True
            held.pop(name, None)
        if kind is not None and ins.base == "mul" and ins.guard is None:
            product = _Product(at, kind)
            products.append(product)
            carried = product, False
        if carried is not None and isinstance(ins.operands[0], Reg):
            held[ins.operands[0].name] = carried
    for name in live_out:
        if name in held:
            held[name][0].other = True
    return products, sums, held


def _passes(ins: Instruction) -> bool:
    """Instructions through which ptxas sees a product: moves and negations."""
    if ins.base == "mov":
        return isinstance(ins.operands[0], Reg)
    return ins.base == "neg" and ins.parts[-1] in _TYPES


def _dead(body: tuple[Statement, ...], block: list[int], live_out: set[str]) -> set[int]:
    """Positions whose results nobody reads."""
    live = set(live_out)
    dead = set()
    for at, ins in reversed(list(_instructions(body, block))):
        names = written(ins)
        pure = bool(names) and ins.base not in ("ld", "ldu", "atom", "call") and not is_barrier(ins)
        pure = pure and "sync" not in ins.parts
        if pure and not live & set(names):
            dead.add(at)
            continue
        if ins.guard is None:
            live -= set(names)
        live |= set(read(ins))
    return dead


def _choose(body: tuple[Statement, ...], products: list[_Product], sums: list[int], plan: Plan) -> None:
    """The rule: single-use products first, then the others, additions in the order of the text."""
    taken: dict[int, Pair] = {}
    by_use = {(at, operand): (p, negated) for p in products for at, operand, negated in p.uses}

    def willing(product: _Product, *, single: bool) -> bool:
        if not product.free or (single and len(product.uses) != 1):
            return False
        # An addition that has taken another product has this one as its addend: a use that stays.
        return all(at not in taken or taken[at].product == product.at for at, _, _ in product.uses)

    for single in (True, False):
        for at in sums:
            if at in taken:
                continue
            choices = []
            for operand in (1, 2):
                found = by_use.get((at, operand))
                if found and willing(found[0], single=single):
                    choices.append((len(found[0].uses), operand, found))
            if choices:
                _, operand, (product, negated) = min(choices, key=lambda c: c[:2])
                taken[at] = Pair(product.at, at, operand, negated)
    plan.pairs += taken.values()


def _returns_to(number: int, follow: list[list[int]]) -> bool:
    """Whether a block lies on a loop."""
    seen: set[int] = set()
    stack = list(follow[number])
    while stack:
        here = stack.pop()
        if here == number:
            return True
        if here not in seen:
            seen.add(here)
            stack += follow[here]
    return False


def _carried(
    body: tuple[Statement, ...],
    blocks: list[list[int]],
    follow: list[list[int]],
    number: int,
    products: list[_Product],
    held: dict[str, tuple[_Product, bool]],
) -> list[int]:
    """Bare additions that a product of this block reaches around a loop, where unrolling may fuse them."""
    found: list[int] = []
    # A product with another use inside its block is never fused, however often the block is copied.
    stuck = {id(p) for p in products if _used_otherwise(body, blocks[number], p)}
    for name, (product, _) in held.items():
        if id(product) in stuck:
            continue
        seen: set[int] = set()
        stack = list(follow[number])
        while stack:
            here = stack.pop()
            if here in seen:
                continue
            seen.add(here)
            gone = False
            for at, ins in _instructions(body, blocks[here]):
                if name in read(ins):
                    kind = _kind(ins)
                    if ins.base in ("add", "sub") and kind == product.kind and at not in found:
                        found.append(at)
                if ins.guard is None and name in written(ins):
                    gone = True
                    break
            if not gone:
                stack += follow[here]
    return found


def _used_otherwise(body: tuple[Statement, ...], block: list[int], product: _Product) -> bool:
    """Whether something in the block other than an addition uses the product."""
    names: set[str] = set()
    for at, ins in _instructions(body, block):
        if at == product.at and isinstance(ins.operands[0], Reg):
            names = {ins.operands[0].name}
            continue
        used = names & set(read(ins))
        if used and not (_passes(ins) or (ins.base in ("add", "sub") and _kind(ins) == product.kind)):
            return True
        if used and _passes(ins) and isinstance(ins.operands[0], Reg):
            names.add(ins.operands[0].name)
            continue
        names -= set(written(ins))
    return False


# --- What this build fused ---------------------------------------------------------------------


def _decide(
    entry: str,
    bodies: list[Function],
    plans: dict[str, Plan],
    counts: tuple[FunctionCounts, ...] | None,
) -> bool:
    """Whether the rule's pairs are fused in the machine code of an entry; False where nothing is."""
    sass = next((dict(c.sass) for c in counts or () if c.function == entry), None)
    if counts is None or sass is None:
        raise UnsupportedError(
            f"{entry} has bare multiplications that feed additions, and its machine code is not known, so "
            "that nobody can say which of them ptxas fused",
            remedy="install the disassembler: pip install 'reprodb[sass]'",
        )
    present = {t for t in _SASS if any(_has(f, plans[f.name], t) for f in bodies)}
    fits = {
        fused: all(_fits(t, sass, bodies, plans, fused=fused) for t in present) for fused in (True, False)
    }
    carried = any(plans[f.name].carried for f in bodies)
    if fits[False] and (carried or not fits[True]):
        return False
    if fits[True] and not carried:
        return True
    ptx = ", ".join(f"{n} {name}" for name, n in _mix(bodies).items() if n)
    code = ", ".join(f"{n} {o}" for o, n in sorted(sass.items()) if o.split(".")[0] in _names())
    where = (
        "; a product reaches an addition around a loop, where unrolling fuses some of them" if carried else ""
    )
    raise UnsupportedError(
        f"{entry}: the PTX has {ptx}, the SASS {code or 'none of them'}: which multiplications were fused "
        f"into additions cannot be told{where}",
        remedy="execute this kernel on a GPU, or build it with -fmad=false",
    )


def _names() -> set[str]:
    return {name for names in _SASS.values() for name in names}


def _mix(bodies: list[Function]) -> dict[str, int]:
    """How many of each floating-point operation the PTX has."""
    found: dict[str, int] = {}
    for function in bodies:
        for ins in function.instructions:
            if ins.base in ("mul", "add", "sub", "fma") and ins.parts[-1] in _TYPES:
                found[ins.opcode] = found.get(ins.opcode, 0) + 1
    return dict(sorted(found.items()))


def _has(function: Function, plan: Plan, ptx_type: str) -> bool:
    body = function.body or ()
    places = [*(p.sum for p in plan.pairs), *plan.carried]
    return any(isinstance(s := body[at], Instruction) and s.parts[-1] == ptx_type for at in places)


def _fits(
    ptx_type: str, sass: dict[str, int], bodies: list[Function], plans: dict[str, Plan], *, fused: bool
) -> bool:
    """Whether the counts of one type can come from this reading of the PTX.

    Without loops, and without instructions that expand to fused ones, the fused operations are as many as
    the reading has; with them only whether there are any is comparable.
    """
    found = sum(n for name, n in sass.items() if name.split(".")[0] == _SASS[ptx_type][0])
    pairs = own = 0
    loops = expanding = False
    for function in bodies:
        plan = plans[function.name]
        body = function.body or ()
        loops |= plan.loops
        for pair in plan.pairs:
            statement = body[pair.product]
            if isinstance(statement, Instruction) and statement.parts[-1] == ptx_type:
                pairs += not any(_is_unit(o) for o in statement.operands[1:])
        for ins in function.instructions:
            own += ins.base in ("fma", "mad") and ins.parts[-1] == ptx_type
            expanding |= ins.base in _EXPANDING
    expected = own + (pairs if fused else 0)
    if expanding:
        return found >= expected or (loops and (found > 0) == (expected > 0))
    if loops or len(bodies) > 1:
        return (found > 0) == (expected > 0)
    return found == expected


def _is_unit(operand: object) -> bool:
    """Whether a factor is 1 or -1: the product with it is exact, and the assembler adds plainly."""
    return isinstance(operand, Float) and operand.bits & ~(1 << (operand.width - 1)) in (
        0x3F800000,
        0x3FF0000000000000,
    )


# --- Fusing ------------------------------------------------------------------------------------


def _fuse(function: Function, plan: Plan) -> Function:
    """The function with the plan's pairs as `fma.rn`; products keep copies of their operands for it."""
    by_sum = {pair.sum: pair for pair in plan.pairs}
    kept = {pair.product for pair in plan.pairs}
    registers = dict(function.registers)
    body: list[Statement] = []
    for at, statement in enumerate(function.body or ()):
        if at in kept and isinstance(statement, Instruction):
            body += _copies(statement, at, registers)
            body.append(statement)  # dead where every use is fused
        elif at in by_sum and isinstance(statement, Instruction):
            body += _fused(statement, by_sum[at], registers)
        else:
            body.append(statement)
    return replace(function, body=tuple(body), registers=registers)


_WIDTH = {"f64": "b64", "f16": "b16", "bf16": "b16"}


def _copies(product: Instruction, at: int, registers: dict[str, str]) -> Iterator[Instruction]:
    """Copies of a product's operands, which may change before the addition."""
    kind = _WIDTH.get(product.parts[-1], "b32")
    for place in (1, 2):
        name = f"%product{at}_{place}"
        registers[name] = kind
        operand = product.operands[place]
        yield replace(
            product, opcode=f"mov.{_move(product, operand)}", operands=(Reg(name), operand), guard=None
        )


def _move(product: Instruction, operand: object) -> str:
    """The type of a move: constants keep their floating type."""
    kind = product.parts[-1]
    return _WIDTH.get(kind, "b32") if isinstance(operand, Reg | Not) or kind not in ("f32", "f64") else kind


def _fused(ins: Instruction, pair: Pair, registers: dict[str, str]) -> Iterator[Instruction]:
    """`a·b ± c` in one instruction; signs by `neg`, which is exact."""
    kind = ins.parts[-1]
    flags = [p for p in ("ftz", "sat") if p in ins.parts]
    first, second = Reg(f"%product{pair.product}_1"), Reg(f"%product{pair.product}_2")
    addend = ins.operands[3 - pair.operand]
    subtracts = ins.base == "sub"
    negate_product = pair.negated ^ (subtracts and pair.operand == 2)
    negate_addend = subtracts and pair.operand == 1

    def negated(name: str, operand: object) -> Iterator[Instruction]:
        registers[name] = _WIDTH.get(kind, "b32")
        yield replace(ins, opcode=f"neg.{kind}", operands=(Reg(name), operand), guard=None)  # type: ignore[arg-type]

    if negate_product:
        yield from negated(f"%minus{pair.sum}", first)
        first = Reg(f"%minus{pair.sum}")
    if negate_addend:
        yield from negated(f"%addend{pair.sum}", addend)
        addend = Reg(f"%addend{pair.sum}")
    opcode = ".".join(("fma.rn", *flags, kind))
    yield replace(ins, opcode=opcode, operands=(ins.operands[0], first, second, addend))
