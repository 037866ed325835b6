"""The coordinates in which two recorded results differ, and what stands between with some exchanged. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

from reprodb.attribute import causes
from reprodb.domain import Buffer, Build, Case, Kernel, Pairs, Profile, Result, Stage, Toolchain
from reprodb.findings import Cause, Layer, State
from reprodb.toolchains.flags import HANDED_ON

# Parts that are exchanged whole. Flags and defines have a part each, named as they are written.
INPUT, SHAPE, SOURCE, TOOLCHAIN, ARCH = "input", "launch shape", "source", "toolchain", "architecture"
_EXTRA_ORDER = "order of the extra flags"
_ARROW = " → "

# The settings of a profile that are one flag each: flag → field.
_SWITCHES = {
    "-fmad": "fmad",
    "-use_fast_math": "fast_math",
    "-ftz": "ftz",
    "-prec-div": "prec_div",
    "-prec-sqrt": "prec_sqrt",
}
_HANDING_ON = {flag for flags in HANDED_ON.values() for flag in flags}


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One thing that can be exchanged by itself. `name` says what the candidate has: `-ftz=true`."""

    name: str
    cause: Cause
    change: str  # "-ftz unset → -ftz=true"
    parts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Side:
    """What was recorded of one side and can be set again. `sources` are paths and digests, as built."""

    kernel: Kernel  # with the one case at hand
    sources: Pairs
    profile: Profile
    toolchain: Toolchain
    arch: str

    @property
    def case(self) -> Case:
        return self.kernel.cases[0]


def side_of(result: Result, build: Build) -> Side:
    kernel = replace(result.kernel, cases=(result.case,))
    return Side(kernel, build.sources, build.profile, build.toolchain, build.arch)


# --- What differs ------------------------------------------------------------------------------


def differing(before: Result, after: Result, baseline: Side, candidate: Side) -> tuple[Coordinate, ...]:
    """What differs, in the order of the causes, each flag and define by itself.

    What cannot be told apart (another number of stages; a buffer whose size follows shape and input alike)
    becomes one coordinate.
    """
    layers = {Cause(layer.name): layer for layer in causes(before, after, None, None)}
    input_, shape, source = (layers[c] for c in (Cause.INPUT, Cause.LAUNCH_SHAPE, Cause.SOURCE))
    stages = len(baseline.kernel.stages), len(candidate.kernel.stages)
    ambiguous = _ambiguous_sizes(baseline, candidate)
    found = [
        *_whole(INPUT, Cause.INPUT, input_, _inputs_differ(baseline, candidate, input_)),
        *_whole(SHAPE, Cause.LAUNCH_SHAPE, shape, False),
        *_whole(SOURCE, Cause.SOURCE, source, _structure(baseline) != _structure(candidate)),
        *_flags(baseline, candidate),
    ]
    if baseline.toolchain.identity != candidate.toolchain.identity:
        found.append(_toolchain(baseline.toolchain, candidate.toolchain, layers[Cause.TOOLCHAIN]))
    if baseline.arch != candidate.arch:
        change = f"{baseline.arch}{_ARROW}{candidate.arch}"
        found.append(Coordinate(f"{ARCH} {candidate.arch}", Cause.ARCHITECTURE, change, frozenset({ARCH})))
    if stages[0] != stages[1]:
        found = _merged(found, {SHAPE, SOURCE})
    return tuple(_merged(found, {INPUT, SHAPE}) if ambiguous else found)


def _whole(part: str, cause: Cause, layer: Layer, more: bool) -> Iterator[Coordinate]:
    """A cause that is exchanged whole; `more` says that it differs although its layer does not show it."""
    if layer.state is State.DIFFERS or more:
        yield Coordinate(part, cause, layer.detail or "the manifest", frozenset({part}))


def _inputs_differ(baseline: Side, candidate: Side, layer: Layer) -> bool:
    """Other words for the same bytes are no difference; without digests the words decide."""
    a, b = baseline.case, candidate.case
    return a.n != b.n or (layer.state is State.UNKNOWN and a.inputs != b.inputs)


def _structure(side: Side) -> object:
    """What a manifest says of stages and buffers beside their sizes."""
    buffers = [replace(b, shape=(0,) * len(b.shape)) for b in side.case.buffers]
    return ([(s.entry, s.args) for s in side.kernel.stages], buffers)


