"""Carry out a trace: both builds again with line information, checked, recorded and aligned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reprodb.coordinates import side_of
from reprodb.deltas import output_delta
from reprodb.digest import sha256
from reprodb.domain import (
    DTYPE_BYTES,
    Artifact,
    Build,
    Lane,
    Output,
    Profile,
    Result,
    SourceFile,
    Stage,
    Status,
)
from reprodb.errors import ReprodbError, UsageError
from reprodb.executors.model.events import Kind, Step
from reprodb.experiments import Laboratory, Setting, bits_of, failure
from reprodb.explanation import judged_outputs
from reprodb.findings import Comparison, ElementDelta, OutputDelta
from reprodb.provenance import Moment
from reprodb.recovery import Compilers, Library, Missing, Texts
from reprodb.trace import Alignment, align

if TYPE_CHECKING:
    from reprodb.executors.model.recording import Recorder, Target, Watch

_LINE_INFO = "-lineinfo"
_HAVE_LINES = (_LINE_INFO, "--generate-line-info", "-G", "--device-debug")
_MOST_LEGS = 8  # blocks that are traced, one behind the other
_SHOWN = 8  # differing elements that an error names


@dataclass(frozen=True, slots=True)
class Means:
    """What a trace is carried out with. `limit` bounds the records of one block."""

    laboratory: Laboratory  # on the model, one repetition
    library: Library
    compilers: Compilers
    limit: int
    cache: Path | None = None
    say: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which value to trace; None takes the first differing witness, else result, and its first element."""

    buffer: str | None = None
    element: int | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """Who stored a value last: the block of a stage, its thread, and the instruction."""

    stage: Stage
    target: Target
    thread: int  # linear
    step: Step


@dataclass(frozen=True, slots=True)
class Cell:
    """What memory an address is: `partials[5]` is element 5 of the buffer of that name."""

    name: str
    index: int
    is_input: bool

    def __str__(self) -> str:
        return f"{self.name}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Leg:
    """One traced block on both sides, and what the value was that led to it."""

    cell: Cell
    wheres: tuple[Where, Where]
    alignment: Alignment
    names: tuple[dict[int, Cell], dict[int, Cell]]  # global addresses of the shown moments, a side each


@dataclass(frozen=True, slots=True)
class Trace:
    """What was found. `legs` go from the differing element back; the last one has the first difference.

    `same_ptx` says whether the line-info builds have the recorded builds' normalised PTX as well.
    """

    comparison: Comparison
    output: OutputDelta
    element: ElementDelta
    legs: tuple[Leg, ...]
    builds: tuple[Build, Build]  # with line information
    files: tuple[tuple[SourceFile, ...], tuple[SourceFile, ...]]
    reproduced: tuple[str, ...]  # outputs of which both sides' recorded bits were met
    same_ptx: tuple[bool, bool]
    notes: tuple[str, ...] = ()
    end: str = ""  # why the trace ends where it does, if not at an instruction

    @property
    def found(self) -> bool:
        return bool(self.legs) and self.legs[-1].alignment.difference is not None


def nothing(comparison: Comparison) -> str:
    """Why a row whose guaranteed bits do not differ is not traced. Raises ReprodbError without bits."""
    kernel = comparison.kernel
    before, after = comparison.baseline, comparison.candidate
    for which, side in (("baseline", before), ("candidate", after)):
        if side is not None and side.status is not Status.OK:
            raise ReprodbError(f"the {which} has no bits of {kernel}: {failure(side)}")
    if before is not None and after is not None and not judged_outputs(before, after):
        return f"nothing to trace: {kernel} guarantees none of its bits"
    return f"nothing differs: {kernel} has the same guaranteed bits on both sides"


