"""Claim cards: what one result promises, what was pinned, what was seen, what is not covered."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reprodb import ordering
from reprodb.bounds import pool
from reprodb.codegen import launched
from reprodb.domain import FRIENDLY, Accuracy, Determinism, Lane, Output, Result, Role, Run, Stage, Status
from reprodb.invariance import batch_sizes, serial_of, size_decides, unlike_serial
from reprodb.resources import resources

# What a card says of launches that reprodb neither makes nor sees.
_PROGRAM = "the program's own"
# What stands for a compiler where no profile has a part in the build.
_UNCOMPILED = ("library", "command")


class Standing(StrEnum):
    """How a promise stands against what was seen."""

    HELD = "held"
    BROKEN = "broken"
    UNSEEN = "no evidence"
    NOT_PROMISED = "not promised"


@dataclass(frozen=True, slots=True)
class Pin:
    """One pinned thing: `input`, its value, and further lines."""

    name: str
    value: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Promise:
    """One scope of a guarantee, how it stands, and what was seen."""

    scope: str
    standing: Standing
    evidence: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The card of one result."""

    run: Run
    result: Result
    sentence: str
    pins: tuple[Pin, ...]
    promises: tuple[Promise, ...]
    not_covered: tuple[str, ...]


def claim(
    run: Run,
    result: Result,
    history: Iterable[tuple[Run, Result]],
    sass: str | None = None,
    beside: Iterable[Result] = (),
) -> Claim:
    """The card of a result. `history` is the kernel's results over all runs, this one among them or not.

    `sass` is the disassembly of its artifact, from which the resources of its stages are read; `beside` are
    the results of its run, among them that of the kernel that serves one request a launch.
    """
    alike = tuple(pair for pair in history if _comparable(result, pair[1]))
    return Claim(
        run,
        result,
        _sentence(result),
        _pins(run, result, sass),
        _promises(run, result, alike, tuple(beside)),
        _not_covered(run, result),
    )


def _comparable(result: Result, other: Result) -> bool:
    """Results that answer the same question: only builds, runs and devices may differ."""
    return (
        other.status is Status.OK
        and (other.kernel.name, other.case.name, other.condition)
        == (result.kernel.name, result.case.name, result.condition)
        and other.input_digest == result.input_digest
        and other.kernel.stages == result.kernel.stages
        and other.kernel.composition == result.kernel.composition
    )


def _sentence(result: Result) -> str:
    kernel, n = result.kernel, f"{result.case.n:,}"
    if result.status is not Status.OK:
        return f"There is no answer to claim: {result.status.value.replace('_', ' ')}."
    told = f"{kernel.operation[:1].upper()}{kernel.operation[1:]} over {n} elements"
    if not kernel.determinism.guaranteed:
        lost = max(_guaranteed(result), key=lambda o: o.distinct, default=None)
        if lost is not None and lost.distinct > 1:
            but = f"but {lost.name} showed {lost.distinct} patterns although one is guaranteed"
            return f"{told}: the bits may vary with arrival order, {but}."
        return f"{told}: the bits may vary with arrival order, and that is permitted."
    bits = next((o.first_bits for o in result.results if o.first_bits), None)
    seen = max((o.distinct for o in result.results), default=0)
    if seen > 1:
        return f"{told} showed {seen} patterns although one is guaranteed."
    but = f", but {FRIENDLY}" if result.friendly else ""
    return f"{told} is {bits or 'one pattern'} in all {result.repetitions:,} repetitions{but}."


# --- What was pinned ---------------------------------------------------------------------------