def _toolchain(old: Toolchain, new: Toolchain, layer: Layer) -> Coordinate:
    name = f"{TOOLCHAIN} {new.label}" if old.label != new.label else "the toolchain's parts"
    return Coordinate(name, Cause.TOOLCHAIN, layer.detail, frozenset({TOOLCHAIN}))


def _merged(found: list[Coordinate], parts: set[str]) -> list[Coordinate]:
    """The coordinates with those of `parts` made one, in the place of the first."""
    whole = [c for c in found if c.parts & parts]
    if len(whole) < 2:
        return found
    one = Coordinate(
        " with ".join(c.name for c in whole),
        whole[0].cause,
        "; ".join(c.change for c in whole),
        frozenset().union(*(c.parts for c in whole)),
    )
    return [one if c is whole[0] else c for c in found if c is whole[0] or c not in whole]


# --- Flags and defines -------------------------------------------------------------------------


def _flags(baseline: Side, candidate: Side) -> Iterator[Coordinate]:
    old, new = baseline.profile, candidate.profile
    for flag, field in _SWITCHES.items():
        a, b = (_switch(flag, getattr(p, field)) for p in (old, new))
        if a != b:
            yield Coordinate(b, Cause.FLAGS, f"{a}{_ARROW}{b}", frozenset({flag}))
    before, after = _units(old.extra), _units(new.extra)
    for key in dict.fromkeys((*before, *after)):
        a, b = (" ".join(units.get(key, ())) for units in (before, after))
        if a != b:
            change = f"{a}{_ARROW}{b}" if a and b else f"with {b}" if b else f"without {a}"
            yield Coordinate(b or change, Cause.FLAGS, change, frozenset({f"extra {key}"}))
    if _extra(old, new, frozenset(f"extra {key}" for key in (*before, *after))) != new.extra:
        change = f"{' '.join(old.extra)}{_ARROW}{' '.join(new.extra)}"
        yield Coordinate(_EXTRA_ORDER, Cause.FLAGS, change, frozenset({_EXTRA_ORDER}))
    shaping = _shaping(baseline, candidate)
    olds, news = dict(baseline.kernel.defines), dict(candidate.kernel.defines)
    for name in dict.fromkeys((*olds, *news)):
        if name not in shaping and olds.get(name) != news.get(name):
            a, b = (_define(name, values) for values in (olds, news))
            yield Coordinate(b, Cause.FLAGS, f"{a}{_ARROW}{b}", frozenset({f"-D{name}"}))


def _switch(flag: str, value: bool | None) -> str:
    return f"{flag} unset" if value is None else f"{flag}={'true' if value else 'false'}"


def _define(name: str, values: dict[str, str]) -> str:
    return f"-D{name}={values[name]}" if name in values else f"-D{name} unset"