def trace(comparison: Comparison, choice: Choice, means: Means) -> Trace:
    """Trace one row whose guaranteed bits differ. Raises ReprodbError where a side cannot be made again."""
    before, after = comparison.baseline, comparison.candidate
    if before is None or after is None or before.build is None or after.build is None:
        raise ReprodbError("it is not recorded how one of the sides was built")
    sides = ((before, before.build, "baseline"), (after, after.build, "candidate"))
    texts = [_texts(build, means) for _, build, _ in sides]
    settings = [
        _with_lines(result, build, text, means) for (result, build, _), text in zip(sides, texts, strict=True)
    ]
    means.say(f"building {comparison.kernel} with line information")
    made = means.laboratory.workshop.build(settings)
    artifacts = [_checked(artifact, *side) for artifact, side in zip(made, sides, strict=True)]
    outputs = judged_outputs(before, after)
    again = [experiment.result for experiment in means.laboratory.carry_out(settings, afresh=True)]
    for now, (recorded, _, which) in zip(again, sides, strict=True):
        _reproduced(now, recorded, which, outputs)
    output, element = _chosen(again[0], again[1], outputs, choice)
    recorders = [_recorder(a, s, means) for a, s in zip(artifacts, settings, strict=True)]
    walk = _Walk(recorders, again, means.say)
    legs, end = walk.follow(output.name, element)
    return Trace(
        comparison,
        output,
        element,
        legs,
        (artifacts[0].build, artifacts[1].build),
        (texts[0].files, texts[1].files),
        outputs,
        (_same_ptx(artifacts[0], before.build), _same_ptx(artifacts[1], after.build)),
        _notes(texts, recorders),
        end,
    )


# --- Both sides again --------------------------------------------------------------------------


def _texts(build: Build, means: Means) -> Texts:
    found = means.library.texts(build.sources)
    if isinstance(found, Missing):
        raise ReprodbError(f"the kernel cannot be built again: {found.why}", remedy=found.remedy)
    return found


def _with_lines(result: Result, build: Build, texts: Texts, means: Means) -> Setting:
    toolchain = means.compilers.like(build.toolchain)
    if isinstance(toolchain, Missing):
        raise ReprodbError(
            f"{result.profile} cannot be built with line information: {toolchain.why}",
            remedy=toolchain.remedy,
        )
    side = side_of(result, build)
    return Setting(side.kernel, texts.files, _line_profile(build.profile), toolchain, build.arch)


def _notes(texts: Sequence[Texts], recorders: Sequence[Recorder]) -> tuple[str, ...]:
    """Where sources came from, and what the model fused because ptxas did."""
    notes = [note for text in texts for note in text.notes]
    for which, recorder in zip(("baseline", "candidate"), recorders, strict=True):
        notes += [f"{which}: {note}" for note in recorder.program.notes]
    return tuple(dict.fromkeys(notes))


def _line_profile(profile: Profile) -> Profile:
    """The same flags and line information, which says where code comes from and leaves the code alone."""
    if any(flag in _HAVE_LINES for flag in profile.extra):
        return profile
    return replace(profile, extra=(*profile.extra, _LINE_INFO))


def _checked(artifact: Artifact | str, result: Result, build: Build, which: str) -> Artifact:
    """The artifact, if it is the recorded build but for its line information. Raises ReprodbError."""
    name = f"the {which}'s build ({result.profile}, {build.toolchain.label})"
    if isinstance(artifact, str):
        raise ReprodbError(f"{name} could not be made again with line information", detail=artifact)
    if artifact.build.status is not Status.OK:
        raise ReprodbError(f"{name} does not compile with line information", detail=artifact.build.log)
    recorded = build.code.sass if build.code else None
    now = artifact.build.code.sass if artifact.build.code else None
    remedy = "pip install 'reprodb[sass]', then record both sides again"
    if recorded is None:
        raise ReprodbError(f"{name} was recorded without SASS, so nothing can be checked", remedy=remedy)
    if now is None:
        raise ReprodbError(f"{name} cannot be disassembled here", remedy="pip install 'reprodb[sass]'")
    if recorded != now:
        raise ReprodbError(
            f"{name} has other SASS with line information: {now[:12]}, recorded was {recorded[:12]}",
            allowed="a build whose normalised SASS is the recorded one",
            remedy="record both sides again with the disassembler that is here",
        )
    return artifact


def _same_ptx(artifact: Artifact, build: Build) -> bool:
    now, recorded = artifact.build.code, build.code
    return now is not None and recorded is not None and now.ptx is not None and now.ptx == recorded.ptx


def _reproduced(now: Result, recorded: Result, which: str, outputs: Sequence[str]) -> None:
    """Raises ReprodbError unless the model has the recorded bits."""
    if now.status is not Status.OK:
        raise ReprodbError(f"the model cannot execute the {which}: {failure(now)}", detail=now.error)
    held = {o.name: o for o in recorded.outputs}
    for output in now.outputs:
        if output.name not in outputs:
            continue
        if held[output.name].distinct > 1:
            raise ReprodbError(
                f"the {which}'s {output.name} has {held[output.name].distinct} patterns; a trace needs one",
                remedy="compute-sanitizer may find why; a trace follows bits that stay the same",
            )
    if bits_of(now, outputs) != bits_of(recorded, outputs):
        names = [o.name for o in now.outputs if o.name in outputs and o.sha256 != held[o.name].sha256]
        lane = "a GPU measured" if recorded.lane is Lane.MEASURED else "were recorded"
        raise ReprodbError(
            f"the model has other bits of the {which}'s {', '.join(names)} than {lane}, "
            "so what it would show is not what happened",
            remedy="reprodb explain A B says what else differs",
        )


