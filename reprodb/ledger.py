"""`reprodb.lock`: the blessings of a suite, a sorted text file whose history is only ever added to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from reprodb import tomltext
from reprodb.bits import from_hex
from reprodb.digest import content_key, run_hash
from reprodb.domain import (
    Accuracy,
    Case,
    Determinism,
    Kernel,
    Lane,
    Output,
    Pairs,
    Pattern,
    Result,
    Run,
    Scope,
    Status,
    scope_of,
)
from reprodb.errors import UsageError
from reprodb.files import replace_file

FILE_NAME = "reprodb.lock"
_HEADER = """\
# The blessed bits of this suite, kept by `reprodb bless`. Commit this file: a blessing is a reviewed change.
# Blocks are sorted and never edited; what no longer holds is withdrawn by a block of its own.
"""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BITS = re.compile(r"0x(?:[0-9a-f]{2}){1,8}")
_EXPIRY = re.compile(r"(\d{1,5})\s*([dw])")
# Of git: ours, the common ancestor's, the divide, theirs. No line of a ledger begins like that.
_CONFLICT = re.compile(r"^(?:<{7}|\|{7}|={7}|>{7})(?=[ \r\n]|\Z)", re.MULTILINE)


_Record = TypeVar("_Record")


def parse_expiry(text: str) -> timedelta:
    """`90d` or `12w` as a time span. Raises UsageError."""
    match = _EXPIRY.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise UsageError(f"cannot expire after {text!r}", allowed="days or weeks: 90d, 12w")
    return timedelta(days=int(match[1]) * (7 if match[2] == "w" else 1))


# --- Records -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Blessing:
    """The decision that these bits are a scope's baseline: who, why and when, and what they replaced.

    `sha256` has the digest of every guaranteed output, `bits` the hex of those of one element.
    """

    scope: Scope
    sha256: Pairs
    bits: Pairs
    source: str  # digest of the sources; another one starts a new history
    input: str  # digest of the inputs; likewise
    toolchain: str
    run: str  # uid
    changed: str  # what changed against the reference before, in words
    who: str
    why: str
    when: datetime
    expires: datetime | None = None

    @property
    def id(self) -> str:
        return content_key("reprodb.blessing/1", *_lines(self))[:12]

    def in_force(self, now: datetime) -> bool:
        return self.expires is None or now < self.expires

    def holds(self, result: Result) -> bool:
        """Whether a result has exactly these bits."""
        return self.sha256 == _digests(result)

    def same_history(self, result: Result) -> bool:
        """Whether a result has the blessed sources and inputs; otherwise another history has begun."""
        source = result.build.source_digest if result.build else ""
        return (self.source, self.input) == (source, result.input_digest)

    def reference(self, row: Result) -> Result:
        """The blessed result as far as the ledger knows it, shaped like `row`, a result of the same scope.

        Digests always, bytes for one-element outputs only; outputs that the blessing does not name are left
        out. What built it is not known.
        """
        digests, words = dict(self.sha256), dict(self.bits)
        outputs = []
        for output in row.outputs:
            if output.name in digests:
                data = from_hex(words[output.name]) if output.name in words else None
                sequence = (0,) * row.repetitions
                outputs.append(
                    replace(
                        output,
                        patterns=(Pattern(digests[output.name], row.repetitions, 0, data),),
                        sequence=sequence,
                        run_hash=run_hash([data], sequence) if data is not None else 0,
                        first_bits=words.get(output.name),
                    )
                )
        return replace(
            row,
            outputs=tuple(outputs),
            status=Status.OK,
            build=None,
            input_digest=self.input,
            error="",
            notes=(),
            id=None,
        )

    def row(self) -> Result:
        """The blessed row as far as the ledger alone knows it: its names, and no bits to look at."""
        scope = self.scope
        case = Case(scope.case, 0, (), ())
        kernel = Kernel(
            name=scope.kernel,
            source="",
            operation="",
            determinism=Determinism.RUN_TO_RUN,
            accumulator="",
            defines=(),
            shape_defines=(),
            stages=(),
            cases=(case,),
        )
        return Result(
            kernel=kernel,
            case=case,
            profile=scope.profile,
            arch=scope.arch,
            lane=scope.lane,
            status=Status.OK,
            repetitions=0,
            input_digest=self.input,
            condition=scope.condition,
        )


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The decision that a blessing counts no longer, from `when` on."""

    blessing: str  # its id
    who: str
    why: str
    when: datetime


