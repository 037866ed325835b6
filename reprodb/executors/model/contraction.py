"""What ptxas fuses behind the PTX's back: bare multiplications that feed bare additions.

PTX lets a `mul` and an `add` or `sub` without a rounding modifier become one `fma`. The compiler's front end
has fused most by itself; ptxas fuses more, by a rule that it does not state. The rule here was read off
ptxas 12.4 and 13.0 (docs/model.md tells how it was tried) and is checked against the opcode counts of the
SASS; where they contradict it the kernel is refused.

Within a stretch, a product is fused into all its uses or into none: every use must be an addition of the same
type and `.ftz`, directly or through copies and negations, and none may be `x + x`. Where both operands of an
addition are products, the one with fewer uses is fused, the first of two equals; the other is then needed
and is not fused further. A product with several uses is not fused at all where one use adds another product
that is used nowhere else.

An f32 product whose only use is a multiplication by 2, 4, 8 or their reciprocals is scaled before it is
rounded (`FMUL.M2` … `FMUL.D8`): one rounding for both, as an H200 measured it.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from reprodb.domain import FunctionCounts
from reprodb.errors import UnsupportedError
from reprodb.executors.model.ptx import (
    Float,
    Function,
    Instruction,
    Label,
    Module,
    Operand,
    Reg,
    Statement,
    Sym,
)
from reprodb.executors.model.stretches import Stretches

_TYPE = r"(?P<type>f32|f64|f16|bf16|f16x2|bf16x2)"
_PRODUCT = re.compile(rf"mul(?P<ftz>\.ftz)?\.{_TYPE}")
_SUM = re.compile(rf"(?P<op>add|sub)(?P<ftz>\.ftz)?(?P<sat>\.sat)?\.{_TYPE}")
_SCALING = re.compile(r"mul(\.rn)?(?P<ftz>\.ftz)?(?P<sat>\.sat)?\.f32")
_SCALES = {
    0x40000000: 2.0,
    0x40800000: 4.0,
    0x41000000: 8.0,
    0x3F000000: 0.5,
    0x3E800000: 0.25,
    0x3E000000: 0.125,
}
_COPY = re.compile(r"mov\.(b16|b32|b64|f16|f32|f64)")
ONE = Float(0x3F800000, 32)
_ONES = {Float(bits | sign, width) for bits, width in ((0x3F800000, 32), (0x3FF0000000000000, 64))
         for sign in (0, 1 << (width - 1))}  # fmt: skip

# SASS opcodes of a type: multiplication, fused multiplication and addition.
_SASS = {"f32": ("FMUL", "FFMA"), "f64": ("DMUL", "DFMA")}
_ARITHMETIC = frozenset({"FMUL", "FFMA", "FADD", "DMUL", "DFMA", "DADD"})
_EXPANDED = ("div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "tex")


@dataclass(frozen=True, slots=True)
class _Reach:
    """A product's way into an addition: its operand there (1 or 2), negated or not on the way."""

    at: int
    operand: int
    negated: bool


@dataclass(frozen=True, slots=True)
class _Fused:
    """An addition, and the product that goes into it as this operand."""

    product: int
    operand: int
    negated: bool


@dataclass
class _Plan:
    """What is fused in a function: by the index of the addition. `products` are all bare multiplications.

    `scaled` has the product that a multiplication by a power of two scales, and the factor, by its index.
    """

    function: Function
    products: dict[int, list[_Reach] | None] = field(default_factory=dict)
    fused: dict[int, _Fused] = field(default_factory=dict)
    scaled: dict[int, tuple[int, float]] = field(default_factory=dict)
    # Products that additions of other stretches use, with these, and those that need one register alone.
    astray: dict[int, list[int]] = field(default_factory=dict)
    light: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    loops: bool = False
    extra: set[str] = field(default_factory=set)  # SASS opcodes that ptxas may make of other instructions

    @property
    def vanished(self) -> set[int]:
        """The instructions that are left nowhere."""
        gone = {product for product, _ in self.scaled.values()} | self.dead
        into: dict[int, set[int]] = {}
        for at, fused in self.fused.items():
            into.setdefault(fused.product, set()).add(at)
        for product, reaches in self.products.items():
            if reaches and {r.at for r in reaches} == into.get(product):
                gone.add(product)
        return gone


