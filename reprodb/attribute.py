"""What moved between two results: causes, effects, alarms and one sentence for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reprodb.codegen import code_delta, delta_phrase, launched
from reprodb.domain import (
    Build,
    Code,
    CodeOrigin,
    Composition,
    Kernel,
    Lane,
    Pairs,
    Profile,
    Result,
    Role,
    Run,
    Status,
)
from reprodb.findings import Alarm, Attribution, Cause, Comparison, Effect, Layer, Moved, State, Verdict
from reprodb.matrix import code_key
from reprodb.ordering import difference

# Which field of the pinned tuple a cause moves. A change of source is `order` or `build`: see _moved.
_FIELD: Mapping[str, Moved] = {
    Cause.INPUT: Moved.INPUT,
    Cause.LAUNCH_SHAPE: Moved.SHAPE,
    Cause.FLAGS: Moved.BUILD,
    Cause.TOOLCHAIN: Moved.BUILD,
    Cause.ARCHITECTURE: Moved.BUILD,
    Cause.ENVIRONMENT: Moved.ENVIRONMENT,
}
_ARROW = " → "


@dataclass(frozen=True, slots=True)
class Background:
    """What is known about a row beside its two sides.

    `source` is the digest of the baseline's sources where nothing else is known of its build (a blessing that
    was made elsewhere); `earlier` are other results of the row's scope; `serial` is the candidate run's
    result of the kernel that serves one request a launch, where the row's kernel names one.
    """

    source: str = ""
    earlier: tuple[tuple[Run, Result], ...] = ()
    serial: Result | None = None


NOTHING_KNOWN = Background()


def _layer(name: str, details: Iterable[str]) -> Layer:
    """A cause from what differs in it: nothing means the same."""
    details = tuple(details)
    return Layer(name, State.DIFFERS if details else State.SAME, ", ".join(details))


def _changes(before: Pairs, after: Pairs) -> list[str]:
    """`BLOCKS 1024 → 2048` for each name whose value differs; a side without the name shows `unset`."""
    if before == after:
        return []
    old, new = dict(before), dict(after)
    names = [name for name in dict.fromkeys((*old, *new)) if old.get(name) != new.get(name)]
    return [f"{name} {old.get(name, 'unset')}{_ARROW}{new.get(name, 'unset')}" for name in names]


# --- Causes ------------------------------------------------------------------------------------


def _input(before: Result, after: Result) -> Layer:
    if not before.input_digest or not after.input_digest:
        return Layer(Cause.INPUT, State.UNKNOWN)
    if before.input_digest == after.input_digest:
        return Layer(Cause.INPUT, State.SAME)
    old, new = (
        ", ".join(f"{i.pattern} n={i.n}" for i in r.case.inputs) or r.input_digest[:12]
        for r in (before, after)
    )
    detail = f"{old}{_ARROW}{new}" if old != new else f"other bytes of {new}"
    return Layer(Cause.INPUT, State.DIFFERS, detail)


def _dim(dim: tuple[int, int, int]) -> tuple[str, ...]:
    """`1024` of (1024, 1, 1); `32` and `4` of (32, 4, 1)."""
    used = max((i for i in range(3) if dim[i] != 1), default=0)
    return tuple(map(str, dim[: used + 1]))


def _shape_values(kernel: Kernel) -> Pairs:
    return tuple((k, v) for k, v in kernel.defines if k in kernel.shape_defines)


def shapes_differ(old: Kernel, new: Kernel) -> bool:
    """Whether two kernels differ in grid, block, dynamic shared memory or a define that sizes them."""
    return bool(_shape_changes(old, new))


def _shape_changes(old: Kernel, new: Kernel) -> list[str]:
    if old is new:  # a database reads equal kernels as one
        return []
    details = _changes(_shape_values(old), _shape_values(new))
    if len(old.stages) != len(new.stages):
        details.append(f"{len(old.stages)} stages{_ARROW}{len(new.stages)}")
    else:
        for a, b in zip(old.stages, new.stages, strict=True):
            sizes = (("grid", a.dims, b.dims), ("block", _dim(a.block), _dim(b.block)))
            details += [
                f"{b.entry} {what} {'×'.join(x)}{_ARROW}{'×'.join(y)}" for what, x, y in sizes if x != y
            ]
            if a.shared != b.shared:
                details.append(f"{b.entry} shared {a.shared}{_ARROW}{b.shared} bytes")
    return details + _composition_changes(old.composition, new.composition)


def _composition_changes(old: Composition | None, new: Composition | None) -> list[str]:
    """Launch parameters are of the shape: how many requests a launch serves, and in which company."""
    if old is None or new is None:
        return [] if old is new else ["no compositions" if new is None else "compositions"]
    told: list[tuple[str, object, object]] = [("BATCH", _sizes(old), _sizes(new))]
    told += [("probes", old.probes, new.probes), ("strangers", old.strangers, new.strangers)]
    told += [("composition seed", old.seed, new.seed)]
    return [f"{what} {a}{_ARROW}{b}" for what, a, b in told if a != b]


def _sizes(composition: Composition) -> str:
    return ", ".join(map(str, composition.batches))


def _source(before: Result, after: Result, known: str) -> Layer:
    entries = [
        f"entry {a.entry}{_ARROW}{b.entry}"
        for a, b in zip(before.kernel.stages, after.kernel.stages, strict=False)
        if a.entry != b.entry
    ]
    if before.build is None and after.build is not None and known:
        return _layer(Cause.SOURCE, ["other text than was blessed"] * (known != after.build.source_digest))
    if before.build is None or after.build is None:
        return Layer(Cause.SOURCE, State.DIFFERS, ", ".join(entries)) if entries else _unknown(Cause.SOURCE)
    if before.kernel.name == after.kernel.name:
        old, new = dict(before.build.sources), dict(after.build.sources)
        files = [path for path in dict.fromkeys((*old, *new)) if old.get(path) != new.get(path)]
    else:
        # Two kernels may keep the same text in files of other names.
        same = [digest for _, digest in before.build.sources]
        files = [path for path, digest in after.build.sources if digest not in same]
        if not files and len(same) != len(after.build.sources):
            files = [path for path, _ in before.build.sources]
    return _layer(Cause.SOURCE, [*files, *entries])


def _unknown(name: str) -> Layer:
    return Layer(name, State.UNKNOWN)


def _switch(name: str, value: bool | None) -> str:
    return f"-{name} unset" if value is None else f"-{name}={'true' if value else 'false'}"


def _profile_changes(old: Profile, new: Profile) -> list[str]:
    """What a profile sets differently: `-fmad=true → -fmad=false`."""
    switches = (
        ("fmad", old.fmad, new.fmad),
        ("use_fast_math", old.fast_math, new.fast_math),
        ("ftz", old.ftz, new.ftz),
        ("prec-div", old.prec_div, new.prec_div),
        ("prec-sqrt", old.prec_sqrt, new.prec_sqrt),
    )
    details = [f"{_switch(name, a)}{_ARROW}{_switch(name, b)}" for name, a, b in switches if a != b]
    details += [f"without {flag}" for flag in old.extra if flag not in new.extra]
    details += [f"with {flag}" for flag in new.extra if flag not in old.extra]
    if not details and old.extra != new.extra:
        details.append(f"{' '.join(old.extra)}{_ARROW}{' '.join(new.extra)}")
    return details


_NOT_FLAGS = ("-D", "--define-macro", "-arch", "--gpu-architecture", "-gencode", "-code", "--gpu-code", "-I",
              "--include-path", "-ccbin", "--compiler-bindir")  # fmt: skip


def _flags(build: Build) -> list[str]:
    """A build's options without defines, architecture and paths, which are causes of their own."""
    return [option for option in build.options if not option.startswith(_NOT_FLAGS)]


