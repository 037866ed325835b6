"""`reprodb.toml` → `Policy`: what gates, what is expected to differ, what must be equal, when nights come."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from reprodb import tomltext
from reprodb.errors import UsageError
from reprodb.findings import Comparison, Moved, Verdict

# The verdicts that may gate, in the order in which they are written; the rest is only ever said.
GATEABLE = (
    Verdict.DETERMINISM_LOST,
    Verdict.CHANGED,
    Verdict.MISSING,
    Verdict.NO_RESULT,
    Verdict.LATENT,
    Verdict.NEW,
)
DEFAULT_VERDICTS = GATEABLE[:4]
FILE_NAME = "reprodb.toml"


class NewHistory(StrEnum):
    """What happens to bits that moved with the kernel's source."""

    GATE = "gate"  # until they are blessed
    ACCEPT = "accept"  # they are said, and the reference from then on


@dataclass(frozen=True, slots=True)
class Override:
    """What a group of kernels gates by instead, by glob on the kernel's name. None keeps the general rule."""

    kernel: str
    verdicts: tuple[Verdict, ...] | None = None
    rel_tol: float | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """A difference that somebody announced: it does not gate until `until` (that day included).

    `kernel`, `profile` and `case` are globs. `moved` narrows it to differences that moved this field and
    no other.
    """

    kernel: str
    reason: str
    profile: str = "*"
    case: str = "*"
    verdict: Verdict = Verdict.CHANGED
    moved: Moved | None = None
    until: date | None = None

    def expired(self, today: date) -> bool:
        return self.until is not None and today > self.until

    def covers(self, comparison: Comparison) -> bool:
        """Whether the row is one that this is about; its verdict is not looked at."""
        result = comparison.either
        return (
            fnmatchcase(comparison.kernel, self.kernel)
            and fnmatchcase(result.profile, self.profile)
            and fnmatchcase(comparison.case, self.case)
        )

    def allows(self, comparison: Comparison) -> bool:
        """Whether the row differs just as announced."""
        if not self.covers(comparison) or comparison.verdict is not self.verdict:
            return False
        if self.moved is None:
            return True
        return comparison.attribution is not None and comparison.attribution.moved == (self.moved,)


@dataclass(frozen=True, slots=True)
class RequireEqual:
    """Profiles whose bits must be equal, for the kernels that match; arrival-order kernels never count."""

    profiles: tuple[str, ...]
    kernels: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class Project:
    """Where a repository keeps suite and profiles, from the file's folder; None leaves the bundled ones."""

    suite: str | None = None
    profiles: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of a gate. The defaults are what applies without a file."""

    verdicts: tuple[Verdict, ...] = DEFAULT_VERDICTS
    accuracy: bool = True  # accuracy outside its tolerance gates
    require_baseline: bool = False
    new_history: NewHistory = NewHistory.GATE
    profiles: tuple[str, ...] = ()  # profiles that must have run
    rel_tol: float | None = None  # instead of the cases' own tolerances
    overrides: tuple[Override, ...] = ()
    expect: tuple[Expectation, ...] = ()
    require_equal: tuple[RequireEqual, ...] = ()
    every: timedelta | None = None  # how often a nightly is expected; None: not said
    project: Project = Project()

    def verdicts_of(self, kernel: str) -> tuple[Verdict, ...]:
        """What gates a kernel: of the overrides that match and say so, the last."""
        said = [
            o.verdicts for o in self.overrides if o.verdicts is not None and fnmatchcase(kernel, o.kernel)
        ]
        return said[-1] if said else self.verdicts

    def rel_tol_of(self, kernel: str) -> float | None:
        """The tolerance that stands instead of a case's own, None where there is none."""
        said = [o.rel_tol for o in self.overrides if o.rel_tol is not None and fnmatchcase(kernel, o.kernel)]
        return said[-1] if said else self.rel_tol

    def text(self) -> str:
        """The whole policy as canonical TOML, defaults included: what is stored with a run."""
        lines = [
            "[gate]",
            f"verdicts = {tomltext.strings(v.value for v in self.verdicts)}",
            f"accuracy = {tomltext.boolean(self.accuracy)}",
            f"require_baseline = {tomltext.boolean(self.require_baseline)}",
            f"new_history = {tomltext.string(self.new_history)}",
            f"profiles = {tomltext.strings(self.profiles)}",
        ]
        if self.rel_tol is not None:
            lines.append(f"rel_tol = {self.rel_tol!r}")
        for override in self.overrides:
            lines += ["", "[[kernel]]", f"name = {tomltext.string(override.kernel)}"]
            if override.verdicts is not None:
                lines.append(f"verdicts = {tomltext.strings(v.value for v in override.verdicts)}")
            if override.rel_tol is not None:
                lines.append(f"rel_tol = {override.rel_tol!r}")
        for e in self.expect:
            lines += ["", "[[expect]]"]
            lines += [
                f"{key} = {tomltext.string(getattr(e, key))}"
                for key in ("kernel", "profile", "case", "verdict")
            ]
            if e.moved is not None:
                lines.append(f"moved = {tomltext.string(e.moved)}")
            lines.append(f"reason = {tomltext.string(e.reason)}")
            if e.until is not None:
                lines.append(f"until = {e.until.isoformat()}")
        for equal in self.require_equal:
            lines += [
                "",
                "[[require_equal]]",
                f"profiles = {tomltext.strings(equal.profiles)}",
                f"kernels = {tomltext.strings(equal.kernels)}",
            ]
        if self.every is not None:
            lines += ["", "[nightly]", f"every = {tomltext.string(_span_text(self.every))}"]
        places = {"suite": self.project.suite, "profiles": self.project.profiles}
        if any(places.values()):
            lines += ["", "[project]"]
            lines += [f"{key} = {tomltext.string(place)}" for key, place in places.items() if place]
        return "\n".join(lines) + "\n"