@dataclass(frozen=True, slots=True)
class Retirement:
    """The decision that a scope's row is gone on purpose: nothing from before `when` is its reference."""

    scope: Scope
    who: str
    why: str
    when: datetime


def _to_the_millisecond(moment: datetime) -> datetime:
    """UTC, so precise that two decisions of one script have an order."""
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _scope_pairs(scope: Scope) -> Pairs:
    pairs = [
        ("suite", scope.suite),
        ("kernel", scope.kernel),
        ("case", scope.case),
        ("profile", scope.profile),
        ("arch", scope.arch),
        ("lane", scope.lane.value),
    ]
    if scope.gpu is not None:
        pairs.append(("gpu", scope.gpu))
    return (*pairs, ("condition", scope.condition))


def _lines(record: Blessing | Withdrawal | Retirement) -> list[str]:
    """The lines of a record's block, without its head and id."""
    if not isinstance(record, Blessing):
        pairs = (
            [("blessing", record.blessing)] if isinstance(record, Withdrawal) else _scope_pairs(record.scope)
        )
        pairs = [*pairs, ("who", record.who), ("why", record.why)]
        return [*(f"{k} = {tomltext.string(v)}" for k, v in pairs), f"when = {_time(record.when)}"]
    lines = [f"{k} = {tomltext.string(v)}" for k, v in _scope_pairs(record.scope)]
    lines += [
        f"bits = {tomltext.inline(dict(record.bits))}",
        f"sha256 = {tomltext.inline(dict(record.sha256))}",
    ]
    texts = ("source", "input", "toolchain", "run", "changed", "who", "why")
    lines += [f"{name} = {tomltext.string(getattr(record, name))}" for name in texts]
    lines.append(f"when = {_time(record.when)}")
    if record.expires is not None:
        lines.append(f"expires = {_time(record.expires)}")
    return lines


def _digests(result: Result) -> Pairs:
    return tuple(sorted((o.name, o.sha256) for o in result.outputs if o.determinism.guaranteed))


def _words(result: Result) -> Pairs:
    return tuple(
        sorted((o.name, o.first_bits) for o in result.outputs if o.determinism.guaranteed and o.first_bits)
    )


# --- The ledger --------------------------------------------------------------------------------


def _refuse(result: Result, problem: str, remedy: str) -> UsageError:
    name = f"{result.kernel.name} {result.case.name} ({result.profile}, {result.arch})"
    return UsageError(
        f"cannot bless {name}: {problem}",
        allowed="results with one pattern in each guaranteed output, and accuracy within tolerance",
        remedy=remedy,
    )


def check_words(decision: str, who: str, why: str) -> None:
    """Raises UsageError for a decision without a reason or a name."""
    if not why.strip():
        raise UsageError(f"a {decision} needs a reason", remedy='say why: --reason "…"')
    if not who.strip():
        raise UsageError(f"a {decision} needs a name", remedy="say who decides: --who NAME")


def _broken(outputs: tuple[Output, ...]) -> Output | None:
    return next((o for o in outputs if o.determinism.guaranteed and o.distinct > 1), None)