def _flag_changes(before: Result, after: Result, old: Build, new: Build) -> list[str]:
    if old is new:
        return []
    details = _profile_changes(old.profile, new.profile)
    shaping = {*before.kernel.shape_defines, *after.kernel.shape_defines}
    details += _changes(
        tuple(pair for pair in old.defines if pair[0] not in shaping),
        tuple(pair for pair in new.defines if pair[0] not in shaping),
    )
    if not details and old.toolchain.identity == new.toolchain.identity and _flags(old) != _flags(new):
        # The same settings, spelled out otherwise by another version of reprodb.
        details.append(f"{' '.join(_flags(old))}{_ARROW}{' '.join(_flags(new))}")
    return details


def _jit_driver(run: Run | None, result: Result) -> str | None:
    """The driver that compiled the PTX, where one did: it is part of the build then."""
    if result.origin is not CodeOrigin.JIT:
        return None
    return f"driver {run.environment.driver}" if run and run.environment.driver else "an unknown driver"


def _toolchain_changes(old: Build, new: Build) -> list[str]:
    if old.toolchain.label != new.toolchain.label:
        return [f"{old.toolchain.label}{_ARROW}{new.toolchain.label}"]
    return _changes(old.toolchain.components, new.toolchain.components)


def _toolchain(old: Build, new: Build, drivers: tuple[str | None, str | None]) -> Layer:
    details = _toolchain_changes(old, new)
    if drivers[0] != drivers[1]:
        a, b = (driver or "the recorded cubin" for driver in drivers)
        details.append(f"{a}{_ARROW}{b} (jit)")
    return _layer(Cause.TOOLCHAIN, details)


