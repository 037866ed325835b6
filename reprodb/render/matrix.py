"""The profile matrix as a table to read at a glance: a letter for bits, a number for code."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_uppercase

from reprodb.findings import MatrixGroup, MatrixRow


@dataclass(frozen=True, slots=True)
class Flag:
    """A finding of the page about one cell: its anchor, its verdict in a word, its tone."""

    anchor: str
    label: str
    tone: str


# (kernel, case, profile as the matrix names it) → the finding about it.
Flags = Mapping[tuple[str, str, str], Flag]


@dataclass(frozen=True, slots=True)
class Cell:
    """One profile of a row. Equal labels are equal bits; `code` numbers the groups of equal code."""

    profile: str
    label: str  # A, A′ (the result of A, other witness bits), B, …; ~ varies by nature; ∅ nothing ran
    code: int | None
    distinct: int
    reference: bool
    status: str = ""  # why nothing ran
    flag: Flag | None = None

    @property
    def look(self) -> str:
        """How loud the cell is: a finding's tone, quiet where the reference has its bits, else its letter's.

        `0` is the first letter of a row, `1` one that shares its result, `2` the others.
        """
        if self.flag is not None:
            return self.flag.tone
        if self.reference:
            return "held"
        return "g0" if self.label == "A" else "g1" if "′" in self.label else "g2"


@dataclass(frozen=True, slots=True)
class Legend:
    """What a letter stands for. `latent` names the letter whose result it shares."""

    label: str
    group: MatrixGroup
    latent: str | None

    @property
    def run_hash(self) -> str:
        """The hash of the repetitions where one word repeats: what people read and compare."""
        group = self.group
        return group.run_hash if group.distinct == 1 and group.bits.startswith("0x") else ""

    @property
    def bits(self) -> str:
        """`0x4b25426d run hash 0x8189389fe1bc0a65`, `digest 31414c23006179b7`, `3 patterns`."""
        return f"{self.word} run hash {self.run_hash}" if self.run_hash else self.word

    @property
    def word(self) -> str:
        """The bits alone, or what stands for them."""
        group = self.group
        if group.distinct > 1:
            return f"{group.distinct:,} patterns"
        return (
            group.bits if group.bits.startswith("0x") else f"digest {group.bits}" if group.bits else "no bits"
        )


@dataclass(frozen=True, slots=True)
class TableRow:
    row: MatrixRow
    cells: tuple[Cell | None, ...]  # in the table's order of profiles; None where the row has no such profile
    legends: tuple[Legend, ...]

    @property
    def uniform(self) -> bool:
        """Whether every profile that ran has the same result and witness bits."""
        return len(self.legends) <= 1


@dataclass(frozen=True, slots=True)
class Inert:
    """Profiles that build the same code, and the kernels for which they do."""

    profiles: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    profiles: tuple[str, ...]
    rows: tuple[TableRow, ...]
    inert: tuple[Inert, ...]

    @property
    def has_latent(self) -> bool:
        return any(legend.latent for row in self.rows for legend in row.legends)

    @property
    def has_flags(self) -> bool:
        return any(cell and cell.flag for row in self.rows for cell in row.cells)

    @property
    def has_reference(self) -> bool:
        return any(cell and cell.reference for row in self.rows for cell in row.cells)


def table(rows: Iterable[MatrixRow], flags: Flags | None = None) -> Table:
    """The matrix with one column a profile: `default` first, the others by name."""
    ordered = sorted(rows, key=lambda r: (r.kernel, r.case))
    names = {p for row in ordered for g in row.groups for p in g.profiles}
    names |= {profile for row in ordered for profile, _ in row.no_result}
    profiles = tuple(sorted(names, key=_place))
    inert: dict[tuple[str, ...], list[str]] = {}
    for row in ordered:
        for group in row.inert:
            inert.setdefault(tuple(sorted(group, key=_place)), []).append(row.kernel)
    quiet = tuple(Inert(group, tuple(dict.fromkeys(kernels))) for group, kernels in sorted(inert.items()))
    return Table(profiles, tuple(_row(row, profiles, flags or {}) for row in ordered), quiet)


def _place(profile: str) -> tuple[bool, str]:
    """`default` first, the others by name."""
    return (profile != "default", profile)


def _row(row: MatrixRow, profiles: tuple[str, ...], flags: Flags) -> TableRow:
    legends = _legends(row) if row.guaranteed else ()
    label = {legend.group.profiles: legend.label for legend in legends}
    # Numbered along the columns: the order in which results came says nothing.
    ordered = sorted(row.code_groups, key=lambda group: min(map(_place, group)))
    code = {profile: n for n, group in enumerate(ordered, 1) for profile in group}

    def flag(profile: str) -> Flag | None:
        return flags.get((row.kernel, row.case, profile))

    cells: dict[str, Cell] = {
        profile: Cell(profile, "∅", code.get(profile), 0, False, status, flag(profile))
        for profile, status in row.no_result
    }
    for group in row.groups:
        for profile in group.profiles:
            shown = label.get(group.profiles, "~")
            # A profile that was compared with nothing held nothing, whatever another one's reference is.
            held = group.reference and profile not in group.unreferenced
            cells[profile] = Cell(profile, shown, code.get(profile), group.distinct, held, flag=flag(profile))
    return TableRow(row, tuple(cells.get(profile) for profile in profiles), legends)


def _legends(row: MatrixRow) -> tuple[Legend, ...]:
    """Letters by result bits, the reference's first; primes where only the witness differs."""
    groups = sorted(row.groups, key=lambda g: (not g.reference, "default" not in g.profiles, g.profiles))
    letters: dict[tuple[str, str], str] = {}
    seen: dict[str, int] = {}
    legends = []
    for group in groups:
        place = len(letters)
        letter = letters.setdefault(
            (group.bits, group.run_hash),
            ascii_uppercase[place] if place < len(ascii_uppercase) else f"Z{place}",
        )
        primes = seen.get(letter, 0)
        seen[letter] = primes + 1
        mark = "′" * primes if primes <= 3 else f"′{primes}"
        legends.append(Legend(letter + mark, group, letter if primes else None))
    return tuple(legends)
