"""The atlas's table: which functions move at which step of the toolkit, by how much, and which way (pure)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from reprodb.atlas.functions import Function
from reprodb.bits import hex_word, is_float, nan_mask, plain, to_bits, ulp_distance, values_of
from reprodb.digest import content_key
from reprodb.domain import Input, Lane, Result, Run, Status

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from reprodb.atlas.exact import Exact

    Indexes = npt.NDArray[np.intp]

Fetch = Callable[[str], bytes]
Arrays = Callable[[Input], Any]

# Of how many moved inputs the exact value is looked at: enough for a share in per cent.
LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class Word:
    """One number: its bits in hex and its value."""

    bits: str
    value: float | int | str


@dataclass(frozen=True, slots=True)
class Example:
    """An input that moves, both results, and the exact value where there is one.

    Errors are in units in the last place at the exact value.
    """

    arguments: tuple[Word, ...]
    before: Word
    after: Word
    exact: str | None = None
    before_error: float | None = None
    after_error: float | None = None

    @property
    def nearer(self) -> str | None:
        """`before`, `after` or `neither`; None where it is not known."""
        if self.before_error is None or self.after_error is None:
            return None
        if self.before_error == self.after_error:
            return "neither"
        return "before" if self.before_error < self.after_error else "after"


@dataclass(frozen=True, slots=True)
class Nearness:
    """Of the moved inputs that were looked at: which result is nearer the exact value, and both maxima."""

    looked_at: int
    before: int
    after: int
    before_error: float  # the largest, in units in the last place
    after_error: float


@dataclass(frozen=True, slots=True)
class Move:
    """A function's results differ between two versions. `max_ulp` is None where no two numbers differ."""

    before: str
    after: str
    changed: int
    of: int
    max_ulp: int | None
    nans: int  # changed inputs with a NaN on either side
    example: Example
    nearness: Nearness | None = None
    nan_to_nan: int | None = None  # changed inputs with a NaN on both sides; None where it was not counted

    @property
    def nans_only(self) -> bool:
        """Whether no number moved: a NaN gave way to a NaN of another sign or payload, wherever bits moved.

        A table without the count is taken at its example.
        """
        if self.max_ulp is not None or self.nans < self.changed:
            return False
        if self.nan_to_nan is not None:
            return self.nan_to_nan == self.changed
        return self.example.before.value == self.example.after.value == "nan"


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring versions whose results are the same in every bit."""

    versions: tuple[str, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class Absence:
    """Why versions have no result: a failed build, or an instruction that the model refuses."""

    versions: tuple[str, ...]
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One function under one set of flags. `code_only` are the steps whose code moved and whose bits did not.

    A step is the version that it leads to. `unstable` are versions that gave more than one pattern.
    """

    function: str
    flags: str
    source: str
    signature: str
    inputs: str  # digest
    spans: tuple[Span, ...]
    moves: tuple[Move, ...]
    code_only: tuple[str, ...]
    code_unknown: tuple[str, ...] = ()
    absences: tuple[Absence, ...] = ()
    unstable: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # of its results: what the model could not know


@dataclass(frozen=True, slots=True)
class Atlas:
    """The whole table, entries sorted by function and flags. `inputs` is the digest of all inputs."""

    lane: Lane
    device: str | None
    driver: str | None
    arch: str
    started_at: str
    compiler: str
    flags: tuple[tuple[str, tuple[str, ...]], ...]  # name, and the options that every source had
    versions: tuple[str, ...]
    inputs: str
    count: int  # inputs of each function
    exact: bool  # whether exact values were looked at
    entries: tuple[Entry, ...]
    complete: bool = True  # whether the run came to its end

    @property
    def notes(self) -> dict[str, tuple[str, ...]]:
        """What results note, with the functions that note it."""
        found: dict[str, dict[str, None]] = {}
        for entry in self.entries:
            for note in entry.notes:
                found.setdefault(note, {})[entry.function] = None
        return {note: tuple(names) for note, names in found.items()}

    @property
    def moves(self) -> tuple[tuple[Entry, Move], ...]:
        return tuple((entry, move) for entry in self.entries for move in entry.moves)