def _environment(old: Run | None, new: Run | None) -> Layer:
    """What steers bits where a run happened; another host with all of it equal is the same."""
    if old is None or new is None:
        return _unknown(Cause.ENVIRONMENT)
    a, b = old.environment, new.environment
    facts: list[tuple[str, str | None, str | None]] = [("lane", old.lane.value, new.lane.value)]
    if a.device or b.device:
        facts += [
            ("GPU", a.device.name if a.device else None, b.device.name if b.device else None),
            ("UUID", a.device.uuid if a.device else None, b.device.uuid if b.device else None),
        ]
    if new.lane is Lane.MEASURED:
        facts += [("driver", a.driver, b.driver), ("runtime", a.cuda_runtime, b.cuda_runtime)]
    else:
        # On the model the CPU's features and reprodb itself stand where a GPU and its driver stand.
        facts += [("CPU", a.cpu, b.cpu), ("reprodb", a.reprodb, b.reprodb)]
    details = [f"{what} {x or 'none'}{_ARROW}{y or 'none'}" for what, x, y in facts if x != y]
    details += _changes(a.libraries, b.libraries)
    details += _changes(a.variables, b.variables)
    if not details and a.host != b.host:
        return Layer(Cause.ENVIRONMENT, State.SAME, f"host {a.host}{_ARROW}{b.host}")
    return _layer(Cause.ENVIRONMENT, details)


def causes(
    before: Result, after: Result, old_run: Run | None, new_run: Run | None, known_source: str = ""
) -> tuple[Layer, ...]:
    """The seven causes in order, each same, differs or unknown, with what differs."""
    old, new = before.build, after.build
    arch = [f"{before.arch}{_ARROW}{after.arch}"] if before.arch != after.arch else []
    if old is None or new is None:
        flags, toolchain = _unknown(Cause.FLAGS), _unknown(Cause.TOOLCHAIN)
    else:
        drivers = _jit_driver(old_run, before), _jit_driver(new_run, after)
        flags = _layer(Cause.FLAGS, _flag_changes(before, after, old, new))
        toolchain = _toolchain(old, new, drivers)
    return (
        _input(before, after),
        _layer(Cause.LAUNCH_SHAPE, _shape_changes(before.kernel, after.kernel)),
        _source(before, after, known_source),
        flags,
        toolchain,
        _layer(Cause.ARCHITECTURE, arch),
        _environment(old_run, new_run),
    )


# --- Effects -----------------------------------------------------------------------------------


def _digest_layer(name: str, old: str | None, new: str | None, detail: str = "") -> Layer:
    if old is None or new is None:
        return _unknown(name)
    return Layer(name, State.SAME) if old == new else Layer(name, State.DIFFERS, detail)