def reconcile(
    module: Module,
    counts: tuple[FunctionCounts, ...] | None,
    options: tuple[str, ...] = (),
    entries: tuple[str, ...] | None = None,
) -> tuple[Module, tuple[str, ...]]:
    """The module with its additions fused as ptxas has fused them, and a note for each function concerned.

    `counts` are the opcode counts by entry, None where the machine code could not be read. Only functions
    that `entries` reach are looked at (all by default). Raises UnsupportedError where the rule does not say
    what becomes of a product, or the counts contradict it.
    """
    if _forbidden(options):
        return module, ()
    named = [f.name for f in module.functions if f.entry and f.body is not None]
    plans: dict[str, _Plan] = {}
    for entry in named if entries is None else entries:
        reached = list(_reachable(module, entry))
        mine = [plans.get(f.name) or _plan(f) for f in reached]
        if _as_the_rule_says(entry, mine, counts):
            plans.update((plan.function.name, plan) for plan in mine)
    changed = {name: plan for name, plan in plans.items() if plan.fused or plan.scaled}
    if not changed:
        return module, ()
    functions = tuple(
        _rewritten(changed[f.name]) if f.name in changed and f.body is not None else f
        for f in module.functions
    )
    return replace(module, functions=functions), tuple(map(_note, changed.values()))


def _forbidden(options: tuple[str, ...]) -> bool:
    """Whether flags keep ptxas from fusing: `-fmad=false`, or device debugging."""
    given = re.findall(r"--?fmad[= ](\w+)", " ".join(options))
    debug = any(o in ("-G", "--device-debug") for o in options)
    return debug or bool(given and given[-1] == "false")


def _reachable(module: Module, entry: str) -> Iterator[Function]:
    """The function of that name, then those that it calls, each once."""
    names, at = [entry], 0
    while at < len(names):
        function = module.function(names[at])
        at += 1
        if function is None:
            continue
        yield function
        calls = [_names(ins) for ins in function.instructions if ins.base == "call"]
        called = {name for names in calls for name in names if module.function(name) is not None}
        names += sorted(called - set(names))


def _note(plan: _Plan) -> str:
    return f"contracted as the SASS shows: {len(plan.fused) + len(plan.scaled)} in {plan.function.name}"


# --- The rule ----------------------------------------------------------------------------------


def _plan(function: Function) -> _Plan:
    stretches = Stretches(function)
    plan = _Plan(function, dead=stretches.dead, loops=_loops(function))
    code = stretches.instructions
    for at, ins in enumerate(code):
        if ins.guard is not None or at in stretches.dead or not _PRODUCT.fullmatch(ins.opcode):
            continue
        if any(stretches.constant(o) in _ONES for o in ins.operands[1:]):
            plan.extra.update(products for products, _ in _SASS.values())  # ptxas may leave it out
            continue
        plan.products[at] = _reaches(stretches, at, at, negated=False)
        elsewhere = _elsewhere(stretches, at) if plan.products[at] is None else []
        if elsewhere:
            plan.astray[at] = elsewhere
            if len({o for o in ins.operands[1:] if stretches.constant(o) is None}) < 2:
                plan.light.add(at)
    plan.extra.update(name for ins in code for name in _expansion(ins))
    taken: dict[int, dict[int, tuple[int, bool]]] = {}  # addition → operand → product, negated
    for product, reaches in plan.products.items():
        for reach in reaches or ():
            taken.setdefault(reach.at, {})[reach.operand] = (product, reach.negated)
    added: set[int] = set()
    for at in sorted(taken):
        choices = []
        for operand, (product, negated) in sorted(taken[at].items()):
            if product not in added and _fusable(plan, taken, product):
                uses = len(plan.products[product] or ())
                choices.append((uses, operand, _Fused(product, operand, negated)))
        if not choices:
            continue
        fused = min(choices)[2]
        _check_between(stretches, fused.product, at)
        plan.fused[at] = fused
        added.update(product for product, _ in taken[at].values() if product != fused.product)
    for product, elsewhere in plan.astray.items():
        meets = [at for at in elsewhere if at in plan.fused]
        if meets and (plan.loops or product in plan.light):
            raise _refused(code[meets[0]], "which of two products ptxas fuses into it is not known")
    _scale(plan, stretches)
    return plan