def signature(row: Function) -> str:
    """`float atan2f(float, float)`."""
    return f"{row.result} {row.name}({', '.join(argument.type for argument in row.arguments)})"


def atlas_of(
    run: Run,
    results: Iterable[Result],
    rows: Sequence[Function],
    fetch: Fetch,
    arrays: Arrays,
    exact: Exact | None,
) -> Atlas:
    """The table of a run's results. `fetch` gives a pattern's bytes, `arrays` an input's elements."""
    by_name = {row.name: row for row in rows}
    found: dict[tuple[str, str], list[Result]] = {}
    options: dict[str, tuple[str, ...]] = {}
    for result in results:
        if result.build is None or result.kernel.name not in by_name:
            continue
        flags = result.profile.removesuffix(f"-{result.build.toolchain.version}")
        found.setdefault((result.kernel.name, flags), []).append(result)
        options.setdefault(flags, tuple(o for o in result.build.options if not o.startswith("-arch")))
    maker = _Maker(fetch, arrays, exact)
    entries = [maker.entry(by_name[name], flags, same) for (name, flags), same in sorted(found.items())]
    everything = [result for same in found.values() for result in same]
    digests = {r.kernel.name: r.input_digest for r in everything if r.input_digest}
    device = run.environment.device
    compilers = sorted({r.build.toolchain.compiler for r in everything if r.build})
    return Atlas(
        lane=run.lane,
        device=device.name if device else None,
        driver=run.environment.driver,
        arch=", ".join(sorted({r.arch for r in everything})),
        started_at=run.started_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        compiler=", ".join(compilers),
        flags=tuple(sorted(options.items())),
        versions=_versions(everything),
        inputs=content_key("reprodb.atlas.inputs/1", *(f"{n}={d}" for n, d in sorted(digests.items()))),
        count=max((r.case.n for r in everything), default=0),
        exact=exact is not None,
        entries=tuple(entries),
        complete=run.complete,
    )


def narrowed(atlas: Atlas, functions: Collection[str], flags: Iterable[str]) -> Atlas:
    """The table of some functions and of the flags whose names match any glob. The input digest stays."""
    globs = tuple(flags)

    def wanted(name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in globs)

    return replace(
        atlas,
        flags=tuple(each for each in atlas.flags if wanted(each[0])),
        entries=tuple(e for e in atlas.entries if e.function in functions and wanted(e.flags)),
    )


def _version(result: Result) -> str:
    return result.build.toolchain.version if result.build else ""


def _versions(results: Iterable[Result]) -> tuple[str, ...]:
    from packaging.version import Version

    return tuple(sorted({_version(result) for result in results}, key=Version))


