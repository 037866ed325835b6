"""Two runners and one PostgreSQL: nine hours apart, devices reversed, at the same time; nothing mixed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reprodb.domain import Lane
from reprodb.store import open_store
from reprodb.store.opening import upgrade
from tests.builders import H200, floats, make_environment, make_output, make_result
from tests.store.test_faults import exit_code, in_child
from tests.store.things import new_run
from tests.test_bad_input import write_kernel
from tests.test_repository import git

# Each with its two cards as it numbers them: the same cards' order is the other's reversed.
CARDS = ("GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000")
RUNNERS = {"zurich": ("Europe/Zurich", CARDS), "tokyo": ("Asia/Tokyo", CARDS[::-1])}
EACH = 12


def test_two_runners_at_once_mix_nothing(database: str) -> None:
    """Two processes, their local times hours apart, record on both of their cards in turn."""

    def record(name: str) -> None:
        zone, cards = RUNNERS[name]
        os.environ["TZ"] = zone
        time.tzset()
        with open_store(database, write=True) as store:
            for index, uuid in enumerate(cards):
                device = replace(H200, uuid=uuid, index=index)
                environment = make_environment(device, host=name)
                uid = f"{name}-{index}"
                now = datetime.now(UTC)
                run = new_run(uid=uid, lane=Lane.MEASURED, environment=environment, started_at=now)
                run_id = store.begin(run)
                for number in range(EACH):
                    output = make_output([floats(number), floats(number)])
                    result = make_result(outputs=(output,), profile=f"p{number}", lane=Lane.MEASURED)
                    store.record(run_id, result)
                store.finish(run_id, 0, datetime.now(UTC))

    children = [in_child(lambda name=name: record(name)) for name in RUNNERS]  # type: ignore[misc]
    assert [exit_code(child) for child in children] == [0, 0]
    with open_store(database) as store:
        assert store.check() == ()
        runs = {run.uid: run for run in store.runs()}
        assert set(runs) == {"zurich-0", "zurich-1", "tokyo-0", "tokyo-1"}
        for uid, run in runs.items():
            host, index = uid.split("-")
            device = run.environment.device
            assert device is not None
            assert (run.environment.host, device.uuid) == (host, RUNNERS[host][1][int(index)])
            assert abs(run.started_at - datetime.now(UTC)) < timedelta(minutes=5), "a local time was stored"
            results = store.results(run.id or 0)
            bits = {r.profile: r.outputs[0].patterns[0].sha256 for r in results}
            assert len(bits) == EACH
            assert len({*bits.values()}) == EACH
        order = [run.uid for run in reversed(store.runs())]
        for host in RUNNERS:
            assert [uid for uid in order if uid.startswith(host)] == [f"{host}-0", f"{host}-1"]


@pytest.mark.soak
@pytest.mark.postgres
def test_two_checkouts_into_one_postgresql_diffed(postgresql: Callable[[], str], tmp_path: Path) -> None:
    """The real commands, at the same time: two nights of a suite from two clones of it, then their diff."""
    url = postgresql()
    upgrade(url)
    origin = tmp_path / "origin"
    for name in ("a", "b", "c"):
        write_kernel(origin / "suite", name)
    git(origin, "init", "-q")
    git(origin, "add", ".")
    git(origin, "commit", "-q", "-m", "a suite")
    started = {}
    for name, (zone, _) in RUNNERS.items():
        git(tmp_path, "clone", "-q", "origin", name)
        profiles = ("--profile", "default", "--profile", "no-fmad")
        words = ["nightly", "--suite", "suite", "--device", "model", *profiles, "-n", "20", "--label", name]
        started[name] = subprocess.Popen(
            [sys.executable, "-m", "reprodb", *words],
            cwd=tmp_path / name,
            env={**os.environ, "TZ": zone, "REPRODB_DB": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    for name, process in started.items():
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, f"{name}: {said}"
    done = subprocess.run(
        [sys.executable, "-m", "reprodb", "diff", "zurich", "tokyo", "--json"],
        cwd=tmp_path,
        env={**os.environ, "REPRODB_DB": url},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["exit_code"], document["compared"]) == (0, 6)
    assert {row["verdict"] for row in document["comparisons"]} == {"same"}
    with open_store(url) as store:
        assert store.check() == ()
        runs = store.runs()
        assert {run.label for run in runs} == set(RUNNERS)
        assert [len(store.results(run.id or 0)) for run in runs] == [6, 6]
        assert abs(runs[0].started_at - runs[1].started_at) < timedelta(minutes=5)