def _pins(run: Run, result: Result, sass: str | None) -> tuple[Pin, ...]:
    kernel, case, build = result.kernel, result.case, result.build
    inputs = tuple(
        f"{i.name}: {i.pattern}" + "".join(f", {k}={v}" for k, v in i.params) + f", {i.n:,} × {i.dtype}"
        for i in case.inputs
    )
    stages = tuple(
        f"{s.entry}: grid {_grid(s)}, block {_dims(s.block)}"
        + (f", {s.shared:,} B shared" if s.shared else "")
        for s in kernel.stages
    )
    shape = f"{len(stages)} stage{'s' * (len(stages) != 1)}" if kernel.program is None else _PROGRAM
    if kernel.sm_count is not None:
        shape += f", derived from the device's {kernel.sm_count} multiprocessors"
    outputs = tuple(f"{b.name} ({b.role.value}): {_dims(b.shape)} × {b.dtype}" for b in case.recorded)
    fixed = "the launch shape and the source" if kernel.program is None else "the program"
    free = "arrival order, permitted" if kernel.program is None else f"{_PROGRAM}, any permitted"
    grouping = kernel.order or (f"fixed by {fixed}" if kernel.determinism.guaranteed else free)
    pins = [
        Pin("operation", kernel.operation, (f"case {case.name}",)),
        Pin("input", f"n = {case.n:,}", (*inputs, f"digest {result.input_digest or 'unknown'}")),
        Pin("shape", shape, (*stages, *_served(result))),
        Pin("grouping", grouping, _measured(result)),
        Pin("accumulator", kernel.accumulator, _rounding(result)),
        Pin("storage", "little endian", outputs),
    ]
    if build is not None:
        code = build.code
        digests = (("PTX", code.ptx), ("SASS", code.sass), ("constants", code.constants)) if code else ()
        options = (f"{build.arch}, profile {result.profile}", " ".join(build.options))
        texts = tuple(f"{name} {value or 'unknown'}" for name, value in digests)
        files = tuple(f"{path} {digest}" for path, digest in build.sources)
        pins += [
            Pin("build", build.toolchain.label, options),
            Pin("code", f"artifact {build.key[:16]}", texts),
            Pin("source", f"{len(files)} file{'s' * (len(files) != 1)}", files),
        ]
    if found := resources(sass or "", dict.fromkeys(stage.entry for stage in kernel.stages)):
        most = max(r.registers for r in found)
        told = tuple(
            f"{r.function}: {r.registers} registers a thread, {r.shared:,} B of shared memory a block"
            for r in found
        )
        pins.append(Pin("resources", f"at most {most} registers a thread", told))
    return (*pins, _environment(run))


def _served(result: Result) -> tuple[str, ...]:
    """How requests were served, where the kernel has compositions."""
    composition = result.kernel.composition
    if composition is None:
        return ()
    return (
        f"{composition.probes:,} probes of {composition.requests:,} requests, at least "
        f"{composition.strangers:,} strangers, seed {composition.seed}",
        batch_sizes(result),
    )


def _measured(result: Result) -> tuple[str, ...]:
    """The order as it was measured, where it was."""
    found = result.fingerprint
    return () if found is None else (f"order fingerprint {ordering.phrase(found)}",)


def _grid(stage: Stage) -> str:
    return " × ".join(f"{int(size):,}" if size.isdecimal() else size for size in stage.dims)


def _dims(shape: Sequence[int]) -> str:
    whole = [n for place, n in enumerate(shape) if n != 1 or place == 0]
    return " × ".join(f"{n:,}" for n in whole) or "1"


def _rounding(result: Result) -> tuple[str, ...]:
    """Where values are rounded: fused and separate operations that the compiler emitted, and the settings."""
    build = result.build
    if build is None or build.profile.compiler in _UNCOMPILED:
        return ()  # no compiler of a profile had a part in it
    settings = build.profile
    told = [f"contraction {'allowed' if settings.fmad else 'off'}"]
    told += ["fast mathematics"] if settings.fast_math else []
    told += [] if settings.ftz is None else [f"subnormals {'flushed' if settings.ftz else 'kept'}"]
    every = build.code.counts if build.code else ()
    entries = [stage.entry for stage in result.kernel.stages]
    # A source may hold several kernels: only what this one launches rounds its values.
    for counts in [c for c in every if launched(c.function, entries)] or every:
        rounding = [
            f"{n} {name}"
            for name, n in counts.sass or counts.ptx
            if name.lower().startswith(
                ("ffma", "fmul", "fadd", "dfma", "dmul", "dadd", "hfma", "mufu", "fma.", "mul.", "add.")
            )
        ]
        if rounding:
            told.append(f"{counts.function}: {', '.join(rounding)}")
    return tuple(told)