def _sass(old: Code, new: Code, kernel: Kernel) -> Layer:
    name = Effect.SASS
    if old.sass is None or new.sass is None or old.constants is None or new.constants is None:
        return _unknown(name)
    if (old.sass, old.constants) == (new.sass, new.constants):
        return Layer(name, State.SAME)
    if old.sass == new.sass:
        return Layer(name, State.DIFFERS, "constant data alone")
    deltas = [d for d in code_delta(old, new) if d.sass]
    # A source may hold several kernels: only what this one launches made its bits.
    entries = [stage.entry for stage in kernel.stages]
    shown = ([d for d in deltas if launched(d.function, entries)] or deltas)[:2]
    detail = "; ".join(f"{d.function}: {delta_phrase(d)}" for d in shown)
    if more := len(deltas) - len(shown):
        detail += f"; and {more} more function{'s' * (more != 1)}"
    return Layer(
        name, State.DIFFERS, detail or "the same opcodes counted, other operands, registers or order"
    )


def _bits_layer(comparison: Comparison, role: Role, name: str) -> Layer:
    deltas = [d for d in comparison.outputs if d.role is role]
    if not deltas:
        return _unknown(name)
    if role is Role.RESULT and comparison.churn is not None:
        same = comparison.churn.relation == "same"
        return Layer(name, State.SAME if same else State.DIFFERS, f"support {comparison.churn.relation}")
    moved = [d for d in deltas if d.changed]
    return _layer(name, (f"{d.changed:,} of {d.of:,} {d.name}" for d in moved))


def _order(comparison: Comparison) -> Layer:
    """The order fingerprints of both sides, where they were taken."""
    sides = (comparison.baseline, comparison.candidate)
    same, detail = difference(*(side.fingerprint if side else None for side in sides))
    state = State.UNKNOWN if same is None else State.SAME if same else State.DIFFERS
    return Layer(Effect.ORDER, state, detail)


def effects(comparison: Comparison) -> tuple[Layer, ...]:
    """The five effects in order."""
    sides = (comparison.baseline, comparison.candidate)
    old, new = (
        (r.build.code if r is not None and r.build is not None else None) or Code(None, None, None)
        for r in sides
    )
    return (
        _order(comparison),
        _digest_layer(Effect.PTX, old.ptx, new.ptx),
        _sass(old, new, comparison.either.kernel),
        _bits_layer(comparison, Role.WITNESS, Effect.WITNESS),
        _bits_layer(comparison, Role.RESULT, Effect.RESULT),
    )


# --- What follows ------------------------------------------------------------------------------


def _moved(rows: Iterable[Layer], order: Layer, before: Result, after: Result) -> tuple[Moved, ...]:
    found = set()
    for row in rows:
        if row.state is not State.DIFFERS:
            continue
        if row.name != Cause.SOURCE:
            found.add(_FIELD[row.name])
        elif order.state is State.UNKNOWN:
            # Nobody probed the order: the manifests' own words decide.
            found.add(Moved.ORDER if before.kernel.order != after.kernel.order else Moved.BUILD)
        else:
            found.add(Moved.ORDER if order.state is State.DIFFERS else Moved.BUILD)
    return tuple(field for field in Moved if field in found)


def _code_same(before: Result, after: Result) -> bool | None:
    """Whether what ran is the same code; None where a digest is missing.

    Two kernels that launch other entries of one source run other code, although they share an artifact.
    """
    entries = ([stage.entry for stage in side.kernel.stages] for side in (before, after))
    if len({tuple(each) for each in entries}) > 1 and before.kernel.name != after.kernel.name:
        return False
    old, new = (code_key(r.build.code if r.build else None, r.lane) for r in (before, after))
    if old is None or new is None or before.lane is not after.lane:
        return None
    return old == new


