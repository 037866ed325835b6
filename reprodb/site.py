"""A static site of a database, written incrementally: an index, a page a run, a page a kernel."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprodb.codec import decode, encode
from reprodb.digest import content_key
from reprodb.domain import Result, Run
from reprodb.errors import StoreError
from reprodb.findings import Diff
from reprodb.render.index import KernelEntry, RunEntry, kernel_entry, run_entry
from reprodb.render.sources import Past

if TYPE_CHECKING:
    from reprodb.store.store import Store

STATE = "site.json"
SCHEMA = "reprodb.site/1"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

# A run and its results → its diff, or None where it was compared with nothing.
DiffOf = Callable[[Run, tuple[Result, ...]], Diff | None]
PastOf = Callable[[Run], Past]


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


@dataclass(frozen=True, slots=True)
class Built:
    """Paths written and paths that were up to date, relative to the site."""

    written: tuple[str, ...]
    kept: tuple[str, ...]


def build(store: "Store", out: Path, diff_of: DiffOf, past_of: PastOf) -> Built:
    """Writes the site of a database into `out`.

    A run's page is written once: results never change. A kernel's page is written when a run added to it.
    Pages made by other code of the renderers are made again. Raises StoreError where `out` cannot be written.
    """
    from reprodb.render import html

    look = html.fingerprint()
    old = _read_state(out)
    known = {page.path: page.key for page in old.pages}
    told = {entry.uid: entry for entry in old.runs}
    site = _Writer(out, known)
    entries: list[RunEntry] = []
    for run in store.runs():
        path = f"runs/run-{run.id}.html"
        key = content_key("reprodb.site.run", look, run.uid, str(run.finished_at), str(run.exit_code))
        if site.keeps(path, key) and run.uid in told:
            entries.append(told[run.uid])
            continue
        results = store.results(_number(run))
        diff = diff_of(run, results)
        page = html.report(
            run, results, diff, matrix=_matrix(results, diff), fetch=store.pattern,
            code_texts=store.code_texts, past=past_of(run), home="../index.html",
        )  # fmt: skip
        site.write(path, key, page)
        entries.append(run_entry(run, results, diff, path))
    kernels = _kernels(store, site, look, entries, {entry.name: entry for entry in old.kernels})
    index = html.index(entries, kernels)
    site.write("index.html", content_key("reprodb.site.index", index), index)
    site.forget()
    _write_state(out, State(site.pages(), tuple(entries), kernels))
    return site.built()


def _kernels(
    store: "Store", site: "_Writer", look: str, runs: Iterable[RunEntry], told: dict[str, KernelEntry]
) -> tuple[KernelEntry, ...]:
    from reprodb.render import html

    uids: dict[str, list[str]] = {}
    for run in runs:
        for name in run.kernels:
            uids.setdefault(name, []).append(run.uid)
    found = []
    for name in sorted(uids):
        path = f"kernels/{slug(name)}.html"
        key = content_key("reprodb.site.kernel", look, name, *uids[name])
        if site.keeps(path, key) and name in told:
            found.append(told[name])
            continue
        entries = store.history(name)
        site.write(path, key, html.history(name, entries, home="../index.html"))
        found.append(kernel_entry(name, entries, path))
    return tuple(found)


def slug(name: str) -> str:
    """A kernel's name as a file name: itself where it is plain, else the start of its digest."""
    return name if _PLAIN.fullmatch(name) else "kernel-" + content_key("reprodb.site.slug", name)[:16]


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
            if re.fullmatch(r"(runs|kernels)/[A-Za-z0-9._-]+\.html", path):
                (self._out / path).unlink(missing_ok=True)

    def pages(self) -> tuple[Page, ...]:
        return tuple(Page(path, key) for path, key in sorted(self._keys.items()))

    def built(self) -> Built:
        kept = sorted(self._keys.keys() - set(self._written))
        return Built(tuple(sorted(self._written)), tuple(kept))


def write_whole(path: Path, text: str) -> None:
    """A file that is there whole or not at all. Raises StoreError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}", remedy="name another folder"
        ) from None


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
