"""`show`, `runs`, `history` and `report` on a real database."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from reprodb.cli import main
from reprodb.domain import Run
from reprodb.store import open_store
from tests.render import samples


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two nights of three kernels under five profiles."""
    path = tmp_path_factory.mktemp("db") / "reprodb.db"
    with open_store(str(path), write=True) as store:
        for number in (1, 2):
            whole = samples.run(number, label=f"night-{number}")
            kind = "run" if number == 1 else "nightly"
            run = Run(
                whole.uid,
                whole.suite,
                whole.lane,
                whole.environment,
                whole.started_at,
                whole.label,
                kind=kind,
            )
            run_id = store.begin(run)
            ids = store.record_many(run_id, [(result, None) for result in samples.night()])
            store.accept(ids)
            store.finish(run_id, 0, run.started_at + timedelta(seconds=41))
    return str(path)


def reprodb(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_show(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = reprodb(capsys, "show", "latest", "--db", database)
    assert code == 0
    assert "nightly 2 “night-2”: 15 results" in out
    assert "MODELLED lane" in out
    assert "0x8189389fe1bc0a65" in out


def test_show_json(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = reprodb(capsys, "show", "night-1:default:sum_squares_tree", "--json", "--db", database)
    document = json.loads(out)
    (row,) = document["results"]
    assert code == 0
    assert (document["schema"], document["run"]["id"]) == ("reprodb.show/1", 1)
    assert (row["first_bits"], row["run_hash"]) == ("0x4b25426d", "0x8189389fe1bc0a65")


def test_show_picks_by_globs(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = reprodb(
        capsys, "show", "--kernel", "*_atomic", "--profile", "cuda12*", "--json", "--db", database
    )
    rows = json.loads(out)["results"]
    assert {r["profile"] for r in rows} == {"cuda12", "cuda12-no-fmad"}
    assert {r["kernel"] for r in rows} == {"sum_squares_atomic", "sum_squares_kahan_atomic"}


def test_runs(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = reprodb(capsys, "runs", "--db", database)
    assert out.index("night-2") < out.index("night-1")
    _, out, _ = reprodb(capsys, "runs", "--limit", "1", "--json", "--db", database)
    assert [run["label"] for run in json.loads(out)["runs"]] == ["night-2"]


def test_history(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = reprodb(capsys, "history", "sum_squares_tree", "--profile", "default", "--db", database)
    assert code == 0
    assert "= same" in out
    _, out, _ = reprodb(capsys, "history", "sum_squares_tree", "--json", "--db", database)
    assert len(json.loads(out)["entries"]) == 10


def test_report_writes_a_page_and_its_json(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = reprodb(capsys, "report", "1", "--out", str(tmp_path / "new"), "--db", database)
    page = Path(out.strip())
    assert code == 0
    assert page == tmp_path / "new" / "run-1.html"
    text = page.read_text()
    assert "Modelled" in text
    # The patterns of arrival-order kernels came back from the database.
    assert "9 patterns in 100, spread 9 ULP" in text
    assert json.loads((tmp_path / "new" / "run-1.json").read_text())["schema"] == "reprodb.show/1"
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["run-1.html", "run-1.json"]


def test_the_report_of_a_nightly_has_its_diff(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Night 2 is compared with what night 1 left as references."""
    reprodb(capsys, "report", "2", "--out", str(tmp_path), "--db", database)
    text = (tmp_path / "run-2.html").read_text()
    assert "with the accepted result of each row" in text
    assert "15 rows have bits on both sides" in text
    assert "<b>5</b> same" in text


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("show", "baseline"), 2, "each row's own reference"),
        (("show", "99"), 2, "99"),
        (("show", "1", "--kernel", "nothing*"), 2, "no result for kernel 'nothing*'"),
        (("history", "sum_squares_tre"), 2, "did you mean sum_squares_tree?"),
        (
            ("history", "sum_squares_tree", "--case", "other"),
            2,
            "no result of sum_squares_tree in case other",
        ),
    ],
)
def test_refusals(
    database: str, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, words: str
) -> None:
    found, out, err = reprodb(capsys, *args, "--db", database)
    assert (found, out) == (code, "")
    assert words in err


def test_a_report_that_cannot_be_written(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = reprodb(capsys, "report", "1", "--out", str(tmp_path / "file"), "--db", database)
    assert code == 4
    assert "cannot be written" in err


def test_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = reprodb(capsys, "show", "--db", str(tmp_path / "none.db"))
    assert (code, out) == (4, "")
    assert "none.db" in err