def _scale(plan: _Plan, stretches: Stretches) -> None:
    code = stretches.instructions
    gone = plan.vanished
    for at, ins in enumerate(code):
        if at in gone or at in stretches.dead or not _SCALING.fullmatch(ins.opcode):
            continue
        for factor, other in ((ins.operands[2], ins.operands[1]), (ins.operands[1], ins.operands[2])):
            constant = stretches.constant(factor)
            scale = _SCALES.get(constant.bits) if constant is not None else None
            product = stretches.only(other) if isinstance(other, Reg) else None
            if scale is None or product is None or product in plan.scaled:
                continue
            if not (_PRODUCT.fullmatch(code[product].opcode) and code[product].opcode.endswith(".f32")):
                continue
            if stretches.number[product] != stretches.number[at] and _loops(plan.function):
                raise _refused(ins, "whether ptxas scales a product of another basic block is not known")
            plan.scaled[at] = (product, scale)
            break


def _elsewhere(stretches: Stretches, product: int) -> list[int]:
    """The additions in other stretches that may use a product: moved or unrolled code can join them."""
    code = stretches.instructions
    kind = _PRODUCT.fullmatch(code[product].opcode)
    names, at = [o.name for o in code[product].operands[:1] if isinstance(o, Reg)], 0
    found: set[int] = set()
    if kind is None or all(map(stretches.local, names)):
        return []
    while at < len(names):
        for number in stretches.readers(names[at]):
            ins = code[number]
            if Reg(names[at]) not in ins.operands[1:]:
                continue
            total = _SUM.fullmatch(ins.opcode)
            if total and (total["type"], total["ftz"]) == (kind["type"], kind["ftz"]):
                found.add(number)
            to = ins.operands[0]
            if ins.base in ("mov", "neg", "selp") and isinstance(to, Reg) and to.name not in names:
                names.append(to.name)
        at += 1
    return sorted(found)


def _reaches(stretches: Stretches, product: int, at: int, *, negated: bool) -> list[_Reach] | None:
    """Where a product is added, through copies and negations; None where it is used in another way too."""
    code = stretches.instructions
    kind = _PRODUCT.fullmatch(code[product].opcode)
    uses = stretches.uses(at)
    if kind is None or uses is None:
        return None
    found: list[_Reach] = []
    for use in uses:
        ins = code[use.at]
        total = _SUM.fullmatch(ins.opcode)
        if total is not None and (total["type"], total["ftz"]) == (kind["type"], kind["ftz"]):
            minus = total["op"] == "sub" and use.operand == 2
            found.append(_Reach(use.at, use.operand, negated != minus))
            continue
        negates = ins.opcode in (f"neg.{kind['type']}", f"neg.ftz.{kind['type']}")
        if ins.guard is not None or not (negates or _COPY.fullmatch(ins.opcode)):
            return None
        if ".ftz" in ins.opcode:
            _check_flushed_negation(stretches, use.at, alone=len(uses) == 1)
        further = _reaches(stretches, product, use.at, negated=negated != negates)
        if further is None:
            return None
        found += further
    return found


def _check_flushed_negation(stretches: Stretches, at: int, *, alone: bool) -> None:
    """Refuses a `neg.ftz` of which ptxas may make an operation of its own, where that decides on others.

    It is part of what it goes into in additions, but not as the right side of a subtraction, and in products.
    """
    code = stretches.instructions
    uses = stretches.uses(at)
    if uses is not None and all(
        code[u.at].base in ("add", "fma", "mul") or (code[u.at].base == "sub" and u.operand == 1)
        for u in uses
    ):
        return
    if not alone or uses is None or len(uses) > 1:
        raise _refused(code[at], "a product that neg.ftz negates may be fused in several ways")


def _fusable(plan: _Plan, taken: dict[int, dict[int, tuple[int, bool]]], product: int) -> bool:
    reaches = plan.products[product]
    if not reaches:
        return False
    if len({r.at for r in reaches}) < len(reaches):
        return False  # added to itself
    for reach in reaches:
        for other, _ in taken[reach.at].values():
            if other == product:
                continue
            if _same_product(plan, product, other):
                raise _refused(plan.function.instructions[reach.at], "two equal products meet")
            if reach.at not in plan.fused and len(reaches) > 1 and len(plan.products[other] or ()) == 1:
                return False
    return True


def _same_product(plan: _Plan, one: int, other: int) -> bool:
    code = plan.function.instructions
    return sorted(map(str, code[one].operands[1:])) == sorted(map(str, code[other].operands[1:]))


def _check_between(stretches: Stretches, product: int, at: int) -> None:
    between = [n for n in stretches.untried if product < n < at]
    if between:
        ins = stretches.instructions[between[0]]
        raise _refused(ins, "whether ptxas fuses a product across it is not known")


def _refused(ins: Instruction, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{ins.opcode} at {ins.where}: {why}",
        remedy="build with -fmad=false or write fmaf, or execute this kernel on a GPU",
    )