@dataclass(frozen=True, slots=True)
class Ledger:
    """All records. Every change is a new ledger with one record more; none is edited or removed."""

    blessings: tuple[Blessing, ...] = ()
    withdrawals: tuple[Withdrawal, ...] = ()
    retirements: tuple[Retirement, ...] = ()

    def withdrawal_of(self, blessing: Blessing) -> Withdrawal | None:
        return next((w for w in self.withdrawals if w.blessing == blessing.id), None)

    def retired(self, now: datetime) -> Mapping[Scope, datetime]:
        """Scopes that were retired by `now`, with the latest time: what is older is no reference there."""
        past = (r for r in self.retirements if r.when <= now)
        return {r.scope: r.when for r in sorted(past, key=lambda r: r.when)}

    def ends(self, blessing: Blessing) -> datetime | None:
        """When a blessing stops counting (expiry, withdrawal or retirement, the earliest), None: never."""
        withdrawn = self.withdrawal_of(blessing)
        ends = [r.when for r in self.retirements if r.scope == blessing.scope and r.when >= blessing.when]
        ends += [end for end in (blessing.expires, withdrawn.when if withdrawn else None) if end is not None]
        return min(ends, default=None)

    def how_ended(self, blessing: Blessing) -> str:
        """Withdrawn, expired or retired: the earliest of what ended a blessing; empty where nothing did."""
        withdrawn, end = self.withdrawal_of(blessing), self.ends(blessing)
        if end is None:
            return ""
        if withdrawn is not None and withdrawn.when == end:
            return "withdrawn"
        return "expired" if blessing.expires == end else "retired"

    def _counting(self, now: datetime) -> tuple[list[Blessing], list[Blessing]]:
        """The blessings made by `now`, oldest first: those that count then, and those that have ended."""
        active: list[Blessing] = []
        ended: list[Blessing] = []
        for blessing in sorted(self.blessings, key=lambda b: (b.when, b.id)):
            if blessing.when <= now:
                end = self.ends(blessing)
                (active if end is None or now < end else ended).append(blessing)
        return active, ended

    def until(self, when: datetime) -> Ledger:
        """What had been decided by a time."""
        return Ledger(
            tuple(b for b in self.blessings if b.when <= when),
            tuple(w for w in self.withdrawals if w.when <= when),
            tuple(r for r in self.retirements if r.when <= when),
        )

    def states(self, now: datetime) -> tuple[tuple[Blessing, str], ...]:
        """Blessings by scope and time: active, replaced (by a newer one), expired, withdrawn, retired."""
        active = {b.id for b in self.active(now).values()}
        found = []
        for blessing in sorted(self.blessings, key=lambda b: (_scope_pairs(b.scope), b.when, b.id)):
            end = self.ends(blessing)
            if end is None or now < end:
                state = "active" if blessing.id in active else "replaced"
            else:
                state = self.how_ended(blessing)
            found.append((blessing, state))
        return tuple(found)

    def active(self, now: datetime) -> Mapping[Scope, Blessing]:
        """Each scope's newest blessing that counts at `now`: made by then, not expired, not withdrawn."""
        return {blessing.scope: blessing for blessing in self._counting(now)[0]}

    def ended(self, now: datetime) -> Mapping[Scope, tuple[Blessing, ...]]:
        """Each scope's blessings that counted once and do not at `now`, the newest first."""
        found: dict[Scope, tuple[Blessing, ...]] = {}
        for blessing in self._counting(now)[1]:
            found[blessing.scope] = (blessing, *found.get(blessing.scope, ()))
        return found

    def check(self, result: Result) -> None:
        """Raises UsageError where a result must not become a baseline."""
        if result.status is not Status.OK:
            raise _refuse(result, f"it has no result ({result.status})", "mend what failed and run it again")
        if not any(o.determinism.guaranteed for o in result.outputs):
            raise _refuse(
                result,
                "its bits are not guaranteed, so they never gate",
                "leave it out: there is nothing to bless",
            )
        if output := _broken(result.outputs):
            raise _refuse(
                result,
                f"determinism is lost: {output.name} has {output.distinct} patterns",
                "find the race first: `reprodb show` names the repetitions",
            )
        if result.accuracy.verdict is Accuracy.OUTSIDE:
            error = result.accuracy.max_rel_err
            detail = f" (relative error {error:.3g})" if error is not None else ""
            raise _refuse(
                result,
                f"its accuracy is outside the tolerance{detail}",
                "a stable wrong answer is no baseline",
            )

    def bless(
        self,
        run: Run,
        result: Result,
        *,
        who: str,
        why: str,
        now: datetime,
        changed: str = "",
        expires: timedelta | None = None,
    ) -> Ledger:
        """The ledger with this result as its scope's baseline; itself where those bits already are, for good.

        Raises UsageError for a result whose determinism is lost, whose accuracy is outside or that has no
        guaranteed bits, and for an empty reason.
        """
        self.check(result)
        check_words("blessing", who, why)
        moment = _to_the_millisecond(now)
        blessing = Blessing(
            scope=scope_of(run, result),
            sha256=_digests(result),
            bits=_words(result),
            source=result.build.source_digest if result.build else "",
            input=result.input_digest,
            toolchain=result.build.toolchain.label if result.build else "",
            run=run.uid,
            changed=changed,
            who=who.strip(),
            why=why.strip(),
            when=moment,
            expires=moment + expires if expires is not None else None,
        )
        before = self.active(now).get(blessing.scope)
        known = before is not None and before.holds(result) and before.same_history(result)
        if before is not None and known and before.expires is None and expires is None:
            return self
        if any(b.id == blessing.id for b in self.blessings):
            return self
        return replace(self, blessings=(*self.blessings, blessing))

    def withdraw(self, ident: str, *, who: str, why: str, now: datetime) -> Ledger:
        """The ledger with one blessing counted no longer; `ident` is its id or the start of it."""
        found = [b for b in self.blessings if b.id.startswith(ident)] if ident else []
        if len(found) != 1:
            raise UsageError(
                f"{'no' if not found else 'more than one'} blessing has an id that starts with {ident!r}",
                allowed=", ".join(sorted(b.id for b in found or self.blessings))
                or "none: the ledger is empty",
                remedy="see `reprodb baselines`",
            )
        if (before := self.withdrawal_of(found[0])) is not None:
            raise UsageError(f"blessing {found[0].id} is already withdrawn, since {_time(before.when)}")
        check_words("withdrawal", who, why)
        moment = _to_the_millisecond(now)
        record = Withdrawal(found[0].id, who.strip(), why.strip(), moment)
        return replace(self, withdrawals=(*self.withdrawals, record))

    def retire(self, scope: Scope, *, who: str, why: str, now: datetime) -> Ledger:
        """The ledger in which the row of a scope is gone on purpose. If it returns, it starts anew."""
        check_words("retirement", who, why)
        moment = _to_the_millisecond(now)
        record = Retirement(scope, who.strip(), why.strip(), moment)
        return replace(self, retirements=(*self.retirements, record))

    def text(self) -> str:
        """The file: blessings by scope and time, withdrawals, retirements; equal ledgers give equal bytes."""
        blessings = sorted(self.blessings, key=lambda b: (_scope_pairs(b.scope), b.when, b.id))
        withdrawals = sorted(self.withdrawals, key=lambda w: (w.blessing, w.when))
        retirements = sorted(self.retirements, key=lambda r: (_scope_pairs(r.scope), r.when, r.who, r.why))
        blocks = [["[[blessing]]", f'id = "{b.id}"', *_lines(b)] for b in blessings]
        blocks += [["[[withdrawal]]", *_lines(w)] for w in withdrawals]
        blocks += [["[[retirement]]", *_lines(r)] for r in retirements]
        return "\n".join([_HEADER, *("\n".join(block) + "\n" for block in blocks)])

    def save(self, path: Path) -> None:
        """Write the file whole or not at all; where a link stands, the file that it leads to."""
        replace_file(path.resolve(), self.text().encode())