# --- Reading -----------------------------------------------------------------------------------


class _Table:
    """One table of the file, read key by key; every complaint names file, table and key."""

    def __init__(self, source: str, where: str, table: Any, allowed: tuple[str, ...]) -> None:
        self.source, self.where = source, where
        if not isinstance(table, dict):
            raise self.wrong(f"{where} is {table!r}", "a table")
        self.table: Mapping[str, Any] = table
        for key in table:
            if key not in allowed:
                raise self.wrong(f"unknown key {key!r}", ", ".join(allowed), _nearest(key, allowed))

    def wrong(self, problem: str, allowed: str, remedy: str = "") -> UsageError:
        return UsageError(f"{self.source}: {self.where}: {problem}", allowed=allowed, remedy=remedy)

    def boolean(self, key: str, default: bool) -> bool:
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(f"{key} = {value!r}", "true or false")
        return value

    def string(self, key: str, default: str | None = None) -> str:
        value = self.table.get(key, default)
        if value is None:
            raise self.wrong(f"{key} is missing", "a string")
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(f"{key} = {value!r}", "a string that is not empty")
        return value

    def strings(self, key: str, default: tuple[str, ...] = (), least: int = 0) -> tuple[str, ...]:
        value = self.table.get(key, list(default))
        if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
            raise self.wrong(f"{key} = {value!r}", "a list of strings")
        if len(set(value)) < max(least, len(value)):
            need = f"at least {least} different strings" if least else "different strings"
            raise self.wrong(f"{key} = {value!r}", need)
        return tuple(value)

    def tolerance(self, key: str) -> float | None:
        value = self.table.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.wrong(f"{key} = {value!r}", "a number from 0 up to 1, such as 1e-5")
        return float(value)

    def verdict(self, key: str, word: object) -> Verdict:
        allowed = tuple(v.value for v in GATEABLE)
        if word not in allowed:
            why = " never gates" if word in tuple(Verdict) else ""
            raise self.wrong(f"{key}: {word!r}{why}", ", ".join(allowed), _nearest(str(word), allowed))
        return Verdict(str(word))

    def verdicts(self, key: str) -> tuple[Verdict, ...] | None:
        if key not in self.table:
            return None
        found = {self.verdict(key, word) for word in self.strings(key)}
        return tuple(v for v in GATEABLE if v in found)

    def moved(self, key: str) -> Moved | None:
        word = self.table.get(key)
        if word is None:
            return None
        allowed = tuple(m.value for m in Moved)
        if word not in allowed:
            raise self.wrong(f"{key} = {word!r}", ", ".join(allowed), _nearest(str(word), allowed))
        return Moved(str(word))

    def new_history(self, key: str) -> NewHistory:
        word = self.table.get(key, NewHistory.GATE)
        allowed = tuple(n.value for n in NewHistory)
        if word not in allowed:
            raise self.wrong(f"{key} = {word!r}", ", ".join(allowed), _nearest(str(word), allowed))
        return NewHistory(word)

    def day(self, key: str) -> date | None:
        value = self.table.get(key)
        if isinstance(value, str):
            try:
                value = date.fromisoformat(value)
            except ValueError:
                raise self.wrong(f"{key} = {value!r}", "a day such as 2026-12-31") from None
        # A TOML date with a time is a datetime, which is a date too: the day alone is meant here.
        if value is not None and type(value) is not date:
            raise self.wrong(f"{key} = {value!r}", "a day such as 2026-12-31")
        return value

    def span(self, key: str) -> timedelta | None:
        value = self.table.get(key)
        if value is None:
            return None
        found = _SPAN.fullmatch(value) if isinstance(value, str) else None
        hours = int(found[1]) * (24 if found[2] == "d" else 1) if found else 0
        if not 1 <= hours <= _LONGEST_HOURS:
            raise self.wrong(f"{key} = {value!r}", 'hours or days, from "1h" to "366d"')
        return timedelta(hours=hours)

    def place(self, key: str) -> str | None:
        """A path below the file's folder, in plain names."""
        value = self.table.get(key)
        if value is None:
            return None
        parts = value.split("/") if isinstance(value, str) else [""]
        if not all(_PLACE.fullmatch(part) for part in parts):
            raise self.wrong(f"{key} = {value!r}", "a path below this file's folder, such as gpu/kernels")
        return str(value)


