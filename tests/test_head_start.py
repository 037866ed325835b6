"""What begins before the database is open: the device's worker and the compilers, for the very same run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reprodb.cli.flow import HeadStart, RunOptions, head_start, in_order, opened_bench, record_run
from reprodb.cli.progress import Silent
from reprodb.domain import Device, Lane
from reprodb.errors import UsageError
from reprodb.executors.choice import Where
from reprodb.executors.pool import Pool
from reprodb.store import open_store
from tests.builders import make_result

MANIFEST = """
[kernel]
name = "few"
source = "../few.cu"
operation = "sum of x"
determinism = "run_to_run"
accumulator = "float32"

[[buffer]]
name = "total"
dtype = "float32"
size = 1
role = "result"

[[stage]]
entry = "few"
grid = 1
block = 32
args = ["x", "n", "total"]

[[case]]
input = "ramp1000"
n = 64
"""
SOURCE = """
extern "C" __global__ void few(const float* x, unsigned long long n, float* total) {
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (unsigned long long i = 0; i < n; ++i) sum += x[i];
        *total = sum;
    }
}
"""
NO_SUCH_GPU = Device("NVIDIA H200", "GPU-1", "9.0", 132, 1 << 37, 99)


@pytest.fixture(name="options", scope="module")
def of_one_kernel(tmp_path_factory: pytest.TempPathFactory) -> RunOptions:
    home = tmp_path_factory.mktemp("home")
    (home / "suite" / "few").mkdir(parents=True)
    (home / "suite" / "few" / "kernel.toml").write_text(MANIFEST)
    (home / "suite" / "few.cu").write_text(SOURCE)
    return RunOptions(
        suite=home / "suite",
        store=home / "store",
        profiles=("default",),
        repetitions=3,
        device="model",
        seed=1,
    )


@pytest.fixture(name="ahead")
def begun(options: RunOptions) -> Iterator[HeadStart]:
    with head_start(options, Silent()) as ahead:
        yield ahead


def test_a_run_takes_over_what_was_begun(options: RunOptions, ahead: HeadStart, tmp_path: Path) -> None:
    with open_store(str(tmp_path / "db"), write=True) as store:
        made = record_run(options, store, Silent(), ahead=ahead)
        alone = record_run(options, store, Silent())
    assert ahead.building is not None
    assert not ahead.building.is_alive()
    assert [r.row for r in made.results] == list(ahead.plan.rows)
    assert [r.outputs for r in made.results] == [r.outputs for r in alone.results]
    assert [c.ok for c in made.run.canaries] == [True] * 5


def test_compilers_are_at_work_before_anything_is_executed(ahead: HeadStart) -> None:
    assert ahead.building is not None
    assert ahead.canaries is not None
    for building in (ahead.canaries, ahead.building):
        building.join()  # it waits for no device
        made = {(each.build.kernel.name, each.build.profile.name) for each in building.taken()}
        assert made == {(build.kernel.name, build.profile.name) for build in building.plan.builds}


@pytest.mark.parametrize("change", [{"resume": "1"}, {"no_compile": True}])
def test_nothing_is_compiled_ahead_of_what_a_database_or_a_store_decides(
    options: RunOptions, ahead: HeadStart, change: dict[str, object]
) -> None:
    assert ahead.building is not None
    ahead.building.join()
    with head_start(replace(options, **change), Silent()) as other:  # type: ignore[arg-type]
        assert (other.building, other.canaries) == (None, None)
        assert other.plan.rows == ahead.plan.rows


def test_a_limit_to_compilers_holds_for_canaries_and_plan_together(options: RunOptions) -> None:
    with head_start(replace(options, jobs=1), Silent()) as ahead:
        assert ahead.canaries is not None
        assert ahead.building is None


def test_what_cannot_be_planned_is_refused_and_leaves_no_worker(
    options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Pool] = []
    begin = Pool.begin

    def seen(pool: Pool) -> None:
        begun.append(pool)
        begin(pool)

    monkeypatch.setattr(Pool, "begin", seen)
    with (
        pytest.raises(UsageError, match="no kernel 'none'"),
        head_start(replace(options, kernels=("none",)), Silent()),
    ):
        pass
    (pool,) = begun
    assert pool._workers == []


def test_a_gpu_that_does_not_open_gives_way_to_the_model_and_to_a_plan_for_it(
    options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = Where("cuda", NO_SUCH_GPU, "measured")
    monkeypatch.setattr("reprodb.executors.choice.resolve_device", lambda wanted: where)
    asked = replace(options, device="auto")
    with head_start(asked, Silent()) as ahead, opened_bench(asked, Silent(), ahead) as bench:
        assert bench.where.lane is Lane.MODELLED
        assert bench.ahead is None
        assert ahead.building is not None
        assert not ahead.building.is_alive()


def test_results_are_told_in_the_order_of_the_plan(ahead: HeadStart) -> None:
    (build,) = ahead.plan.builds
    plan = replace(
        ahead.plan, builds=tuple(replace(build, arch=arch) for arch in ("sm_90", "sm_80", "sm_75"))
    )
    came = [make_result(kernel=build.kernel, arch=arch) for arch in ("sm_75", "sm_90", "sm_80")]
    assert [result.arch for result in in_order(plan, came)] == ["sm_90", "sm_80", "sm_75"]
    nothing = plan.without(set(plan.rows))
    assert in_order(nothing, came) == tuple(came)
