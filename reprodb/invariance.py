"""Bits that follow the batch: which probes move with BATCH, or away from the serial kernel's bits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from reprodb.deltas import Fetch, data_of
from reprodb.domain import Output, Result, Status
from reprodb.findings import BatchEffect, Loss

_NAMED = 3  # sizes that a sentence lists


def serial_of(result: Result, others: Iterable[Result]) -> Result | None:
    """The result of the kernel that serves one request a launch, under the same build on the same input."""
    composition = result.kernel.composition
    if composition is None or composition.serial is None:
        return None
    key = (composition.serial, result.profile, result.arch, result.condition, result.input_digest)
    for other in others:
        found = (other.kernel.name, other.profile, other.arch, other.condition, other.input_digest)
        if found == key and other.status is Status.OK:
            return other
    return None


def unlike_serial(result: Result, others: Iterable[Result]) -> bool:
    """Whether a batch-invariant kernel has other bits than its serial kernel among the others, by digests."""
    serial = serial_of(result, others) if result.kernel.batch_invariant else None
    if serial is None or result.status is not Status.OK:
        return False
    right = {(o.name, o.shape): o.sha256 for o in serial.outputs}
    judged = (o for o in result.outputs if o.determinism.guaranteed)
    return any(right.get((o.name, o.shape), o.sha256) != o.sha256 for o in judged)


def size_decides(result: Result) -> bool:
    """Whether each size of BATCH repeats its pattern in every guaranteed output of an invariant kernel."""
    if not result.kernel.batch_invariant or not result.batches:
        return False
    judged = [o for o in result.outputs if o.determinism.guaranteed]
    return all(
        len(o.sequence) == len(result.batches)
        and len(set(zip(result.batches, o.sequence, strict=True))) == len(set(result.batches))
        for o in judged
    )


def batch_effects(result: Result, serial: Result | None, fetch: Fetch) -> tuple[BatchEffect, ...]:
    """One for each output whose probes have other bits in some composition; empty where they have not.

    Bits are held against the serial kernel's, or without one against those of the first composition. Outputs
    whose bytes nobody has are passed over where they would have to be taken apart.
    """
    composition = result.kernel.composition
    if composition is None or result.status is not Status.OK or not result.batches:
        return ()
    judged = (o for o in result.outputs if o.determinism.guaranteed and o.name in composition.rows)
    found = (_effect(result, output, serial, fetch) for output in judged)
    return tuple(effect for effect in found if effect is not None)


def _effect(result: Result, output: Output, serial: Result | None, fetch: Fetch) -> BatchEffect | None:
    pieces = _pieces(result, output, fetch)
    if not pieces:
        return None
    against, right = f"BATCH {result.batches[0]}", pieces[0]
    if serial is not None:
        theirs = next((o for o in serial.outputs if o.name == output.name), None)
        data = data_of(theirs.patterns[0], fetch) if theirs is not None else None
        if data is not None and len(data) == len(right):
            against, right = serial.kernel.name, data
    odd = [number for number, piece in enumerate(pieces) if piece != right]
    if not odd:
        return None
    composition = result.kernel.composition
    assert composition is not None  # noqa: S101 -- batch_effects has asked
    sizes = dict.fromkeys(result.batches[number] for number in odd)
    width = len(right) // composition.probes
    rows = range(composition.probes)
    wrong = pieces[odd[0]]
    probes = [p for p in rows if wrong[p * width : (p + 1) * width] != right[p * width : (p + 1) * width]]
    return BatchEffect(
        output=output.name,
        against=against,
        batch=result.batches[odd[0]],
        probe=probes[0],
        probes=len(probes),
        of=composition.probes,
        sizes=tuple(sizes),
        odd=len(odd),
        compositions=len(pieces),
        promised=result.kernel.batch_invariant,
        by_size=not sizes.keys() & {b for number, b in enumerate(result.batches) if pieces[number] == right},
    )


def _pieces(result: Result, output: Output, fetch: Fetch) -> Sequence[bytes]:
    """The probes' rows after each composition; nothing where bytes are not at hand.

    A batch-invariant kernel has one composition a repetition; another's pattern holds all of its own.
    """
    if result.kernel.batch_invariant:
        patterns = [data_of(pattern, fetch) for pattern in output.patterns]
        whole = [data for data in patterns if data is not None]
        return [whole[index] for index in output.sequence] if len(whole) == len(patterns) else ()
    data = data_of(output.patterns[0], fetch)
    if data is None:
        return ()
    size = len(data) // len(result.batches)
    return [data[at : at + size] for at in range(0, size * len(result.batches), size)]


def words(effects: Iterable[BatchEffect]) -> str:
    """`logits of 64 and ranked of 57 of 64 probes differ from row_logits_serial with BATCH 8, probe 0 first`.

    Outputs that begin to differ in the same composition are told together.
    """
    groups: dict[object, list[BatchEffect]] = {}
    for effect in effects:
        key = (effect.against, effect.batch, effect.of, effect.odd, effect.compositions)
        groups.setdefault(key, []).append(effect)
    return ", ".join(_phrase(group) for group in groups.values())


def _phrase(group: Sequence[BatchEffect]) -> str:
    *most, last = (f"{effect.output} of {effect.probes:,}" for effect in group)
    outputs = f"{', '.join(most)} and {last}" if most else last
    first, probe = group[0], min(effect.probe for effect in group)
    return (
        f"{outputs} of {first.of:,} probes differ from {first.against} with BATCH {first.batch}, "
        f"probe {probe} first ({first.odd:,} of {first.compositions:,} compositions)"
    )


def batch_sizes(result: Result) -> str:
    """`BATCH 1, 8 and 64`, or how many sizes there were and from where to where."""
    sizes = sorted(set(result.batches))
    if len(sizes) > _NAMED + 1:
        return f"{len(sizes)} sizes of BATCH from {sizes[0]} to {sizes[-1]}"
    *most, last = map(str, sizes or [0])
    return f"BATCH {', '.join(most)} and {last}" if most else f"BATCH {last}"


def served(result: Result) -> str:
    """`100 compositions, 49 sizes of BATCH from 1 to 256`; empty for a kernel without any."""
    count = len(result.batches)
    if not count:
        return ""
    each = "" if result.kernel.batch_invariant else " in each repetition"
    return f"{count:,} composition{'s' * (count != 1)}{each}, {batch_sizes(result)}"


def sizes_of(effect: BatchEffect) -> str:
    """`BATCH 8, 16, 31 and 5 more`."""
    named = ", ".join(map(str, effect.sizes[:_NAMED]))
    more = len(effect.sizes) - _NAMED
    return f"BATCH {named}" + (f" and {more} more" if more > 0 else "")


def loss_by_batch(effects: Iterable[BatchEffect], loss: Loss | None, result: Result) -> Loss | None:
    """A loss told by its batches, where batch invariance is promised and broken; else the loss as it is."""
    broken = next((e for e in effects if e.promised), None)
    if broken is None:
        return loss
    output = next(o for o in result.outputs if o.name == broken.output)
    # Where the size alone decides, no race does.
    advice = loss.advice if loss is not None and not broken.by_size else ()
    told = Loss(broken.output, output.distinct, broken.odd, broken.compositions, "", advice)
    return replace(told, where=f"{sizes_of(broken)}, against {broken.against}", elements=_elements(broken))


def _elements(effect: BatchEffect) -> str:
    return f"{effect.probes:,} of {effect.of:,} probes, the first at {effect.probe}"


def notes(result: Result, serial: Result | None, effects: Sequence[BatchEffect]) -> Iterator[str]:
    """What a row says of its batches beside its verdict."""
    composition = result.kernel.composition
    if composition is None:
        return
    if effects and result.kernel.batch_invariant:
        yield f"batch composition moved bits that batch_invariant promises: {words(effects)}"
    elif effects:
        yield f"moved: {effects[0].moved}: {words(effects)}"
        yield "this does not gate: batch_invariant is not declared"
    if result.kernel.batch_invariant and composition.serial is not None and serial is None:
        yield f"{composition.serial} has no result in this run: its bits were not compared"
