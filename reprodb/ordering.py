"""The order of a sum, measured: pairs to ask about, what their answers say, and the tree behind them. Pure.

With M at element i, -M at element j and ones elsewhere, a sum in floating point loses every one that meets M
before -M does: the answer is n minus the number of leaves under the smallest subtree that holds both. M
absorbs every count that can occur, and counts themselves are exact, so the answer tells the shape of the tree
and nothing of rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reprodb.digest import content_key
from reprodb.domain import Fingerprint, Kernel

# M = 2^power for each accumulator: adding any count up to the limit leaves it as it is.
POWERS: Mapping[str, int] = MappingProxyType({"float32": 60, "float64": 100})
# Up to here every count is exact in the type.
COUNTED: Mapping[str, int] = MappingProxyType({"float32": 1 << 24, "float64": 1 << 53})
# Element types that hold 2^60 and 2^100.
PROBED = ("float32", "float64", "bfloat16")
# Pairs for each k. Random pairs see the top of a tree alone: they missed two of the three published edits.
PER_LEVEL = 4
# Up to so many elements every pair is asked, and the tree itself recovered.
SMALL = 64
# How often an arrival order is probed with each pair; a fixed order is the same every time.
ROUNDS = 2
# Pairs that an arrival order is asked about until two repetitions differ, which is all there is to know.
SAMPLE = 6

# Said where a tree was to be drawn and there is none.
UNDRAWN = "no tree of plain additions gives these answers, as where a sum is compensated"

Tree = int | tuple["Tree", ...]
Triple = tuple[int, int, int]


def pairs(n: int) -> tuple[tuple[int, int], ...]:
    """The pairs to ask about: all of them for a small n, else some (i, i XOR 2^k) for every k. i < j."""
    if n <= SMALL:
        return tuple((i, j) for i in range(n) for j in range(i + 1, n))
    found: dict[tuple[int, int], None] = {}
    for k in range((n - 1).bit_length()):
        room = n - (1 << k)
        level: dict[tuple[int, int], None] = {}
        for draw in range(16 * PER_LEVEL):  # few elements have a partner at the highest level
            i = int(content_key("reprodb.pairs/1", str(n), str(k), str(draw))[:16], 16) % room & ~(1 << k)
            level.setdefault((i, i | 1 << k))
            if len(level) == PER_LEVEL:
                break
        found.update(level)
    return tuple(found)


def sample(n: int) -> tuple[tuple[int, int], ...]:
    """A few of the pairs, spread over the distances, the middle ones first: those seldom meet in a block."""
    every = pairs(n)
    count = min(SAMPLE, len(every))
    places = [(2 * place + 1) * len(every) // (2 * count) for place in range(count)]
    return tuple(every[place] for place in sorted(places, key=lambda place: abs(2 * place - len(every))))


def misfit(kernel: Kernel) -> str:
    """Why the order of this kernel's one case cannot be measured; empty where it can."""
    probe, case = kernel.fingerprint, kernel.cases[0]
    if probe is None:
        return "the manifest asks for none"
    wanted = next(i for i in case.inputs if i.name == probe.input)
    output = next(b for b in case.buffers if b.name == probe.output)
    if kernel.accumulator not in POWERS:
        return f"accumulator {kernel.accumulator}: M must absorb every count in float32 or float64"
    if wanted.dtype not in PROBED:
        return f"input {wanted.name} is {wanted.dtype}, which does not hold 2^{POWERS[kernel.accumulator]}"
    if output.dtype not in COUNTED or output.fields:
        return f"output {output.name} is {output.dtype}: counts are read from float32 or float64"
    if not 0 <= probe.element < output.elements:
        return f"output {output.name} has no element {probe.element}"
    limit = min(COUNTED[kernel.accumulator], COUNTED[output.dtype])
    if not 2 <= wanted.n <= limit:
        return f"{wanted.n:,} elements: from 2 to {limit:,} the counts are exact"
    return ""


def fingerprint_of(n: int, rounds: tuple[tuple[Triple, ...], ...], launches: int = 0) -> Fingerprint:
    """The fingerprint of answers, one round a repetition; each triple is (i, j, leaves)."""
    digests = tuple(
        content_key("reprodb.order/1", str(n), *(f"{i} {j} {leaves}" for i, j, leaves in answers))
        for answers in rounds
    )
    first = rounds[0]
    whole = n <= SMALL and len(first) == n * (n - 1) // 2 and len(set(digests)) == 1
    tree = recover(n, first) if whole else None
    return Fingerprint(n, first, digests, written(tree) if tree is not None else "", launches=launches)


def undrawn(found: Fingerprint) -> bool:
    """Whether every pair of a fixed order was asked, and no tree of plain additions gives these answers."""
    every = len(found.pairs) == found.n * (found.n - 1) // 2
    return bool(found.rounds) and found.n <= SMALL and every and found.distinct == 1 and not found.tree


def recover(n: int, answers: tuple[Triple, ...]) -> Tree | None:
    """The tree that gives these answers for all pairs, children by their smallest leaf; None if none does."""
    leaves = {(i, j): count for i, j, count in answers}

    def build(inside: tuple[int, ...]) -> Tree | None:
        if len(inside) == 1:
            return inside[0]
        size, parts = len(inside), list[list[int]]()
        for leaf in inside:
            # Leaves that meet below this node are of one child.
            home = next((part for part in parts if leaves[part[0], leaf] < size), None)
            if home is None:
                parts.append([leaf])
            else:
                home.append(leaf)
        apart = [(a, b) for x, p in enumerate(parts) for q in parts[x + 1 :] for a in p for b in q]
        if len(parts) < 2 or any(leaves[min(pair), max(pair)] != size for pair in apart):
            return None
        children = tuple(build(tuple(part)) for part in parts)
        return None if None in children else children  # type: ignore[return-value]

    return build(tuple(range(n)))