# --- The SASS has the last word ----------------------------------------------------------------


def _as_the_rule_says(entry: str, plans: list[_Plan], counts: tuple[FunctionCounts, ...] | None) -> bool:
    """Whether the SASS of an entry has what the plans leave; False where it shows that nothing was fused.

    Without branches backward, calls and expanded operations the counts must be equal. With them the SASS may
    have more of what there is, and still none of what there is not. Where a product could be fused with an
    addition elsewhere once a loop is unrolled, it must not have more.
    """
    kinds = [kind for kind in _SASS if any(_bare(plan, kind) for plan in plans)]
    halves = any(plan.fused for plan in plans)
    if not kinds and not halves:
        return True
    sass = Counter(dict(next((c.sass for c in counts or () if c.function == entry), ())))
    if not sass:
        if not any(plan.fused or plan.scaled or plan.astray for plan in plans):
            return True
        raise UnsupportedError(
            f"{entry} has bare multiplications that feed additions, and its machine code is not known: which "
            "of them ptxas fused cannot be told",
            remedy="install the disassembler: pip install 'reprodb[sass]'",
        )
    found: Counter[str] = Counter()
    for name, count in sass.items():
        found[name.split(".", 1)[0]] += count
    if not any(_contradicts(kind, plans, found) for kind in kinds):
        return True
    bare = [replace(plan, fused={}, scaled={}) for plan in plans]
    loose = len(plans) > 1 or any(plan.loops or plan.extra for plan in plans)
    if not loose and not any(_contradicts(kind, bare, found) for kind in kinds):
        return False
    ptx = ", ".join(f"{n} {name}" for name, n in sorted(_mix(plans).items()))
    code = ", ".join(
        f"{n} {name}" for name, n in sorted(sass.items()) if name.split(".", 1)[0] in _ARITHMETIC
    )
    carried = any(plan.loops and plan.astray for plan in plans)
    raise UnsupportedError(
        f"{entry}: the PTX has {ptx}, the SASS {code or 'none of them'}: which multiplications were fused "
        "into additions cannot be told"
        + ("; a product reaches an addition around a loop, where unrolling may fuse them" if carried else ""),
        remedy="execute this kernel on a GPU, or build it with -fmad=false",
    )


def _mix(plans: list[_Plan]) -> Counter[str]:
    """How many of each floating-point operation the PTX has."""
    code = (ins for plan in plans for ins in plan.function.instructions)
    return Counter(
        ins.opcode
        for ins in code
        if ins.base in ("mul", "add", "sub", "fma") and ins.parts[-1].startswith(("f", "bf"))
    )


def _contradicts(kind: str, plans: list[_Plan], found: Counter[str]) -> bool:
    """Whether the SASS's counts cannot come from the plans."""
    repeated = len(plans) > 1 or any(plan.loops for plan in plans)
    extra = {name for plan in plans for name in plan.extra}
    unrolled = any(plan.loops and plan.astray for plan in plans)
    product, fused = _SASS[kind]
    expected = dict(zip((product, fused), _tally(plans, kind), strict=True))
    if any(plan.fused for plan in plans) and not any(plan.astray for plan in plans):
        # A negated product may be one fused with -0: the same bits.
        missing = max(0, expected[product] - found[product])
        as_fused = min(missing, sum(_negations(plan, kind) for plan in plans))
        expected[product] -= as_fused
        expected[fused] += as_fused
    for name, count in expected.items():
        surplus = name in extra or (repeated and count > 0)
        if unrolled and name == fused:
            surplus = False
        if found[name] < count or (found[name] > count and not surplus):
            return True
    # Counts that say little, and a product that may have moved to its addition.
    return fused in extra and any(plan.light for plan in plans)


def _bare(plan: _Plan, kind: str) -> bool:
    """Whether a function has products and sums of a type that may be fused."""
    code = plan.function.instructions
    sums = (_SUM.fullmatch(ins.opcode) for ins in code)
    return any(code[at].opcode.endswith("." + kind) for at in plan.products) and any(
        total is not None and total["type"] == kind for total in sums
    )


def _tally(plans: Iterable[_Plan], kind: str) -> tuple[int, int]:
    """Multiplications and fused ones of a type that the plans leave."""
    products = fused = 0
    for plan in plans:
        gone = plan.vanished
        for at, ins in enumerate(plan.function.instructions):
            if ins.parts[-1] != kind or at in plan.dead:
                continue
            products += ins.base == "mul" and at not in gone
            fused += ins.base in ("fma", "mad") or at in plan.fused
    return products, fused


