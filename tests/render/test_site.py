"""The static site: every page there, every link resolves, a second build writes what is new alone."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reprodb.cli import main
from reprodb.cli.pages import Archive
from reprodb.domain import Artifact, Result, Run, scope_of
from reprodb.ledger import load_ledger
from reprodb.render.timeline import moments
from reprodb.site import STATE, code_path, slug
from reprodb.store import open_store
from reprodb.store.bundles import export, import_bundle
from reprodb.store.store import Store
from tests.render import samples


def record(
    path: Path, number: int, results: tuple[Result, ...], *, accept: bool = True, policy: str = ""
) -> None:
    whole = samples.run(number)
    with open_store(str(path), write=True) as store:
        run = Run(whole.uid, whole.suite, whole.lane, whole.environment, whole.started_at, kind="nightly")
        run = replace(run, policy=policy)
        run_id = store.begin(run)
        ids = store.record_many(run_id, [(result, None) for result in results])
        if accept:
            store.accept(ids)
        store.finish(run_id, 0, run.started_at + timedelta(seconds=41))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "reprodb.db"
    for number in (1, 2):
        record(path, number, samples.night())
    yield path


def build(database: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], int]:
    with pytest.raises(SystemExit) as stop:
        main(["site", str(out), "--db", str(database), "--json"])
    assert stop.value.code == 0
    told = json.loads(capsys.readouterr().out)
    return told["written"], told["kept"]


ALL = [
    "index.html",
    "kernels/sum_squares_atomic.html",
    "kernels/sum_squares_kahan_atomic.html",
    "kernels/sum_squares_tree.html",
    "runs/run-1.html",
    "runs/run-2.html",
    "upgrades/reprodb-modelled.html",
]


def links(page: Path) -> set[Path]:
    found = re.findall(r'href="([^"#]+)"', page.read_text())
    return {(page.parent / target).resolve() for target in found}


def test_every_page_is_there_and_every_link_resolves(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "site"
    written, kept = build(database, out, capsys)
    assert (written, kept) == (ALL, 0)
    reached = {(out / "index.html").resolve()}
    for page in ALL:
        found = links(out / page)
        assert all(target.is_file() for target in found)
        reached |= found
    assert reached == {(out / page).resolve() for page in ALL}
    index = (out / "index.html").read_text()
    assert "<b>5</b> <span>same</span>" in index


def test_a_second_build_writes_what_is_new_alone(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "site"
    build(database, out, capsys)
    before = {page: (out / page).read_bytes() for page in ALL}
    assert build(database, out, capsys) == ([], 7)
    assert {page: (out / page).read_bytes() for page in ALL} == before
    record(database, 3, (samples.tree("default", bits=0x4B25426F),), accept=False)
    written, kept = build(database, out, capsys)
    # The other kernels have a night without a row; the upgrade stands, as the new night has one toolkit.
    assert written == ["index.html", *(page for page in ALL if "kernels/" in page), "runs/run-3.html"]
    assert kept == 3
    assert "nightly 3: not in this run" in (out / "kernels" / "sum_squares_atomic.html").read_text()
    assert "≠" in (out / "kernels" / "sum_squares_tree.html").read_text()


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"schema": "reprodb.site/1", "state": {"x": 1}}'])
def test_a_damaged_state_means_building_anew(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    out = tmp_path / "site"
    out.mkdir()
    (out / STATE).write_text(text)
    assert build(database, out, capsys)[0] == ALL


@pytest.mark.parametrize(
    "policy", ["[gate]\nof_a_later_version = 1\n", "x = " + "[" * 100_000, "<img src=x>"]
)
def test_a_policy_that_cannot_be_read_costs_no_page(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    """A merged database has runs of other versions: one of them is no reason to show none."""
    record(database, 3, samples.night(), policy=policy)
    written, _ = build(database, tmp_path / "site", capsys)
    assert written == sorted([*ALL, "runs/run-3.html"])
    page = (tmp_path / "site" / "runs" / "run-3.html").read_text()
    assert "policy of this run cannot be read here, and the defaults count" in page
    assert "<img src=x>" not in page


def test_a_deleted_page_comes_back(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "site"
    build(database, out, capsys)
    (out / "runs" / "run-1.html").unlink()
    assert build(database, out, capsys)[0] == ["runs/run-1.html"]


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """Two nights, the second under other flags, with the texts of both artifacts."""
    path = tmp_path / "reprodb.db"
    rows = (samples.tree("default"), replace(samples.tree("no-fmad"), profile="default"))
    for number, row in enumerate(rows, 1):
        assert row.build is not None
        ptx, sass = samples.code_texts(row.build.key)
        whole = samples.run(number)
        with open_store(str(path), write=True) as store:
            run = replace(whole, id=None, finished_at=None, exit_code=None)
            run_id = store.begin(run)
            artifact = Artifact(row.build, f"{ptx}\n// \x1b[31m<b>&\u202e\n", None, sass)
            store.accept(store.record_many(run_id, [(row, artifact)]))
            store.finish(run_id, 0, run.started_at + timedelta(seconds=41))
    return path


def test_whole_code_texts_are_files_that_pages_link_to(
    moved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "site"
    written, _ = build(moved, out, capsys)
    texts = [page for page in written if page.startswith("code/")]
    assert (
        sorted(page.rsplit("/", 1)[1] for page in texts) == ["kernel.ptx.txt"] * 2 + ["kernel.sass.txt"] * 2
    )
    assert {(out / page).resolve() for page in texts} <= links(out / "runs" / "run-2.html")
    ptx = next(out / page for page in texts if page.endswith("ptx.txt"))
    text = ptx.read_text()
    assert "⟨U+001B⟩[31m<b>&⟨U+202E⟩" in text
    assert ".visible .entry" in text
    # Nothing new: nothing is written. A text that went comes back. Texts of a page that goes, go.
    assert build(moved, out, capsys)[0] == []
    ptx.unlink()
    assert build(moved, out, capsys)[0] == [str(ptx.relative_to(out))]


def test_texts_go_with_the_last_page_that_links_to_them(
    moved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "site"
    build(moved, out, capsys)
    other = tmp_path / "other.db"
    record(other, 1, samples.night())
    build(other, out, capsys)
    assert not list(out.glob("code/*/*"))


def test_an_artifact_s_key_is_no_path() -> None:
    assert code_path("../../etc/passwd", "ptx").startswith("code/etc-passwd-")
    assert code_path("a" * 64, "sass") == f"code/{'a' * 64}/kernel.sass.txt"


def test_the_dossier_of_a_site_is_that_of_the_newest_night(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "site"
    build(database, out, capsys)
    page = (out / "upgrades" / "reprodb-modelled.html").read_text()
    assert "nvrtc 12.6.85 → 13.5.37" in page.replace("\u00a0", " ")
    assert "nightly 2" in page
    index = (out / "index.html").read_text()
    assert "Keeps every fixed-order bit; 4 churn, 2 same." in index
    record(database, 3, samples.night())
    written, _ = build(database, out, capsys)
    assert "upgrades/reprodb-modelled.html" in written
    assert "nightly 3" in (out / "upgrades" / "reprodb-modelled.html").read_text()


def test_names_that_are_no_file_names_get_one() -> None:
    assert slug("sum_squares_tree") == "sum_squares_tree"
    for name in ("../../etc/passwd", ".hidden", "a/b", "x" * 200, samples.HOSTILE, ""):
        assert re.fullmatch(r"[A-Za-z0-9-]{1,60}-[0-9a-f]{12}", slug(name))


def test_a_page_shows_the_past_as_it_stood_on_its_night(database: Path) -> None:
    """Read once for all pages of a site, cut off at each page's night: as if each were read by itself."""
    moved = (samples.tree("default", bits=0x4B25426F), samples.atomic("default"))
    record(database, 3, moved, accept=False)
    record(database, 4, samples.night())
    with open_store(str(database)) as store:
        archive = Archive(store)
        for run in reversed(store.runs()):
            for result in store.results(run.id or 0):
                pairs = store.history(result.kernel.name, case=result.case.name, suite=run.suite)
                mine = [
                    (then, old)
                    for then, old in pairs
                    if then.started_at <= run.started_at and scope_of(then, old) == scope_of(run, result)
                ]
                past = archive.sources(run).past
                assert past is not None
                assert past(result) == moments(mine)
                assert past(result)[0].run == run