# How often, and where: what a repository says of itself.
_SPAN = re.compile(r"([0-9]{1,5})([hd])")
_LONGEST_HOURS = 366 * 24
_PLACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")


def _span_text(span: timedelta) -> str:
    return f"{int(span.total_seconds() // 3600)}h"


def _nearest(word: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(allowed), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _tables(source: str, data: Mapping[str, Any], key: str) -> list[tuple[str, Any]]:
    tables = data.get(key, [])
    if not isinstance(tables, list):
        raise UsageError(f"{source}: {key} is not a list of tables", allowed=f"[[{key}]]")
    return [(f"[[{key}]] {number}", table) for number, table in enumerate(tables, 1)]


def parse_policy(text: str, source: str = FILE_NAME) -> Policy:
    """The policy of a text. Raises UsageError naming file, table, key, value and what is allowed."""
    try:
        data = tomltext.read(text)
    except tomltext.NotTomlError as error:
        raise UsageError(f"{source}: not TOML: {error}", remedy="mend the file at that place") from None
    _Table(source, "top level", data, ("gate", "kernel", "expect", "require_equal", "nightly", "project"))
    nightly = _Table(source, "[nightly]", data.get("nightly", {}), ("every",))
    project = _Table(source, "[project]", data.get("project", {}), ("suite", "profiles"))
    gate = _Table(
        source,
        "[gate]",
        data.get("gate", {}),
        ("verdicts", "accuracy", "require_baseline", "new_history", "profiles", "rel_tol"),
    )
    overrides = []
    for where, raw in _tables(source, data, "kernel"):
        table = _Table(source, where, raw, ("name", "verdicts", "rel_tol"))
        overrides.append(
            Override(table.string("name"), table.verdicts("verdicts"), table.tolerance("rel_tol"))
        )
    expect = []
    for where, raw in _tables(source, data, "expect"):
        table = _Table(
            source, where, raw, ("kernel", "profile", "case", "verdict", "moved", "reason", "until")
        )
        expect.append(
            Expectation(
                kernel=table.string("kernel"),
                reason=table.string("reason"),
                profile=table.string("profile", "*"),
                case=table.string("case", "*"),
                verdict=table.verdict("verdict", table.table.get("verdict", "changed")),
                moved=table.moved("moved"),
                until=table.day("until"),
            )
        )
    equal = []
    for where, raw in _tables(source, data, "require_equal"):
        table = _Table(source, where, raw, ("profiles", "kernels"))
        equal.append(RequireEqual(table.strings("profiles", least=2), table.strings("kernels", ("*",))))
    verdicts = gate.verdicts("verdicts")
    return Policy(
        verdicts=DEFAULT_VERDICTS if verdicts is None else verdicts,
        accuracy=gate.boolean("accuracy", True),
        require_baseline=gate.boolean("require_baseline", False),
        new_history=gate.new_history("new_history"),
        profiles=gate.strings("profiles"),
        rel_tol=gate.tolerance("rel_tol"),
        overrides=tuple(overrides),
        expect=tuple(expect),
        require_equal=tuple(equal),
        every=nightly.span("every"),
        project=Project(project.place("suite"), project.place("profiles")),
    )


def load_policy(path: Path | None) -> Policy:
    """The policy of a file; the defaults where `path` is None. Raises UsageError where it cannot be read."""
    if path is None:
        return Policy()
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"policy {path} cannot be read: {why}", allowed="a TOML file in UTF-8", remedy="check the path"
        ) from None
    return parse_policy(text, str(path))
