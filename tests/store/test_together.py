"""Small patterns of results that were read together are fetched together, and held."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event

from reprodb.errors import StoreError
from reprodb.store import open_store
from reprodb.store.store import Store
from tests.builders import make_output, make_result, make_run, word


def _queries(store: Store) -> list[str]:
    """The statements that the store executes from now on."""
    heard: list[str] = []
    event.listen(store._engine, "before_cursor_execute", lambda *a: heard.append(a[2]))
    return heard


def _filled(path: Path, elements: int = 1) -> None:
    with open_store(str(path), write=True) as store:
        run = store.begin(replace(make_run(1), id=None, finished_at=None))
        for kernel in range(20):
            bits = [word(f"0x{100 * kernel + n:08x}") * elements for n in range(30)]
            store.record(run, make_result(outputs=(make_output(bits),), kernel=f"k{kernel}"))


def test_a_thousand_small_patterns_are_one_query(tmp_path: Path) -> None:
    _filled(tmp_path / "r.db")
    with open_store(str(tmp_path / "r.db")) as store:
        results = store.results(1)
        heard = _queries(store)
        found = {p.sha256: store.pattern(p.sha256) for r in results for p in r.outputs[0].patterns}
        assert len(found) == 600
        assert sum("patterns" in statement for statement in heard) <= 2
        assert found[results[3].outputs[0].patterns[7].sha256] == word("0x00000133")


def test_large_patterns_are_fetched_one_at_a_time(tmp_path: Path) -> None:
    _filled(tmp_path / "r.db", elements=64)
    with open_store(str(tmp_path / "r.db")) as store:
        results = store.results(1)
        heard = _queries(store)
        for pattern in results[0].outputs[0].patterns[:5]:
            assert len(store.pattern(pattern.sha256)) == 256
        assert sum("patterns" in statement for statement in heard) == 5


def test_a_damaged_neighbour_costs_nobody_else(tmp_path: Path) -> None:
    _filled(tmp_path / "r.db")
    with open_store(str(tmp_path / "r.db")) as store:
        first, second = (p.sha256 for p in store.results(1)[0].outputs[0].patterns[:2])
        with sqlite3.connect(tmp_path / "r.db") as raw:
            raw.execute("PRAGMA foreign_keys = OFF")
            raw.execute("DELETE FROM patterns WHERE digest = ?", (bytes.fromhex(first),))
            assert raw.total_changes == 1
        assert store.pattern(second) == word("0x00000001")
        with pytest.raises(StoreError, match=first):
            store.pattern(first)