def test_a_site_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "reprodb.db"
    open_store(str(path), write=True).close()
    assert build(path, tmp_path / "site", capsys)[0] == ["index.html"]
    assert "Nothing is recorded yet." in (tmp_path / "site" / "index.html").read_text()


def files(out: Path) -> dict[str, str]:
    """The pages of a site."""
    there = (path for path in out.rglob("*") if path.is_file() and path.name != STATE)
    return {str(path.relative_to(out)): path.read_text() for path in there}


def bless_night_3(database: Path) -> None:
    """Decided after night 4, which met the bits of night 2: from now on it meets those of night 3."""
    when = samples.run(5).started_at
    with open_store(str(database), write=True) as store:
        row = store.results(3)[0]
        store.bless([row.id or 0], who="ada", why="the new order", when=when, accept=True)
        run = store.run(3)
    made = load_ledger(Path("reprodb.lock")).bless(run, row, who="ada", why="the new order", now=when)
    made.save(Path("reprodb.lock"))


def prune_the_first(database: Path) -> None:
    with open_store(str(database), write=True) as store:
        assert store.prune(keep_runs=3).runs == (1,)


def import_an_older_run(database: Path) -> None:
    """A run from elsewhere that started before all of these."""
    other, bundle = database.with_name("other.db"), database.with_name("other.zip")
    record(other, 0, samples.night())
    with open_store(str(other)) as store:
        export(store, [1], bundle)
    with open_store(str(database), write=True) as store:
        assert import_bundle(store, [bundle]).new_runs == 1