def _environment(run: Run) -> Pin:
    env = run.environment
    device = env.device if run.lane is Lane.MEASURED else None
    if device is None:
        libraries = tuple(f"{name} {version}" for name, version in env.libraries)
        if run.lane is Lane.HOST:
            return Pin("environment", f"a program on {env.cpu or 'a CPU'}", libraries)
        return Pin("environment", f"modelled on {env.cpu or 'a CPU'}: no GPU ran", libraries)
    return Pin(
        "environment",
        f"{device.name}, compute capability {device.compute_capability}",
        (
            f"{device.sm_count} SMs, {device.memory / 2**30:.0f} GiB, {device.uuid}",
            f"driver {env.driver}, CUDA runtime {env.cuda_runtime}",
        ),
    )


# --- Promises ----------------------------------------------------------------------------------


def _promises(
    run: Run, result: Result, alike: Sequence[tuple[Run, Result]], beside: Sequence[Result]
) -> tuple[Promise, ...]:
    if result.status is not Status.OK:
        return ()
    guarantee = result.kernel.determinism
    return (
        *_run_to_run(run, result, alike, guarantee),
        *_across_batches(result, beside),
        _across_builds(run, result, alike),
        _across_gpus(run, result, alike, guarantee),
    )


def _guaranteed(result: Result) -> tuple[Output, ...]:
    return tuple(o for o in result.outputs if o.determinism.guaranteed)


def _run_to_run(
    run: Run, result: Result, alike: Sequence[tuple[Run, Result]], guarantee: Determinism
) -> tuple[Promise, ...]:
    """The promise about the result, and that about the buffers that are fixed all the same."""
    scope = f"run to run, this binary on this kind of {'card' if run.lane is not Lane.HOST else 'machine'}"
    fixed = _guaranteed(result)
    if guarantee.guaranteed:
        return (_repeated(run, result, alike, scope, fixed),)
    seen = max((o.distinct for o in result.results), default=0)
    text = f"{seen} pattern{'s' * (seen != 1)} in {result.repetitions:,} repetitions"
    free = Promise(scope, Standing.NOT_PROMISED, text)
    if not fixed:
        return (free,)
    names = ", ".join(o.name for o in fixed)
    return free, _repeated(run, result, alike, f"run to run, its {names}", fixed)


def _repeated(
    run: Run, result: Result, alike: Sequence[tuple[Run, Result]], scope: str, fixed: Sequence[Output]
) -> Promise:
    seen = max((o.distinct for o in fixed or result.results), default=0)
    if seen > 1 and size_decides(result):
        text = f"{seen} patterns, and each size of BATCH repeats its own: see across batches"
        return Promise(scope, Standing.UNSEEN, text)
    if seen > 1:
        return Promise(scope, Standing.BROKEN, f"{seen} patterns in {result.repetitions:,} repetitions")
    if result.friendly:
        text = f"0 of {result.repetitions:,} repetitions differ, and {result.friendly}"
        return Promise(scope, Standing.UNSEEN, text)
    pooled = pool((run, result), alike)
    if pooled is None:
        text = f"0 of {result.repetitions:,} repetitions differ; the {run.lane} lane claims no bound"
        if run.lane is Lane.MEASURED:
            text = f"0 of {result.repetitions:,} repetitions differ; without a code digest nothing is pooled"
        return Promise(scope, Standing.HELD, text)
    return Promise(scope, Standing.BROKEN if pooled.flips else Standing.HELD, pooled.phrase)


def _across_batches(result: Result, beside: Sequence[Result]) -> tuple[Promise, ...]:
    """What a request's company may do to its bits, where the kernel has compositions."""
    composition = result.kernel.composition
    if composition is None:
        return ()
    scope = "across batches, whatever else is served with a request"
    told = batch_sizes(result)
    if not result.kernel.batch_invariant:
        text = f"each composition repeats its bits: {told}"
        return (Promise(scope, Standing.NOT_PROMISED, text),)
    seen = max((o.distinct for o in result.outputs if o.determinism.guaranteed), default=0)
    count = f"{len(result.batches):,} composition{'s' * (len(result.batches) != 1)}"
    if seen > 1:
        return (Promise(scope, Standing.BROKEN, f"{seen} patterns in {count}"),)
    if unlike_serial(result, beside):
        text = f"one pattern in {count}, and other bits than {composition.serial}'s"
        return (Promise(scope, Standing.BROKEN, text),)
    if result.friendly:
        return (Promise(scope, Standing.UNSEEN, f"0 of {count} differ, and {result.friendly}"),)
    if len(set(result.batches)) < 2:
        return (Promise(scope, Standing.UNSEEN, f"{count} of no other size than {told}"),)
    text = f"0 of {count} differ: {told}"
    if composition.serial is not None:
        served = serial_of(result, beside) is not None
        text += f"; the bits are {'' if served else 'not compared with '}{composition.serial}'s"
    return (Promise(scope, Standing.HELD, text),)


