"""A static site of a database, written incrementally: an index, a page a run, a kernel and an upgrade."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from errno import EFBIG, ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprodb.codec import decode, encode
from reprodb.digest import content_key
from reprodb.domain import Result, Run
from reprodb.dossier import Dossier
from reprodb.errors import StoreError
from reprodb.files import put_in_place
from reprodb.findings import Diff
from reprodb.render.index import (
    KernelEntry,
    RunEntry,
    UpgradeEntry,
    kernel_entry,
    run_entry,
    upgrade_entry,
)
from reprodb.render.sources import Sources
from reprodb.render.strip import place_of
from reprodb.render.text import shown_lines

if TYPE_CHECKING:
    from reprodb.store.store import Store

STATE = "site.json"
SCHEMA = "reprodb.site/2"
# Newest runs of a suite, lane and GPU that are looked through for two toolkits.
UPGRADE_TRIES = 3
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# Folders of the site in which pages come and go.
_OURS = re.compile(r"(runs|kernels|upgrades|code/[A-Za-z0-9._-]+)/[A-Za-z0-9._-]+\.(html|txt)")

# A run and its results → its diff, or None where it was compared with nothing.
DiffOf = Callable[[Run, tuple[Result, ...]], Diff | None]
# A run and its results → the dossier of the toolkits in it, or None without two that belong together.
UpgradeOf = Callable[[Run, tuple[Result, ...]], Dossier | None]
SourcesOf = Callable[[Run], Sources]
# A run → the decisions that its diff knows of, as text.
DecidedOf = Callable[[Run], str]


@dataclass(frozen=True, slots=True)
class Page:
    """A page that the site has: its key says what it was made from."""

    path: str
    key: str


@dataclass(frozen=True, slots=True)
class State:
    """What an earlier build left beside the pages, so that a later one writes what is new alone."""

    pages: tuple[Page, ...] = ()
    runs: tuple[RunEntry, ...] = ()
    kernels: tuple[KernelEntry, ...] = ()
    upgrades: tuple[UpgradeEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Built:
    """Paths written and paths that were up to date, relative to the site."""

    written: tuple[str, ...]
    kept: tuple[str, ...]


def build(
    store: "Store",
    out: Path,
    diff_of: DiffOf,
    upgrade_of: UpgradeOf,
    sources_of: SourcesOf,
    decided_of: DecidedOf = lambda _: "",
) -> Built:
    """Writes the site of a database into `out`: what a site built from nothing would be, file by file.

    A run's page tells its results, the runs before it and what had been decided by then; it is written again
    where one of these is another (a run pruned, imported or accepted later). A kernel's page is written
    when a run added to it, and the page of upgrades when a newer run of its suite, lane and GPU has any.
    Whole code texts are files of their own, those that a page links to. Pages made by other code of the
    renderers are made again. Raises StoreError where `out` cannot be written.
    """
    from reprodb.render import html

    fingerprint = html.fingerprint()
    old = _read_state(out)
    site = _Writer(out, {page.path: page.key for page in old.pages})
    runs = store.runs()
    marks = _marks(store, runs)
    grounds = _grounds(fingerprint, runs, marks, decided_of)
    entries = _runs(store, site, grounds, runs, {e.uid: e for e in old.runs}, diff_of, sources_of)
    kernels = _kernels(store, site, fingerprint, marks, runs, entries, {e.name: e for e in old.kernels})
    upgrades = _upgrades(
        store, site, grounds, runs, {e.path: e for e in old.upgrades}, upgrade_of, sources_of
    )
    linked = [entry.code for entry in entries] + [entry.code for entry in upgrades]
    _code(store, site, (key for keys in linked for key in keys))
    index = html.index(entries, kernels, upgrades)
    site.write("index.html", content_key("reprodb.site.index", index), index)
    site.forget()
    _write_state(out, State(site.pages(), entries, kernels, upgrades))
    return site.built()


def _marks(store: "Store", runs: Iterable[Run]) -> dict[str, str]:
    """Of each run all that may change about it after a page told of it."""
    results = store.marks()
    return {
        run.uid: content_key(
            "reprodb.site.mark",
            f"{run.id} {run.uid} {run.started_at} {run.finished_at} {run.exit_code}",
            *map(str, results.get(_number(run), ())),
        )
        for run in runs
    }


def _grounds(
    fingerprint: str, runs: Sequence[Run], marks: dict[str, str], decided_of: DecidedOf
) -> dict[str, str]:
    """Of each run what its page is made from: itself, the runs of its suite before it, the decisions by then.

    `runs` stand newest first. One counts as before another that was recorded earlier or started earlier.
    """
    found: dict[str, str] = {}
    suites: dict[str, list[Run]] = {}
    for run in runs:
        suites.setdefault(run.suite, []).append(run)
    for newest_first in suites.values():
        chain = fingerprint
        for place, run in reversed(tuple(enumerate(newest_first))):
            chain = content_key("reprodb.site.before", chain, marks[run.uid])
            behind = [marks[r.uid] for r in newest_first[:place] if r.started_at <= run.started_at]
            found[run.uid] = content_key("reprodb.site.grounds", chain, decided_of(run), *behind)
    return found


def _runs(
    store: "Store",
    site: "_Writer",
    grounds: dict[str, str],
    runs: Sequence[Run],
    told: dict[str, RunEntry],
    diff_of: DiffOf,
    sources_of: SourcesOf,
) -> tuple[RunEntry, ...]:
    from reprodb.render import html

    entries = []
    for run in runs:
        path = f"runs/run-{run.id}.html"
        key = content_key("reprodb.site.run", grounds[run.uid])
        if site.keeps(path, key) and run.uid in told:
            entries.append(told[run.uid])
            continue
        results = store.results(_number(run))
        diff = diff_of(run, results)
        links = _Links(store)
        sources = replace(sources_of(run), code_links=links.address)
        page = html.report(
            run, results, diff, matrix=_matrix(results, diff), sources=sources, home="../index.html"
        )
        site.write(path, key, page)
        entries.append(replace(run_entry(run, results, diff, path), code=links.keys))
    return tuple(entries)


def _kernels(
    store: "Store",
    site: "_Writer",
    fingerprint: str,
    marks: dict[str, str],
    runs: Sequence[Run],
    entries: Iterable[RunEntry],
    told: dict[str, KernelEntry],
) -> tuple[KernelEntry, ...]:
    from reprodb.render import html

    uids: dict[str, list[str]] = {}
    for run in entries:
        for name in run.kernels:
            uids.setdefault(name, []).append(run.uid)
    suites = {run.uid: run.suite for run in runs}
    nights = [run for run in runs if run.kind == "nightly"]
    found = []
    for name in sorted(uids):
        path = f"kernels/{slug(name)}.html"
        # A night that lacks the kernel is a cell of its strip.
        mine = {suites[uid] for uid in uids[name]}
        around = [night for night in nights if night.suite in mine]
        from_runs = [marks[uid] for uid in (*uids[name], *(night.uid for night in around))]
        key = content_key("reprodb.site.kernel", fingerprint, name, *from_runs)
        if site.keeps(path, key) and name in told:
            found.append(told[name])
            continue
        history = store.history(name)
        site.write(path, key, html.history(name, history, nights=around, home="../index.html"))
        found.append(kernel_entry(name, history, path))
    return tuple(found)


def _upgrades(
    store: "Store",
    site: "_Writer",
    grounds: dict[str, str],
    runs: Sequence[Run],
    told: dict[str, UpgradeEntry],
    upgrade_of: UpgradeOf,
    sources_of: SourcesOf,
) -> tuple[UpgradeEntry, ...]:
    """One page a suite, lane and GPU, of the newest complete run with two toolkits, nightlies first."""
    from reprodb.render import html

    found: dict[str, UpgradeEntry] = {}
    looked: dict[str, int] = {}
    for run in sorted(runs, key=lambda run: run.kind != "nightly"):
        suite, lane, gpu = place_of(run)
        path = f"upgrades/{slug('-'.join(part for part in (suite, lane.value, gpu) if part))}.html"
        if path in found or not run.complete or looked.get(path, 0) >= UPGRADE_TRIES:
            continue
        looked[path] = looked.get(path, 0) + 1
        key = content_key("reprodb.site.upgrade", grounds[run.uid])
        if site.keeps(path, key) and path in told:
            found[path] = told[path]
            continue
        value = upgrade_of(run, store.results(_number(run)))
        if value is None:
            continue
        links = _Links(store)
        page = html.dossier(value, replace(sources_of(run), code_links=links.address), home="../index.html")
        site.write(path, key, page)
        found[path] = replace(upgrade_entry(value, path), code=links.keys)
    return tuple(found[path] for path in sorted(found))


class _Links:
    """Addresses of whole code texts as seen from a page one folder deep; remembers which were asked for."""

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._texts: dict[str, tuple[str | None, str | None]] = {}

    def address(self, key: str, kind: str) -> str | None:
        if key not in self._texts:
            self._texts[key] = self._store.code_texts(key)
        there = dict(zip(("ptx", "sass"), self._texts[key], strict=True))
        return f"../{code_path(key, kind)}" if there[kind] is not None else None

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(sorted(self._texts))


def code_path(key: str, kind: str) -> str:
    """Where the whole text of an artifact lies: as .txt, so that every server and browser shows it."""
    return f"code/{slug(key)}/kernel.{kind}.txt"


def _code(store: "Store", site: "_Writer", keys: Iterable[str]) -> None:
    """The whole texts of these artifacts. An artifact never changes: what is there is up to date."""
    for key in sorted(set(keys)):
        missing = [kind for kind in ("ptx", "sass") if not site.keeps(code_path(key, kind), key)]
        if not missing:
            continue
        for kind, text in zip(("ptx", "sass"), store.code_texts(key), strict=True):
            if text is not None:
                site.write(code_path(key, kind), key, shown_lines(text))


def slug(name: str) -> str:
    """A name as a file name: itself where it is plain, else its plain part and a digest."""
    if _PLAIN.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    return f"{plain or 'named'}-{content_key('reprodb.site.slug', name)[:12]}"


def _number(run: Run) -> int:
    if run.id is None:
        raise StoreError(f"run {run.uid} has no number")
    return run.id


def _matrix(results: tuple[Result, ...], diff: Diff | None) -> Any:
    from reprodb.matrix import matrix

    return diff.matrix if diff else matrix(results)


class _Writer:
    """The files of one build: what is up to date is kept, what is new is written whole."""

    def __init__(self, out: Path, known: dict[str, str]) -> None:
        self._out = out
        self._known = known
        self._keys: dict[str, str] = {}
        self._written: list[str] = []

    def keeps(self, path: str, key: str) -> bool:
        if self._known.get(path) != key or not (self._out / path).is_file():
            return False
        self._keys[path] = key
        return True

    def write(self, path: str, key: str, text: str) -> None:
        if self.keeps(path, key):
            return
        write_whole(self._out / path, text)
        self._keys[path] = key
        self._written.append(path)

    def forget(self) -> None:
        """Deletes pages of the last build that this one has not: their runs are gone."""
        for path in self._known.keys() - self._keys.keys():
            if _OURS.fullmatch(path):
                (self._out / path).unlink(missing_ok=True)

    def pages(self) -> tuple[Page, ...]:
        return tuple(Page(path, key) for path, key in sorted(self._keys.items()))

    def built(self) -> Built:
        kept = sorted(self._keys.keys() - set(self._written))
        return Built(tuple(sorted(self._written)), tuple(kept))


def write_whole(path: Path, text: str) -> None:
    """A file that is there whole or not at all. Raises StoreError where it cannot be written."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        put_in_place(part, path)
    except OSError as error:
        blocked = isinstance(error, FileExistsError | NotADirectoryError)
        why = f"{error.filename} is no folder" if blocked else error.strerror or str(error)
        full = "free some space, or " if error.errno in (ENOSPC, EFBIG) else ""
        raise StoreError(f"{path} cannot be written: {why}", remedy=f"{full}name another folder") from None
    finally:
        with suppress(OSError):
            part.unlink()


def _read_state(out: Path) -> State:
    """What the last build left; nothing where there is no site, or one of another reprodb."""
    from cattrs.errors import BaseValidationError

    try:
        data = json.loads((out / STATE).read_text(encoding="utf-8"))
        return decode(State, data["state"]) if data["schema"] == SCHEMA else State()
    except (OSError, ValueError, KeyError, TypeError, BaseValidationError):
        return State()


def _write_state(out: Path, state: State) -> None:
    ordered = replace(state, pages=tuple(sorted(state.pages, key=lambda p: p.path)))
    text = json.dumps({"schema": SCHEMA, "state": encode(ordered)}, indent=1, sort_keys=True)
    write_whole(out / STATE, text + "\n")
