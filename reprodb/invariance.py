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
        sizes=tuple(dict.fromkeys(result.batches[number] for number in odd)),
        odd=len(odd),
        compositions=len(pieces),
        promised=result.kernel.batch_invariant,
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


def words(effect: BatchEffect) -> str:
    """`logits of 37 of 64 probes differ from row_logits_serial with BATCH 8, probe 0 first; …`"""
    others = (
        f"; {effect.odd:,} of {effect.compositions:,} compositions differ" if effect.compositions > 1 else ""
    )
    return (
        f"{effect.output} of {effect.probes:,} of {effect.of:,} probes differ from {effect.against} "
        f"with BATCH {effect.batch}, probe {effect.probe} first{others}"
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
    told = Loss(
        broken.output, output.distinct, broken.odd, broken.compositions, "", loss.advice if loss else ()
    )
    return replace(told, where=f"{sizes_of(broken)}, against {broken.against}", elements=_elements(broken))


def _elements(effect: BatchEffect) -> str:
    return f"{effect.probes:,} of {effect.of:,} probes, the first at {effect.probe}"


def notes(result: Result, serial: Result | None, effects: Sequence[BatchEffect]) -> Iterator[str]:
    """What a row says of its batches beside its verdict."""
    composition = result.kernel.composition
    if composition is None:
        return
    for effect in effects:
        if effect.promised:
            yield f"batch composition moved bits that batch_invariant promises: {words(effect)}"
        else:
            yield f"moved: {effect.moved}: {words(effect)}"
    if any(not effect.promised for effect in effects):
        yield "this does not gate: batch_invariant is not declared"
    if result.kernel.batch_invariant and composition.serial is not None and serial is None:
        yield f"{composition.serial} has no result in this run: its bits were not compared"