# --- Which element -----------------------------------------------------------------------------


def _chosen(
    before: Result, after: Result, outputs: Sequence[str], choice: Choice
) -> tuple[OutputDelta, ElementDelta]:
    """The buffer and the element to trace."""
    old = {o.name: o for o in before.outputs}
    new = {o.name: o for o in after.outputs}
    witnesses_first = sorted(outputs, key=lambda name: new[name] in after.results)
    deltas = {name: output_delta(old[name], new[name], _absent) for name in witnesses_first}
    moved = [name for name, delta in deltas.items() if delta.changed]
    if choice.buffer is not None and choice.buffer not in moved:
        known = "has the same bits" if choice.buffer in deltas else "is no recorded output with a guarantee"
        raise UsageError(f"{choice.buffer!r} of {after.kernel.name} {known}", allowed=", ".join(moved))
    # Buffers of another shape have no elements to choose from.
    comparable = [name for name in moved if deltas[name].first is not None]
    delta = deltas[choice.buffer or (comparable or moved)[0]]
    if delta.first is None:
        raise ReprodbError(f"{delta.name} cannot be compared element by element: {delta.note}")
    index = delta.first if choice.element is None else choice.element
    shown = ", ".join(map(str, delta.moved[:_SHOWN])) + (" …" if delta.changed > _SHOWN else "")
    if index >= new[delta.name].elements:
        raise UsageError(f"{delta.name} has {delta.of:,} elements and no [{index}]", allowed=shown)
    # Of very many differing elements `moved` lists the first ones: the bytes decide.
    element = _element(old[delta.name], new[delta.name], index)
    if element is None:
        raise UsageError(f"{delta.name}[{index}] has the same bits on both sides", allowed=shown)
    return delta, element


def _absent(sha256: str) -> bytes:
    raise LookupError(sha256)


def _element(before: Output, after: Output, index: int) -> ElementDelta | None:
    """One differing element; of a struct its first differing field. None where it does not differ."""
    from reprodb import bits
    from reprodb.deltas import pattern_delta

    step = bits.element_bytes(after.dtype, after.fields)
    a, b = (o.patterns[0].data or b"" for o in (before, after))
    here = slice(index * step, (index + 1) * step)
    found = pattern_delta(a[here], b[here], after).elements
    return replace(found[0], index=index) if found else None


# --- From block to block -------------------------------------------------------------------------


def _recorder(artifact: Artifact, setting: Setting, means: Means) -> Recorder:
    from reprodb.executors.model.recording import Recorder

    return Recorder(artifact, setting.kernel, setting.case, limit=means.limit, cache=means.cache)


