"""A hunt's outcome as lines for people and as the document `reprodb.bisect/1`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reprodb.domain import Lane
from reprodb.hunt import Change, Found
from reprodb.lenses import SHORT
from reprodb.render.text import count, joined, name, visible

SCHEMA = "reprodb.bisect/1"


@dataclass(frozen=True, slots=True)
class Head:
    """What a hunt was about. `kind` is the compiler, or `commit`; the lane is None where nothing ran.

    `gaps`: versions that are not installed were left out.
    """

    kernel: str
    kind: str
    profile: str
    lane: Lane | None
    details: tuple[str, ...] = ()
    gaps: bool = False

    def label(self, found: Found, place: int) -> str:
        """`nvrtc 13.0.88`, or a commit with the first line of its message."""
        detail = self.details[place] if self.details else ""
        return f"{found.labels[place]} ({visible(detail, 80)})" if detail else found.labels[place]


@dataclass(frozen=True, slots=True)
class Spent:
    """What it took."""

    probes: int
    compiled: int
    executed: int
    installed: int

    def words(self) -> str:
        parts = [
            count(self.probes, "probe"),
            count(self.compiled, "build"),
            count(self.executed, "execution"),
        ]
        parts += [count(self.installed, "toolchain") + " installed"] if self.installed else []
        return joined(parts)


def lines(head: Head, found: Found, spent: Spent, *, quiet: bool = False) -> Iterator[str]:
    """What people read: the answer, then what it rests on."""
    lane = f" ({head.lane})" if head.lane else ""
    if not found.changes:
        yield f"{name(head.kernel)}: {_no_change(head, found)}{lane}"
    for change in found.changes:
        yield f"{name(head.kernel)}: {_headline(head, found, change)}{lane}"
        if quiet:
            continue
        yield from _cases(change)
        if not change.verified:
            yield "  not verified: looked at again, the two did not show the same as before"
    if quiet:
        return
    last = found.ends[1]
    if not found.whole and found.changes and last is not None:
        there = found.at(found.changes[0].first)
        if there is not None and there.key != last.key:
            yield (
                f"  the {_moves(found)} again between {found.labels[found.changes[0].first]} and "
                f"{found.labels[-1]}: --all lists every change"
            )
    for place, look in sorted(found.looks):
        if look.key is None:
            yield f"  skipped: {head.label(found, place)}: {visible(look.why)}"
    for note in found.notes:
        yield f"  note: {visible(note)}"
    yield f"  {spent.words()} for {len(found.labels)} {'commits' if head.kind == 'commit' else 'versions'}"


def _moves(found: Found) -> str:
    return "bits move" if found.what == "bits" else "code moves"


def _headline(head: Head, found: Found, change: Change) -> str:
    first, before = head.label(found, change.first), head.label(found, change.before)
    if found.whole:
        text = f"the {_moves(found)} at {first}, after {before}"
    else:
        thing = "commit" if head.kind == "commit" else "installed version" if head.gaps else "version"
        differs = "differ" if found.what == "bits" else "differs"
        text = f"the first {thing} whose {found.what} {differs} is {first}; {before} is as the good end"
    if change.skipped:
        others = joined([found.labels[place] for place in change.skipped], "or")
        text += f"; it may be {others}, which could not be tried"
    if change.returns_to is not None:
        text += f"; they return to those of {found.labels[change.returns_to]}"
    return text


def _cases(change: Change) -> Iterator[str]:
    for case in change.cases:
        prefix = f"{name(case.case)}: " if case.case else ""
        yield f"  {prefix}{visible(case.change) or 'the same bits'}"
    sentences = dict.fromkeys(case.sentence for case in change.cases if case.sentence and case.change)
    for sentence in list(sentences)[:1]:
        yield f"  {visible(sentence)}"


def _no_change(head: Head, found: Found) -> str:
    first, last = found.ends
    for place, look in ((0, first), (len(found.labels) - 1, last)):
        if look is not None and look.key is None and not found.whole:
            return f"no answer: {head.label(found, place)} shows no {found.what}: {visible(look.why)}"
    if found.whole:
        tried = sum(look.key is not None for _, look in found.looks)
        return (
            f"no change of {found.what} at any of the {tried:,} of {len(found.labels):,} that could be tried"
        )
    text = f"the same {found.what} at {found.labels[0]} and {found.labels[-1]}"
    if found.what == "bits" and first and last and first.code and last.code and first.code != last.code:
        text += ", the code is not (--code finds where it changed)"
    return text + "; a change that was taken back in between shows with --all"


def document(head: Head, found: Found, spent: Spent, exit_code: int) -> dict[str, Any]:
    """Every place in its order, probed or not, and every change that was found."""
    order = {place: number for number, (place, _) in enumerate(found.looks, 1)}
    looks = dict(found.looks)
    good = looks[0].key if 0 in looks else None
    places = []
    for place, label in enumerate(found.labels):
        look = looks.get(place)
        entry: dict[str, Any] = {"label": label, "detail": head.details[place] if head.details else ""}
        entry["probed"] = order.get(place)
        if look is not None:
            entry |= {
                "shows": "nothing" if look.key is None else "good" if look.key == good else "other",
                "key": look.key[:SHORT] if look.key else None,
                "code": look.code[:SHORT] if look.code else None,
                "bits": dict(look.bits),
                "compiled": look.compiled,
                "executed": look.executed,
                "why": look.why,
            }
        places.append(entry)
    return {
        "schema": SCHEMA,
        "kernel": head.kernel,
        "profile": head.profile,
        "along": head.kind,
        "what": found.what,
        "lane": head.lane.value if head.lane else None,
        "exit_code": int(exit_code),
        "answered": found.answered,
        "all": found.whole,
        "changes": [
            {
                "before": found.labels[change.before],
                "first": found.labels[change.first],
                "skipped": [found.labels[place] for place in change.skipped],
                "returns_to": None if change.returns_to is None else found.labels[change.returns_to],
                "verified": change.verified,
                "cases": [
                    {"case": c.case or None, "change": c.change, "sentence": c.sentence} for c in change.cases
                ],
            }
            for change in found.changes
        ],
        "places": places,
        "probes": spent.probes,
        "compiled": spent.compiled,
        "executed": spent.executed,
        "installed": spent.installed,
        "notes": list(found.notes),
    }
