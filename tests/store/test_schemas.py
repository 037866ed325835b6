"""A database of every schema that there ever was is opened: checked, read, brought up to date by a writer."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from reprodb.store import open_store
from reprodb.store.migrate import SCHEMA
from reprodb.store.opening import upgrade
from tests.builders import ATOMIC_TOTAL, TREE_TOTAL, make_result
from tests.store.things import LATER, new_run

FILES = Path(__file__).parent / "schemas"


@pytest.fixture(name="old", params=SCHEMA.revisions)
def a_database_as_it_was_then(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file `schemas/REVISION.db.xz`, written by the code of its time: a night, and a run cut off."""
    path = tmp_path / "reprodb.db"
    path.write_bytes(lzma.decompress((FILES / f"{request.param}.db.xz").read_bytes()))
    return path


def test_every_schema_has_its_file() -> None:
    """A new schema brings one: written by the release before it."""
    assert sorted(path.name.partition(".")[0] for path in FILES.iterdir()) == list(SCHEMA.revisions)


def test_an_old_database_is_brought_up_to_date_and_says_what_it_said(old: Path) -> None:
    assert SCHEMA.head in upgrade(str(old))
    with open_store(str(old)) as store:
        assert store.check() == ()
        cut, first = store.runs()
        assert (first.label, first.kind, first.complete, first.exit_code) == ("first", "nightly", True, 0)
        assert (cut.label, cut.complete) == ("cut off", False)
        tree = next(r for r in store.results(first.id or 0) if r.condition == "plain")
        assert (tree.kernel.name, tree.outputs[0].first_bits) == ("sum_squares_tree", TREE_TOTAL)
        # Published with the experiment: 100 repetitions of the tree.
        assert tree.outputs[0].run_hash == 0x8189389FE1BC0A65
        (churn,) = store.results(cut.id or 0)
        assert (churn.outputs[0].distinct, churn.outputs[0].first_bits) == (2, ATOMIC_TOTAL)
        assert tree.build is not None
        assert store.code_texts(tree.build.key)[1] == "// sass"
        assert store.pattern(tree.outputs[0].sha256) == bytes.fromhex("6d42254b")


def test_it_is_written_to_as_any_other(old: Path) -> None:
    with open_store(str(old), write=True) as store:
        run_id = store.begin(new_run(3))
        store.record(run_id, make_result())
        store.finish(run_id, 0, LATER)
        assert [run.label for run in store.runs()][1:] == ["cut off", "first"]
        assert store.check() == ()