class _Walk:
    """Goes from a differing value to the block that stored it, and on while that only loaded it."""

    def __init__(
        self, recorders: Sequence[Recorder], results: Sequence[Result], say: Callable[[str], None]
    ) -> None:
        self._recorders, self._results, self._say = recorders, results, say

    def follow(self, output: str, element: ElementDelta) -> tuple[tuple[Leg, ...], str]:
        """The legs, and why there is no further one where that is not an instruction's doing."""
        watches = [_watch(recorder, output, element) for recorder in self._recorders]
        cell = Cell(output, element.index, False)
        since: list[tuple[Target, int] | None] = [None, None]
        legs: list[Leg] = []
        seen = set()
        while True:
            wheres = [
                self._writer(n, watch, moment)
                for n, (watch, moment) in enumerate(zip(watches, since, strict=True))
            ]
            old, new = wheres
            if old is None or new is None:
                which = "either side" if old is new else "the baseline" if old is None else "the candidate"
                return tuple(legs), f"nothing stores to {cell} on {which}: it holds what it began with"
            if (old.target, new.target) in seen or len(legs) == _MOST_LEGS:
                return tuple(legs), f"{cell} was stored by a block that has been traced already"
            seen.add((old.target, new.target))
            leg = self._leg(cell, (old, new), watches)
            legs.append(leg)
            following = self._source(leg)
            if following is None:
                return tuple(legs), ""
            cell, watches = following
            if cell.is_input:
                return tuple(legs), f"the input differs: {cell}"
            difference = leg.alignment.difference
            if difference is not None:
                since = [
                    (old.target, difference.born.baseline.at),
                    (new.target, difference.born.candidate.at),
                ]

    def _writer(self, side: int, watch: Watch, before: tuple[Target, int] | None) -> Where | None:
        """Who stored last, before a moment of a recorded block where one is given."""
        recorder = self._recorders[side]
        log = recorder.record(before[0] if before else None, watch)
        stores = [s for s in log.stores if before is None or s.at < log.times[before[1]]]
        if not stores:
            return None
        last = stores[-1]
        stage = recorder.program.stages[last.target.stage][0]
        return Where(stage, last.target, last.thread, last.step)

    def _leg(self, cell: Cell, wheres: tuple[Where, Where], watches: Sequence[Watch]) -> Leg:
        where = wheres[1]
        self._say(f"{cell}: recording block {where.target.block} of {where.stage.entry} on both sides")
        recordings = []
        stored: list[int | None] = []
        for recorder, result, side, watch in zip(
            self._recorders, self._results, wheres, watches, strict=True
        ):
            log = recorder.record(side.target, watch)
            _undisturbed(result, log.raws)
            recordings.append(log.recording)
            times = log.times.tolist()
            own = [s.at for s in log.stores if (s.target, s.thread) == (side.target, side.thread)]
            stored.append(times.index(own[-1]) if own else None)
        found = align(recordings[0], recordings[1], stored[0])
        return Leg(cell, wheres, found, (self._names(found, 0), self._names(found, 1)))

    def _names(self, found: Alignment, side: int) -> dict[int, Cell]:
        """What one side's shown moments reach in global memory, by address."""
        if found.difference is None:
            return {}
        moments = [
            (pair.baseline, pair.candidate)[side] for pair in (found.difference.seen, found.difference.born)
        ]
        moments += found.difference.lines[side]
        moments += [origin for moment in moments for origin in moment.origins if origin is not None]
        cells = ((moment.address, _cell(self._recorders[side], moment)) for moment in moments)
        return {address: cell for address, cell in cells if address is not None and cell is not None}

    def _source(self, leg: Leg) -> tuple[Cell, list[Watch]] | None:
        """The memory that brought the difference in, where both sides loaded it from one place."""
        from reprodb.executors.model.recording import Watch

        difference = leg.alignment.difference
        if difference is None:
            return None
        moments = (difference.born.baseline, difference.born.candidate)
        cells = [_cell(r, m) for r, m in zip(self._recorders, moments, strict=True)]
        loads = all(m.step.kind is Kind.LOAD for m in moments)
        if not loads or cells[0] is None or cells[0] != cells[1]:
            return None
        return cells[0], [Watch(m.address or 0, m.step.nbytes) for m in moments]


def _watch(recorder: Recorder, output: str, element: ElementDelta) -> Watch:
    from reprodb.executors.model.recording import Watch

    buffer = next(b for b in recorder.case.buffers if b.name == output)
    field = next((f for f in buffer.fields if f.name == element.field), None)
    start = element.index * buffer.element_bytes + (field.offset if field else 0)
    nbytes = DTYPE_BYTES[field.dtype] if field else buffer.element_bytes
    return Watch(recorder.address_of(output) + start, nbytes)


def _cell(recorder: Recorder, moment: Moment) -> Cell | None:
    """What global memory an access reaches, by the name of its buffer, input or variable."""
    address, step = moment.address, moment.step
    if address is None or step.space in ("shared", "local", "param"):
        return None
    region = next((r for r in recorder.regions if r.address <= address < r.end), None)
    if region is None:
        return None
    sizes = {b.name: b.element_bytes for b in recorder.case.buffers}
    size = sizes.get(region.name, step.nbytes)
    return Cell(region.name, (address - region.address) // size, recorder.is_input(region.name))


def _undisturbed(result: Result, raws: Mapping[str, bytes]) -> None:
    """Raises ReprodbError unless the recorded execution left the bits that the plain one left."""
    buffers = {b.name: b for b in result.case.buffers}
    for output in result.outputs:
        if output.determinism.guaranteed and output.distinct == 1:
            pattern = buffers[output.name].pack(raws[output.name])
            if sha256(pattern) != output.sha256:
                raise ReprodbError(
                    f"recording {result.kernel.name} changed its {output.name}, so the record is worthless",
                    remedy="report this kernel",
                )