# --- In words and drawings ---------------------------------------------------------------------


def written(tree: Tree) -> str:
    """`((0 1) (2 3))`: what is in brackets is added up first."""
    return str(tree) if isinstance(tree, int) else f"({' '.join(written(child) for child in tree)})"


def read(text: str) -> Tree:
    """The tree of what `written` made. Raises ValueError for any other text."""
    stack: list[list[Tree]] = [[]]
    for part in text.replace("(", " ( ").replace(")", " ) ").split():
        if part == "(":
            stack.append([])
        elif part == ")" and len(stack) > 1 and len(stack[-1]) > 1:
            done = tuple(stack.pop())
            stack[-1].append(done)
        elif part.isascii() and part.isdigit():
            stack[-1].append(int(part))
        else:
            raise ValueError(f"no tree: {text[:80]!r}")
    if len(stack) != 1 or len(stack[0]) != 1:
        raise ValueError(f"no tree: {text[:80]!r}")
    return stack[0][0]


def leaves_of(tree: Tree) -> tuple[int, ...]:
    return (tree,) if isinstance(tree, int) else tuple(leaf for child in tree for leaf in leaves_of(child))


def height(tree: Tree) -> int:
    """Additions on the longest way from an element to the result."""
    return 0 if isinstance(tree, int) else 1 + max(height(child) for child in tree)


def drawn(tree: Tree) -> str:
    """The tree as lines of text: a node says how many elements it sums; plain additions stand in one line."""

    def label(node: Tree) -> str:
        if isinstance(node, int):
            return f"x[{node}]"
        if all(isinstance(child, int) for child in node):
            return " + ".join(f"x[{child}]" for child in node)
        return f"sum of {len(leaves_of(node))}"

    def lines(node: Tree, lead: str) -> list[str]:
        if isinstance(node, int) or all(isinstance(child, int) for child in node):
            return []
        found: list[str] = []
        for place, child in enumerate(node):
            last = place == len(node) - 1
            found.append(f"{lead}{'└─ ' if last else '├─ '}{label(child)}")
            found += lines(child, lead + ("   " if last else "│  "))
        return found

    return "\n".join([label(tree), *lines(tree, "")])


_STEP, _MARGIN, _TALL = 16, 10, 320  # pixels: between leaves, around, at most between leaves and result


def svg(tree: Tree) -> str:
    """The tree as an inline SVG of numbers alone: elements below in the tree's order, the result on top."""
    order = leaves_of(tree)
    rise = min(22.0, _TALL / max(1, height(tree)))
    base = _MARGIN + rise * height(tree)
    at = {leaf: _MARGIN + _STEP * (place + 0.5) for place, leaf in enumerate(order)}
    paths: list[str] = []

    def draw(node: Tree) -> tuple[float, float]:
        if isinstance(node, int):
            return at[node], base
        ends = [draw(child) for child in node]
        x = (ends[0][0] + ends[-1][0]) / 2
        y = base - rise * height(node)
        paths.append(f"M{ends[0][0]:g} {y:g}H{ends[-1][0]:g}")
        paths.extend(f"M{cx:g} {cy:g}V{y:g}" for cx, cy in ends)
        return x, y

    x, y = draw(tree)
    paths.append(f"M{x:g} {y:g}V{_MARGIN / 2:g}")
    labels = "".join(
        f'<text x="{at[leaf]:g}" y="{base + 12:g}" text-anchor="middle">{leaf}</text>' for leaf in order
    )
    width, tall = 2 * _MARGIN + _STEP * len(order), base + 20
    return (
        f'<svg class="tree" role="img" aria-label="order of the sum of {len(order)} elements" '
        f'viewBox="0 0 {width:g} {tall:g}" width="{width:g}" height="{tall:g}" '
        f'font-size="9" font-family="monospace" fill="currentColor">'
        f'<path d="{"".join(paths)}" fill="none" stroke="currentColor"/>{labels}</svg>'
    )


def phrase(found: Fingerprint) -> str:
    """A fingerprint in a few words."""
    if found.digest is None:
        return f"not applicable: {found.reason}"
    count = len(found.pairs)
    asked = f"{count} pair{'s' * (count != 1)} of {found.n:,} elements"
    if found.launches or found.distinct > 1:
        return f"{_arrival(found)} ({asked})"
    return f"{found.digest[:16]} ({asked})"


def _arrival(found: Fingerprint) -> str:
    """What was seen of an order that may be another one every time."""
    launches = f"{found.launches} launch{'es' * (found.launches != 1)}"
    if found.distinct > 1:
        return "arrival order: differs between repetitions" + (f", seen in {launches}" * bool(found.launches))
    return f"arrival order: did not differ in {launches}"


def difference(before: Fingerprint | None, after: Fingerprint | None) -> tuple[bool | None, str]:
    """Whether two orders are the same, None where that is unknown; and what there is to say."""
    for side in (before, after):
        if side is not None and side.digest is None:
            return None, f"not applicable: {side.reason}"
    if before is None or after is None:
        return None, "probed on one side alone" if before or after else ""
    if before.n != after.n:
        return None, f"of {before.n:,} and of {after.n:,} elements"
    free = [side for side in (before, after) if side.launches or side.distinct > 1]
    if free:
        return None, _arrival(max(free, key=lambda side: side.distinct))
    moved = sum(a != b for a, b in zip(before.pairs, after.pairs, strict=True))
    return (False, f"{moved} of {len(after.pairs)} pairs meet elsewhere") if moved else (True, "")