def _across_builds(run: Run, result: Result, alike: Sequence[tuple[Run, Result]]) -> Promise:
    """Nobody promises this; what was seen is still worth knowing."""
    scope = "across builds"
    here = [
        r for then, r in alike if then.lane is run.lane and _gpu(then) == _gpu(run) and r.build is not None
    ]
    others = {r.build.key: r for r in here if r.build and result.build and r.build.key != result.build.key}
    if not others:
        return Promise(scope, Standing.NOT_PROMISED, "no other build was run on this input")
    if not result.kernel.determinism.guaranteed:
        return Promise(
            scope, Standing.NOT_PROMISED, f"{len(others)} other builds ran; arrival order varies in each"
        )
    equal = [r for r in others.values() if _bits(r.results) == _bits(result.results)]
    whole = [r for r in equal if _bits(r.outputs) == _bits(result.outputs)]
    tools = sorted({r.build.toolchain.label for r in others.values() if r.build})
    text = f"the result's bits are equal in {len(equal)} of {len(others)} other builds"
    if result.witnesses:
        text += f", the witnesses' too in {len(whole)}"
    return Promise(scope, Standing.NOT_PROMISED, f"{text} ({', '.join(tools)})")


def _across_gpus(
    run: Run, result: Result, alike: Sequence[tuple[Run, Result]], guarantee: Determinism
) -> Promise:
    scope = "across GPU models"
    promised = guarantee is Determinism.GPU_TO_GPU
    measured = [(then, r) for then, r in alike if then.lane is Lane.MEASURED and _gpu(then) != _gpu(run)]
    models = sorted({name for then, _ in measured if (name := _gpu(then))})
    if not models or not guarantee.guaranteed:
        text = "no other GPU model was seen" if not models else f"also run on {', '.join(models)}"
        return Promise(scope, Standing.UNSEEN if promised else Standing.NOT_PROMISED, text)
    equal = sum(_bits(r.outputs) == _bits(result.outputs) for _, r in measured)
    text = f"equal in {equal} of {len(measured)} results on {', '.join(models)}"
    if not promised:
        return Promise(scope, Standing.NOT_PROMISED, text)
    return Promise(scope, Standing.HELD if equal == len(measured) else Standing.BROKEN, text)


def _gpu(run: Run) -> str | None:
    device = run.environment.device
    return device.name if device and run.lane is Lane.MEASURED else None


def _bits(outputs: Iterable[Output]) -> tuple[object, ...]:
    return tuple((o.name, tuple(sorted(p.sha256 for p in o.patterns))) for o in outputs)


def _not_covered(run: Run, result: Result) -> tuple[str, ...]:
    told = [result.friendly] if result.friendly else []
    if result.kernel.sm_count is not None:
        told.append(
            f"devices with other than {result.kernel.sm_count} multiprocessors: the grid follows them, and "
            "another grid is another order"
        )
    told += [
        "other inputs, sizes and launch shapes: each is a claim of its own",
        "other compilers, flags and architectures, beyond what is seen above",
    ]
    if run.lane is Lane.MODELLED:
        told.append("hardware: no GPU ran, and the order in which atomics arrive is a sample")
    if not any(o.role is Role.WITNESS for o in result.outputs):
        told.append("intermediate values: this kernel records no witness")
    told.append(_accuracy(result))
    return tuple(told)


def _accuracy(result: Result) -> str:
    """What stands beside the claim: an error against a reference, bits that the manifest pins, or nothing."""
    found = result.accuracy
    apart = f"accuracy is a claim apart: {found.verdict.value}"
    if found.max_rel_err is not None:
        return f"{apart}, largest relative error {found.max_rel_err:.3e}"
    if result.case.expected and found.verdict is not Accuracy.UNKNOWN:
        right = found.verdict is Accuracy.OK
        return f"{apart}, the bits are {'' if right else 'not '}those that the manifest pins"
    return "accuracy: no reference was computed"