def _redefined(before: Result, after: Result) -> list[str]:
    """A profile's name that now means another compiler or other flags."""
    old, new = before.build, after.build
    if before.profile != after.profile or old is None or new is None:
        return []
    notes = [f"profile redefined: toolchain {change}" for change in _toolchain_changes(old, new)]
    return notes + [f"profile redefined: flags {c}" for c in _profile_changes(old.profile, new.profile)]


def _new_history(rows: Iterable[Layer], before: Result, after: Result) -> str:
    """Another source or input under the kernel's name: the bits before are another history's."""
    if before.kernel.name != after.kernel.name:
        return ""
    changed = [
        f"{r.name} changed ({r.detail})"
        for r in rows
        if r.name in (Cause.INPUT, Cause.SOURCE) and r.state is State.DIFFERS
    ]
    return f"new history: {_listed(changed)}" if changed else ""


def _odd_device(comparison: Comparison, after: Result, run: Run | None, background: Background) -> list[str]:
    """The one GPU of several whose bits deviate from all others', named where the row's bits moved."""
    if run is None or comparison.verdict not in (Verdict.CHANGED, Verdict.LATENT):
        return []
    alike = [
        (r, result)
        for r, result in background.earlier
        if _code_same(result, after) and result.input_digest == after.input_digest
    ]
    uuid = deviating_device([(run, after), *alike])
    if uuid is None:
        return []
    others = len({r.environment.device.uuid for r, _ in [(run, after), *alike] if r.environment.device}) - 1
    return [
        f"device {uuid} deviates alone from {others} others of its model: look at the card, not at the build"
    ]


def _alarms(
    comparison: Comparison, rows: tuple[Layer, ...], code_same: bool | None, before: Result, after: Result
) -> list[Alarm]:
    state = {row.name: row.state for row in rows}
    alarms = []
    if (
        code_same
        and comparison.verdict in (Verdict.CHANGED, Verdict.LATENT)
        and state[Cause.INPUT] is not State.DIFFERS
        and state[Cause.LAUNCH_SHAPE] is State.SAME
    ):
        alarms.append(Alarm.CODE_SAME_BITS_CHANGED)
    if code_same and before.profile != after.profile and state[Cause.FLAGS] is State.DIFFERS:
        alarms.append(Alarm.INERT_PROFILE)
    return alarms


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _causes_phrase(rows: tuple[Layer, ...], moved: tuple[Moved, ...]) -> str:
    differing = [row for row in rows if row.state is State.DIFFERS]
    if not differing:
        unknown = [row.name for row in rows if row.state is State.UNKNOWN]
        if unknown:
            return f"nothing known moved ({_listed(unknown)} unknown)"
        return "nothing in the pinned tuple moved"
    parts = []
    for row in differing:
        several = row.name == Cause.FLAGS and ", " in row.detail
        part = f"{row.name} ({row.detail})" if row.detail else row.name
        parts.append(part + (", none of them singled out" if several else ""))
    return f"{_listed(moved)} moved: {'; '.join(parts) if len(parts) > 1 else parts[0]}"


def _code_phrase(code_same: bool | None) -> str:
    return "code unknown" if code_same is None else "code the same" if code_same else "code differs"


def _order_phrases(order: Layer) -> list[str]:
    """What an order that was measured says; nothing where none was."""
    if order.state is State.UNKNOWN:
        return []
    return ["the order is the same" if order.state is State.SAME else f"the order differs ({order.detail})"]


def _bits_phrase(comparison: Comparison) -> str:
    verdict = comparison.verdict
    if verdict is Verdict.NO_RESULT:
        return "no result"
    if verdict is Verdict.NOT_COMPARABLE:
        return "not compared"
    phrases = []
    if comparison.loss is not None:
        loss = comparison.loss
        phrases.append(f"{loss.output} differs in {loss.odd} of {loss.of} repetitions ({loss.where})")
        phrases += [f"elements {loss.elements}"] if loss.elements else []
    elif comparison.churn is not None:
        churn = comparison.churn
        support = (
            f"the result churns ({churn.baseline.distinct} and {churn.candidate.distinct} patterns, "
            f"{churn.relation} support)"
        )
        phrases.append(support)
    else:
        phrases += _moved_outputs(comparison, Role.RESULT)
    witnesses = _moved_outputs(comparison, Role.WITNESS)
    if witnesses and verdict is Verdict.LATENT and comparison.churn is None:
        names = [d.name for d in comparison.outputs if d.role is Role.RESULT]
        did_not = f"the {_listed(names)} did not" if names else "no result did"
        return f"{_listed(witnesses)} moved, {did_not}"
    if comparison.loss is not None or comparison.churn is not None:
        return ", ".join([*phrases, *(f"{w} moved" for w in witnesses)])
    if not phrases and not witnesses:
        return "no bit moved"
    return f"{_listed([*phrases, *witnesses])} moved"