def begin_a_night(database: Path) -> None:
    with open_store(str(database), write=True) as store:
        run_id = store.begin(replace(samples.run(6), id=None, finished_at=None, exit_code=None))
        store.record(run_id, samples.tree("default"))


def go_on_with_it(database: Path) -> None:
    with open_store(str(database), write=True) as store:
        store.record(store.runs()[0].id or 0, samples.atomic("default"))


def finish_it(database: Path) -> None:
    with open_store(str(database), write=True) as store:
        run = store.runs()[0]
        store.finish(run.id or 0, 0, run.started_at + timedelta(seconds=41))


def test_a_site_kept_up_is_the_site_built_from_nothing(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens to the database in between, and however late it is decided."""
    monkeypatch.chdir(tmp_path)
    moved = (samples.tree("default", bits=0x4B25426F), *samples.night()[1:])
    record(database, 3, moved, accept=False)
    record(database, 4, moved, accept=False)
    out = tmp_path / "site"
    build(database, out, capsys)
    last = files(out)
    for number, happens in enumerate(
        (bless_night_3, begin_a_night, go_on_with_it, finish_it, prune_the_first, import_an_older_run)
    ):
        happens(database)
        written, _ = build(database, out, capsys)
        fresh = tmp_path / f"fresh-{number}"
        build(database, fresh, capsys)
        assert files(out) == files(fresh), happens.__name__
        changed = {page for page, text in files(out).items() if last.get(page) != text}
        assert changed, happens.__name__
        assert changed <= set(written), happens.__name__
        last = files(out)
        assert build(database, out, capsys)[0] == [], happens.__name__


def test_a_new_night_leaves_the_pages_of_others(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their runs are not read either: what a page asks for is asked for the new run alone."""
    out = tmp_path / "site"
    build(database, out, capsys)
    record(database, 3, samples.night())
    asked: list[int] = []
    results = Store.results

    def counted(store: Store, run_id: int, **parts: str | None) -> tuple[Result, ...]:
        asked.append(run_id)
        return results(store, run_id, **parts)

    monkeypatch.setattr(Store, "results", counted)
    written, _ = build(database, out, capsys)
    assert [page for page in written if page.startswith("runs/")] == ["runs/run-3.html"]
    assert set(asked) == {3}