# --- Reading -----------------------------------------------------------------------------------

_SCOPE = ("suite", "kernel", "case", "profile", "arch", "lane", "condition")
_DECISION = ("who", "why")
_TEXTS = (*_SCOPE, "source", "input", "toolchain", "run", "changed", *_DECISION)


def _wrong(source: str, where: str, problem: str) -> UsageError:
    return UsageError(
        f"{source}: {where}: {problem}",
        remedy="take the block from the file's history, or bless anew; blocks are not edited by hand",
    )


def _moment(source: str, where: str, key: str, value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _wrong(source, where, f"{key} = {value!r} is not a time with its zone")
    return value.astimezone(UTC)


def _texts(source: str, where: str, table: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, str]:
    for key in keys:
        if not isinstance(table.get(key), str):
            raise _wrong(source, where, f"{key} = {table.get(key)!r} is not a string")
    return {key: table[key] for key in keys}


def _pairs(source: str, where: str, key: str, value: Any, form: re.Pattern[str]) -> Pairs:
    if not isinstance(value, dict) or not all(
        isinstance(v, str) and form.fullmatch(v) for v in value.values()
    ):
        raise _wrong(source, where, f"{key} = {value!r} is not a table of digests")
    return tuple(sorted(value.items()))


def _only(source: str, where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if unknown := sorted(table.keys() - set(known)):
        raise _wrong(source, where, f"unknown key {unknown[0]!r}")


def _scope(source: str, where: str, table: Mapping[str, Any]) -> Scope:
    """The scope that a block names; `gpu` only on the measured lane."""
    t = _texts(source, where, table, ("gpu", *_SCOPE) if "gpu" in table else _SCOPE)
    if t["lane"] not in tuple(Lane):
        raise _wrong(source, where, f"lane = {t['lane']!r} is none of {', '.join(Lane)}")
    return Scope(
        t["suite"], t["kernel"], t["case"], t["profile"], t["arch"], Lane(t["lane"]), t.get("gpu"),
        t["condition"],
    )  # fmt: skip


def _blessing(source: str, where: str, table: Mapping[str, Any]) -> Blessing:
    _only(source, where, table, ("id", "gpu", "bits", "sha256", "when", "expires", *_TEXTS))
    t = _texts(source, where, table, _TEXTS)
    blessing = Blessing(
        scope=_scope(source, where, table),
        sha256=_pairs(source, where, "sha256", table.get("sha256"), _SHA256),
        bits=_pairs(source, where, "bits", table.get("bits"), _BITS),
        source=t["source"],
        input=t["input"],
        toolchain=t["toolchain"],
        run=t["run"],
        changed=t["changed"],
        who=t["who"],
        why=t["why"],
        when=_moment(source, where, "when", table.get("when")),
        expires=_moment(source, where, "expires", table["expires"]) if "expires" in table else None,
    )
    if table.get("id") != blessing.id:
        raise _wrong(
            source, where, f"id {table.get('id')!r} does not belong to this block ({blessing.id} does)"
        )
    return blessing


def parse_ledger(text: str, source: str = FILE_NAME, elsewhere: Iterable[str] = ()) -> Ledger:
    """The ledger of a text. Raises UsageError for what is malformed, and for a block that was edited.

    `elsewhere` are ids of blessings that are not in this text and may be withdrawn in it.
    """
    if conflict := _CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        raise UsageError(
            f"{source}: a merge conflict is not resolved: {conflict[0]!r} in line {line}",
            remedy="`reprodb baselines merge` keeps what both sides decided",
        )
    try:
        data = tomltext.read(text)
    except tomltext.NotTomlError as error:
        remedy = "take the file, or its end, from its history"
        raise UsageError(f"{source}: not TOML: {error}", remedy=remedy) from None
    if unknown := sorted(data.keys() - {"blessing", "withdrawal", "retirement"}):
        raise _wrong(source, "top level", f"unknown table {unknown[0]!r}")
    blessings = []
    for number, table in enumerate(_blocks(source, data, "blessing"), 1):
        blessings.append(_blessing(source, f"[[blessing]] {number}", table))
    withdrawals = []
    ids = {*(b.id for b in blessings), *elsewhere}
    for number, table in enumerate(_blocks(source, data, "withdrawal"), 1):
        where = f"[[withdrawal]] {number}"
        _only(source, where, table, ("blessing", "when", *_DECISION))
        t = _texts(source, where, table, ("blessing", *_DECISION))
        if t["blessing"] not in ids:
            raise _wrong(source, where, f"there is no blessing {t['blessing']!r}")
        when = _moment(source, where, "when", table.get("when"))
        withdrawals.append(Withdrawal(t["blessing"], t["who"], t["why"], when))
    retirements = []
    for number, table in enumerate(_blocks(source, data, "retirement"), 1):
        where = f"[[retirement]] {number}"
        _only(source, where, table, ("gpu", "when", *_SCOPE, *_DECISION))
        t = _texts(source, where, table, _DECISION)
        when = _moment(source, where, "when", table.get("when"))
        retirements.append(Retirement(_scope(source, where, table), t["who"], t["why"], when))
    # Two branches that have the same block may merge to a file that has it twice: it is one decision.
    return Ledger(_once(blessings), _once(withdrawals), _once(retirements))


def merge_ledger(text: str, source: str = FILE_NAME) -> Ledger:
    """The ledger of a file in which git left the marks of a merge: what either side decided.

    Records are only ever added, so that nothing is lost and nothing has to be chosen. Raises UsageError where
    a side by itself is malformed.
    """
    # A withdrawal that merged cleanly stands on both sides, its blessing perhaps on one.
    ids = re.findall(r'^id = "(\w+)"', text, re.MULTILINE)
    sides = [parse_ledger(_side(text, mark), source, ids) for mark in "<="]
    both = Ledger(*(a + b for a, b in zip(*map(_records, sides), strict=True)))
    return Ledger(_once(both.blessings), _once(both.withdrawals), _once(both.retirements))


def _records(ledger: Ledger) -> tuple[tuple[Any, ...], ...]:
    return ledger.blessings, ledger.withdrawals, ledger.retirements


def _side(text: str, wanted: str) -> str:
    """One side of a text with conflict marks: `<` is ours, `=` theirs. Lines of both are in both."""
    kept, part = [], ""
    for line in text.splitlines(keepends=True):
        if _CONFLICT.match(line):
            part = "" if line[0] == ">" else line[0]
        elif part in ("", wanted):
            kept.append(line)
    return "".join(kept)


def _once(records: Iterable[_Record]) -> tuple[_Record, ...]:
    return tuple(dict.fromkeys(records))


def _blocks(source: str, data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    blocks = data.get(key, [])
    if not isinstance(blocks, list) or not all(isinstance(b, dict) for b in blocks):
        raise _wrong(source, "top level", f"{key} is not a list of blocks")
    return blocks


def load_ledger(path: Path) -> Ledger:
    """The ledger of a file; an empty one where there is no file yet."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Ledger()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"ledger {path} cannot be read: {why}", remedy="check the file and its permissions"
        ) from None
    return parse_ledger(text, str(path))