def _moved_outputs(comparison: Comparison, role: Role) -> list[str]:
    """`73 of 1,024 partials`; a single number by its bits: `total (0x4b25426d → 0x4b25426e, 1 ULP)`."""
    found = []
    for delta in comparison.outputs:
        if delta.role is not role or not delta.changed:
            continue
        if delta.of == 1 and delta.elements:
            one = delta.elements[0]
            how = delta.note or (f"{delta.max_ulp:,} ULP" if delta.max_ulp is not None else "")
            found.append(f"{delta.name} ({one.before}{_ARROW}{one.after}{', ' + how if how else ''})")
        elif delta.of == 1:
            found.append(delta.name)
        else:
            note = f" ({delta.note})" if delta.note else ""
            found.append(f"{delta.changed:,} of {delta.of:,} {delta.name}{note}")
    return found


def attribute(
    comparison: Comparison,
    baseline_run: Run | None,
    candidate_run: Run | None,
    *,
    background: Background = NOTHING_KNOWN,
) -> Comparison:
    """The comparison with its attribution; unchanged where a side is missing."""
    before, after = comparison.baseline, comparison.candidate
    if before is None or after is None:
        return comparison
    rows = causes(before, after, baseline_run, candidate_run, background.source)
    found = effects(comparison)
    moved = _moved(rows, found[0], before, after)
    code_same = _code_same(before, after)
    phrases = [_causes_phrase(rows, moved)]
    if after.status is Status.OK:
        phrases.append(_code_phrase(code_same))
        phrases += _order_phrases(found[0])
    phrases.append(_bits_phrase(comparison))
    new_history = _new_history(rows, before, after)
    notes = [*_redefined(before, after), *([new_history] if new_history else [])]
    notes += _odd_device(comparison, after, candidate_run, background)
    return replace(
        comparison,
        attribution=Attribution(
            causes=rows,
            effects=found,
            first_layer=next((row.name for row in rows if row.state is State.DIFFERS), None),
            moved=moved,
            alarms=tuple(_alarms(comparison, rows, code_same, before, after)),
            notes=tuple(notes),
            sentence="; ".join(phrases),
            new_history=new_history,
        ),
    )


def deviating_device(results: Iterable[tuple[Run, Result]]) -> str | None:
    """The UUID of the one GPU whose bits deviate from all others', or None.

    Takes results of one row over several devices. There must be at least three devices of one code and input,
    each with one pattern of its own over all its runs, and all but one of them must agree.
    """
    bits: dict[str, set[object]] = {}
    tuples = set()
    for run, result in results:
        device = run.environment.device
        code = code_key(result.build.code if result.build else None, result.lane)
        if device is None or code is None or result.status is not Status.OK:
            continue
        tuples.add((*result.row, result.input_digest, code, device.name))
        bits.setdefault(device.uuid, set()).add(
            tuple((o.name, frozenset(p.sha256 for p in o.patterns)) for o in result.outputs)
        )
    if len(tuples) != 1 or len(bits) < 3 or any(len(seen) > 1 for seen in bits.values()):
        return None
    by_bits: dict[object, list[str]] = {}
    for uuid, (seen,) in bits.items():
        by_bits.setdefault(seen, []).append(uuid)
    alone = [uuids[0] for uuids in by_bits.values() if len(uuids) == 1]
    return alone[0] if len(by_bits) == 2 and len(alone) == 1 else None