def _names(ins: Instruction) -> set[str]:
    return {o.name for o in ins.operands if isinstance(o, Sym)}


def _negations(plan: _Plan, kind: str) -> int:
    """How many negations of products a function has."""
    code = plan.function.instructions
    products = {code[at].operands[0] for at in plan.products}
    negations = (ins for ins in code if ins.base == "neg" and ins.parts[-1] == kind)
    return sum(ins.operands[1] in products for ins in negations)


def _loops(function: Function) -> bool:
    """Whether some branch leads backward, or a table of branches may."""
    seen: set[str] = set()
    for statement in function.body or ():
        if isinstance(statement, Label):
            seen.add(statement.name)
        elif statement.base == "brx" or (statement.base == "bra" and seen.intersection(_names(statement))):
            return True
    return False


def _expansion(ins: Instruction) -> tuple[str, ...]:
    """The SASS multiplications that ptxas may make of an instruction that is none."""
    if ins.base == "cvt":
        return ("FMUL",) if "ftz" in ins.parts and "f64" in ins.parts else ()  # times 1, to flush
    if ins.base not in _EXPANDED or (ins.parts[-1][0] in "us" and ins.base != "tex"):
        return ()
    return (*_SASS["f32"], *_SASS["f64"]) if ins.parts[-1] == "f64" else _SASS["f32"]


# --- Rewriting ---------------------------------------------------------------------------------


def _rewritten(plan: _Plan) -> Function:
    """The function with its fused additions as `fma`, operands negated and kept where that is needed."""
    function = plan.function
    stretches = Stretches(function)
    code = stretches.instructions
    registers = dict(function.registers)
    before: dict[int, list[Instruction]] = {}
    instead: dict[int, Instruction] = {}

    def extra(at: int, opcode: str, source: Operand, kind: str, *more: Operand) -> Reg:
        """A new register, computed in front of instruction `at`."""
        name = f"%fused{len(registers)}"
        registers[name] = kind
        ins = code[at]
        before.setdefault(at, []).append(
            Instruction(opcode, (Reg(name), source, *more), ins.line, source=ins.source)
        )
        return Reg(name)

    for at, fused in plan.fused.items():
        ins = code[at]
        total = _SUM.fullmatch(ins.opcode)
        assert total is not None  # noqa: S101 -- plans hold additions alone
        kind = total["type"]
        bits = {"f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16"}.get(kind, "b32")
        held = {"f32": "f32", "f64": "f64"}.get(kind, bits)
        a, b = (
            extra(fused.product, f"mov.{bits}", o, held)
            if isinstance(o, Reg) and stretches.changed(o.name, fused.product, at)
            else o
            for o in code[fused.product].operands[1:]
        )
        c = ins.operands[3 - fused.operand]
        if fused.negated:
            a = extra(at, f"neg.{kind}", a, held)
        if total["op"] == "sub" and fused.operand == 1:
            c = extra(at, f"neg.{kind}", c, held)
        opcode = f"fma.rn{total['ftz'] or ''}{total['sat'] or ''}.{kind}"
        instead[at] = replace(ins, opcode=opcode, operands=(ins.operands[0], a, b, c))
    for at, (product, scale) in plan.scaled.items():
        ins = code[at]
        form = _SCALING.fullmatch(ins.opcode)
        assert form is not None  # noqa: S101 -- plans hold such multiplications alone
        ftz, sat = form["ftz"] or "", form["sat"] or ""
        a, b = (extra(product, f"cvt{ftz}.f64.f32", o, "f64") for o in code[product].operands[1:])
        exact = extra(product, "mul.rn.f64", a, "f64", b)
        factor = Float(int.from_bytes(struct.pack("<d", scale), "little"), 64)
        exact = extra(at, "mul.rn.f64", exact, "f64", factor)
        rounded = extra(at, f"cvt.rn{ftz}{sat}.f32.f64", exact, "f32")
        # Times one: a NaN becomes the one of f32.
        instead[at] = replace(
            ins, opcode="mul.rn.f32", operands=(ins.operands[0], rounded, Float(0x3F800000, 32))
        )
    return replace(function, registers=registers, body=tuple(_body(function, before, instead)))


def _body(
    function: Function, before: dict[int, list[Instruction]], instead: dict[int, Instruction]
) -> Iterator[Statement]:
    at = 0
    for statement in function.body or ():
        if isinstance(statement, Label):
            yield statement
            continue
        yield from before.get(at, ())
        yield instead.get(at, statement)
        at += 1