class _Maker:
    """Makes entries; compares each pair of patterns once, whatever flags and steps show it."""

    def __init__(self, fetch: Fetch, arrays: Arrays, exact: Exact | None) -> None:
        self._fetch = fetch
        self._arrays = arrays
        self._exact = exact

    def entry(self, row: Function, flags: str, results: Sequence[Result]) -> Entry:
        order = _versions(results)
        ordered = sorted(results, key=lambda result: order.index(_version(result)))
        good = [r for r in ordered if r.status is Status.OK]
        spans: list[Span] = []
        for result in good:
            digest = result.results[0].sha256
            if spans and spans[-1].sha256 == digest:
                spans[-1] = Span((*spans[-1].versions, _version(result)), digest)
            else:
                spans.append(Span((_version(result),), digest))
        moves, only, unknown = [], [], []
        for before, after in pairwise(good):
            step = _version(after)
            if before.results[0].sha256 != after.results[0].sha256:
                moves.append(self._move(row, before, after))
            elif (codes := (_code(before), _code(after))) and None in codes:
                unknown.append(step)
            elif codes[0] != codes[1]:
                only.append(step)
        return Entry(
            function=row.name,
            flags=flags,
            source=row.source,
            signature=signature(row),
            inputs=next((r.input_digest for r in good), ""),
            spans=tuple(spans),
            moves=tuple(moves),
            code_only=tuple(only),
            code_unknown=tuple(unknown),
            absences=_absences(r for r in ordered if r.status is not Status.OK),
            unstable=tuple(_version(r) for r in good if r.results[0].distinct > 1),
            notes=tuple(dict.fromkeys(note for r in good for note in r.notes)),
        )

    def _move(self, row: Function, before: Result, after: Result) -> Move:
        import numpy as np

        a, b = (to_bits(self._fetch(r.results[0].sha256), row.dtype) for r in (before, after))
        where = np.flatnonzero(a != b)
        before_nan, after_nan = (nan_mask(side[where], row.dtype) for side in (a, b))
        nans = before_nan | after_nan
        distance = None
        chosen = int(where[0])
        if is_float(row.dtype) and not nans.all():
            ulps, defined = ulp_distance(a[where], b[where], row.dtype)
            distance = int(ulps.max())
            chosen = int(where[int(np.flatnonzero(defined & (ulps == ulps.max()))[0])])
        arguments = [self._arrays(wanted) for wanted in before.case.inputs]
        words = [_as_words(array) for array in arguments]
        return Move(
            before=_version(before),
            after=_version(after),
            changed=len(where),
            of=len(a),
            max_ulp=distance,
            nans=int(nans.sum()),
            example=self._example(row, words, a, b, chosen),
            nearness=self._nearness(row, words, a, b, where),
            nan_to_nan=int((before_nan & after_nan).sum()),
        )

    def _example(self, row: Function, words: Sequence[Any], a: Any, b: Any, at: int) -> Example:
        arguments = tuple(
            _word(column[at : at + 1], argument.dtype)
            for column, argument in zip(words, row.arguments, strict=True)
        )
        before, after = (_word(side[at : at + 1], row.dtype) for side in (a, b))
        value = self._value(row, words, at)
        if value is None or self._exact is None:
            return Example(arguments, before, after)
        errors = [self._exact.error(value, _number(side, at, row.dtype), row.dtype) for side in (a, b)]
        return Example(arguments, before, after, self._exact.shown(value), *errors)

    def _nearness(
        self, row: Function, words: Sequence[Any], a: Any, b: Any, where: Indexes
    ) -> Nearness | None:
        if self._exact is None:
            return None
        # Evenly over the moved inputs, the first of them among those.
        step = max(1, -(-len(where) // LOOKED_AT))
        counts, worst, looked = [0, 0], [0.0, 0.0], 0
        for at in where[::step].tolist():
            value = self._value(row, words, at)
            if value is None:
                continue
            errors = [self._exact.error(value, _number(side, at, row.dtype), row.dtype) for side in (a, b)]
            if errors[0] is None or errors[1] is None:
                continue
            looked += 1
            worst = [max(w, e or 0.0) for w, e in zip(worst, errors, strict=True)]
            if errors[0] != errors[1]:
                counts[errors[1] < errors[0]] += 1
        return Nearness(looked, counts[0], counts[1], worst[0], worst[1]) if looked else None

    def _value(self, row: Function, words: Sequence[Any], at: int) -> Any:
        if self._exact is None or not is_float(row.dtype):
            return None
        pairs = zip(words, row.arguments, strict=True)
        return self._exact.value(row.exact, [_number(column, at, a.dtype) for column, a in pairs])


def _as_words(array: Any) -> Any:
    """An input's elements as unsigned words; a half that travels as its bits is one already."""
    return array.view(f"<u{array.itemsize}")


def _number(words: Any, at: int, dtype: str) -> float | int:
    number: float | int = values_of(words[at : at + 1], dtype)[0].item()
    return number


def _word(words: Any, dtype: str) -> Word:
    return Word(hex_word(int(words[0]), dtype), plain(values_of(words, dtype)[0]))


def _code(result: Result) -> str | None:
    """The function's own SASS, by digest."""
    code = result.build.code if result.build else None
    return code.sass if code else None


def _absences(results: Iterable[Result]) -> tuple[Absence, ...]:
    groups: dict[tuple[str, str], list[str]] = {}
    for result in results:
        reason = next((line.strip() for line in result.error.splitlines() if line.strip()), "no reason given")
        groups.setdefault((result.status.value, reason), []).append(_version(result))
    return tuple(Absence(tuple(versions), *key) for key, versions in groups.items())