def _units(extra: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Extra flags by what they set: `-maxrregcount=64` under `-maxrregcount`, a handed-on pair as one."""
    found: dict[str, tuple[str, ...]] = {}
    items = iter(extra)
    for item in items:
        unit = (item, next(items, "")) if item in _HANDING_ON else (item,)
        handed, _, inner = unit[0].partition("=")
        words = [handed, _setting(inner)] if handed in _HANDING_ON else [_setting(w) for w in unit]
        if len(unit) == 2:
            words = [unit[0], _setting(unit[1])]
        key = " ".join(words)
        found[key] = (*found.get(key, ()), *unit)
    return found


def _setting(flag: str) -> str:
    """What a flag sets: `-O3` sets `-O`, `-maxrregcount=64` sets `-maxrregcount`."""
    return re.sub(r"^(-O)\d$", r"\1", flag.partition("=")[0])


def _extra(old: Profile, new: Profile, parts: frozenset[str]) -> tuple[str, ...]:
    before, after = _units(old.extra), _units(new.extra)
    order = (*after, *before) if _EXTRA_ORDER in parts else (*before, *after)
    flags: list[str] = []
    for key in dict.fromkeys(order):
        flags += (after if f"extra {key}" in parts else before).get(key, ())
    return tuple(flags)


# --- Between the two ---------------------------------------------------------------------------


def mix(baseline: Side, candidate: Side, parts: frozenset[str]) -> Side:
    """The baseline with parts of the candidate: none of them gives the baseline's build, all the candidate's.

    `parts` are those of chosen coordinates. The toolkit of the profile is pinned to the exact version.
    """

    def side(part: str) -> Side:
        return candidate if part in parts else baseline

    toolchain = side(TOOLCHAIN).toolchain
    switches = {field: getattr(side(flag).profile, field) for flag, field in _SWITCHES.items()}
    profile = replace(
        side(SOURCE).profile,
        compiler=toolchain.compiler,
        toolkit=f"=={toolchain.version}",
        extra=_extra(baseline.profile, candidate.profile, parts),
        **switches,
    )
    return Side(
        _kernel(baseline, candidate, parts), side(SOURCE).sources, profile, toolchain, side(ARCH).arch
    )


def _kernel(baseline: Side, candidate: Side, parts: frozenset[str]) -> Kernel:
    source, shape, data = (candidate if part in parts else baseline for part in (SOURCE, SHAPE, INPUT))
    case = replace(data.case, buffers=_buffers(baseline, candidate, parts))
    return replace(
        source.kernel,
        stages=_stages(source.kernel, shape.kernel),
        composition=shape.kernel.composition,
        defines=_defines(baseline, candidate, parts),
        cases=(case,),
    )


def _stages(source: Kernel, shape: Kernel) -> tuple[Stage, ...]:
    if len(source.stages) != len(shape.stages):
        return source.stages  # shape and source are one coordinate then
    return tuple(
        replace(a, grid=b.grid, per_batch=b.per_batch, block=b.block, shared=b.shared)
        for a, b in zip(source.stages, shape.stages, strict=True)
    )


def _shaping(baseline: Side, candidate: Side) -> frozenset[str]:
    return frozenset({*baseline.kernel.shape_defines, *candidate.kernel.shape_defines})


def _defines(baseline: Side, candidate: Side, parts: frozenset[str]) -> Pairs:
    """The defines in the order of the side whose source is taken, then what only the other side has."""
    sides = (candidate, baseline) if SOURCE in parts else (baseline, candidate)
    shaping = _shaping(baseline, candidate)
    names = dict.fromkeys(name for side in sides for name, _ in side.kernel.defines)
    found = []
    for name in names:
        part = SHAPE if name in shaping else f"-D{name}"
        values = dict((candidate if part in parts else baseline).kernel.defines)
        if name in values:
            found.append((name, values[name]))
    return tuple(found)


def _buffers(baseline: Side, candidate: Side, parts: frozenset[str]) -> tuple[Buffer, ...]:
    source, other = (candidate, baseline) if SOURCE in parts else (baseline, candidate)
    others = {b.name: b for b in other.case.buffers}
    found = []
    for buffer in source.case.buffers:
        partner = others.get(buffer.name)
        if partner is None or len(partner.shape) != len(buffer.shape):
            found.append(buffer)
            continue
        a, b = (buffer, partner) if source is baseline else (partner, buffer)
        dims = zip(a.shape, b.shape, strict=True)
        sizes = [y if _size_part(baseline, candidate, x, y) in parts else x for x, y in dims]
        found.append(replace(buffer, shape=tuple(sizes)))
    return tuple(found)


def _size_part(baseline: Side, candidate: Side, before: int, after: int) -> str:
    """Which part a dimension follows. The manifest's expression is not recorded; its values are."""
    counts = baseline.case.n, candidate.case.n
    if counts[0] != counts[1] and (before, after) == counts:
        return INPUT
    if _shape_differs(baseline, candidate):
        return SHAPE
    return INPUT if counts[0] != counts[1] else SOURCE


def _shape_differs(baseline: Side, candidate: Side) -> bool:
    shaping = _shaping(baseline, candidate)
    values = [
        {name: value for name, value in side.kernel.defines if name in shaping}
        for side in (baseline, candidate)
    ]
    launches = [
        (side.kernel.composition, [(s.dims, s.block, s.shared) for s in side.kernel.stages])
        for side in (baseline, candidate)
    ]
    return values[0] != values[1] or launches[0] != launches[1]


def _ambiguous_sizes(baseline: Side, candidate: Side) -> bool:
    """Whether a buffer's size may follow the shape or the input's count, and both differ."""
    counts = baseline.case.n, candidate.case.n
    if counts[0] == counts[1] or not _shape_differs(baseline, candidate):
        return False
    new = {b.name: b for b in candidate.case.buffers}
    return any(
        x != y and (x, y) != counts
        for buffer in baseline.case.buffers
        if buffer.name in new
        for x, y in zip_longest(buffer.shape, new[buffer.name].shape)
    )
