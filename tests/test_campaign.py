"""Planning a run and carrying it out: what is skipped, what fails alone, and that timing decides nothing."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from reprodb.artifacts import ArtifactStore
from reprodb.campaign import Plan, Progress, carry_out, plan, result_seed
from reprodb.domain import Kernel, Lane, Profile, Result, Status, Suite, Toolchain
from reprodb.errors import ToolchainError, UsageError
from reprodb.executors.base import ExecutorOptions
from reprodb.executors.pool import Limits, Pool
from reprodb.suite import load_suite
from reprodb.toolchains import catalog

NVRTC12 = Toolchain("nvrtc", "12.6.85", "/12", "wheel")
NVRTC13 = Toolchain("nvrtc", "13.5.37", "/13", "wheel")
DEFAULT = Profile("default", "nvrtc", ">=13,<14")
NO_FMAD = replace(DEFAULT, name="no-fmad", fmad=False)
CUDA12 = Profile("cuda12", "nvrtc", ">=12,<13")
NVCC12 = Profile("nvcc12", "nvcc", ">=12,<13")

MANIFEST = """
[kernel]
name = "{name}"
source = "../kernel.cu"
operation = "{operation}"
determinism = "run_to_run"
accumulator = "float32"
defines = {{ {defines} }}
[[buffer]]
name = "total"
dtype = "float32"
size = 1
role = "result"
[[stage]]
entry = "total"
grid = 1
block = 32
args = ["x", "n", "total"]
[[case]]
input = "ones"
n = 4
[[case]]
input = "ones"
n = 8
"""
SOURCE = """
extern "C" __global__ void total(const float* x, unsigned long long n, float* total) { VALUE; }
"""


def a_suite(folder: Path, **operations: str) -> Suite:
    """Kernels whose scripted executor does what their operation says."""
    (folder / "kernel.cu").write_text(SOURCE)
    for value, (name, operation) in enumerate(operations.items()):
        (folder / name).mkdir()
        defines = 'VALUE = "undeclared"' if operation == "uncompilable" else f'VALUE = "total[0] = {value}"'
        text = MANIFEST.format(name=name, operation=operation, defines=defines)
        (folder / name / "kernel.toml").write_text(text)
    return load_suite(folder)


def planned(suite: Suite, *profiles: Profile, found: tuple[Toolchain, ...] = (NVRTC12, NVRTC13)) -> Plan:
    return plan(suite, suite.kernels, profiles or (DEFAULT,), found, repetitions=3)


# --- Planning ----------------------------------------------------------------------------------


@pytest.fixture(name="two")
def two_kernels(tmp_path: Path) -> Suite:
    return a_suite(tmp_path, a="sum", b="sum")


def test_every_kernel_case_and_profile_is_one_row(two: Suite) -> None:
    made = planned(two, DEFAULT, NO_FMAD, CUDA12)
    assert len(made.rows) == len(set(made.rows)) == 2 * 2 * 3
    assert made.rows[0] == ("a", "ones-4", "default", "sm_90", "plain")
    assert [build.toolchain.version for build in made.builds[::2]] == ["13.5.37", "13.5.37", "12.6.85"]


def test_a_profile_without_a_toolchain_is_skipped_with_the_command_that_installs_it(two: Suite) -> None:
    made = planned(two, DEFAULT, NVCC12)
    assert {build.profile.name for build in made.builds} == {"default"}
    (skipped,) = made.skipped
    assert (skipped.profile, skipped.remedy) == ("nvcc12", "reprodb toolchains install nvcc 12.4")


def test_a_required_profile_without_a_toolchain_is_an_error(two: Suite) -> None:
    with pytest.raises(ToolchainError, match="required profile") as caught:
        plan(two, two.kernels, (DEFAULT, NVCC12), (NVRTC13,), require=("nvcc*",))
    assert caught.value.remedy == "reprodb toolchains install nvcc 12.4"


def test_no_toolchain_at_all_is_an_error_that_names_every_command(two: Suite) -> None:
    with pytest.raises(ToolchainError, match="no profile has a toolchain") as caught:
        planned(two, DEFAULT, CUDA12, found=())
    assert "install nvrtc 13" in caught.value.remedy
    assert "install nvrtc 12" in caught.value.remedy


def test_names_that_do_not_exist_are_refused_with_the_nearest(two: Suite) -> None:
    with pytest.raises(UsageError, match="did you mean no-fmad"):
        plan(two, two.kernels, (DEFAULT, NO_FMAD), (NVRTC13,), require=("no-fmd",))
    with pytest.raises(UsageError, match="no case matches 'ones-5'"):
        plan(two, two.kernels, (DEFAULT,), (NVRTC13,), cases=("ones-5",))
    with pytest.raises(UsageError, match="sm90"):
        plan(two, two.kernels, (DEFAULT,), (NVRTC13,), arch="sm90")


def test_the_architecture_is_the_override_the_profiles_or_the_gpus(two: Suite) -> None:
    fixed = replace(DEFAULT, name="fixed", arch="sm_80")

    def arches(arch: str | None = None, native: str | None = None) -> list[str]:
        made = plan(two, two.kernels[:1], (DEFAULT, fixed), (NVRTC13,), arch=arch, native=native)
        return [build.arch for build in made.builds]

    assert arches() == ["sm_90", "sm_80"]
    assert arches(native="sm_120") == ["sm_120", "sm_80"]
    assert arches(native="sm_120", arch="sm_75") == ["sm_75", "sm_75"]


def test_what_is_there_already_is_left_out(two: Suite) -> None:
    made = planned(two)
    done = set(made.rows[:3])
    assert made.without(done).rows == made.rows[3:]
    assert [build.kernel.name for build in made.without(done).builds] == ["b"]


def test_seeds_differ_by_every_part_of_a_row_and_stay_the_same() -> None:
    row = ("a", "ones-4", "default", "sm_90", "plain")
    # Pinned: another derivation would change the arrival orders that `--seed` promises to repeat.
    assert result_seed("17", row) == 7462801905517965598
    others = {result_seed("17", row), result_seed("18", row)}
    for place in range(5):
        parts = list(row)
        parts[place] = "x"
        kernel, case, profile, arch, condition = parts
        others.add(result_seed("17", (kernel, case, profile, arch, condition)))
    assert len(others) == 7


# --- Carrying out ------------------------------------------------------------------------------


@pytest.fixture(name="store", scope="module")
def a_store(tmp_path_factory: pytest.TempPathFactory) -> ArtifactStore:
    """One store for the tests here, so that each kernel compiles once."""
    return ArtifactStore(tmp_path_factory.mktemp("store"))


@pytest.fixture(name="compilers", scope="module")
def real_compilers() -> tuple[Toolchain, ...]:
    return tuple(t for t in catalog.find() if t.compiler == "nvrtc")


def scripted(workers: int = 1, timeout: float = 20.0) -> Pool:
    return Pool(
        ExecutorOptions("scripted"),
        workers=workers,
        limits=Limits(timeout),
        module="tests.executors.fake_worker",
    )


def results(
    made: Plan, store: ArtifactStore, pool: Pool, **settings: object
) -> dict[tuple[str, ...], Result]:
    options = {"seed": "17", **settings}
    return {
        result.row: result
        for result, _ in carry_out(made, pool, Lane.MODELLED, store, **options)  # type: ignore[arg-type]
    }


def test_failures_are_results_and_cost_no_other(
    tmp_path: Path, store: ArtifactStore, compilers: tuple[Toolchain, ...]
) -> None:
    suite = a_suite(
        tmp_path, good="churn", crash="crash 3", hang="hang", refused="refuse", bad="uncompilable"
    )
    with scripted(timeout=1.0) as pool:
        found = results(planned(suite, found=compilers), store, pool)
    statuses = {row[0]: result.status for row, result in found.items()}
    assert len(found) == 10
    assert statuses == {
        "good": Status.OK,
        "crash": Status.CRASHED,
        "hang": Status.TIMED_OUT,
        "refused": Status.UNSUPPORTED,
        "bad": Status.BUILD_FAILED,
    }
    for row, result in found.items():
        assert bool(result.outputs) == (row[0] == "good")
        assert bool(result.error) == (row[0] != "good")
        assert result.kernel.cases == (result.case,)
    bad = found["bad", "ones-4", "default", "sm_90", "plain"]
    assert 'identifier "undeclared" is undefined' in bad.error
    assert bad.build is not None
    assert bad.build.status is Status.BUILD_FAILED


def test_bits_do_not_depend_on_workers_jobs_or_what_was_built_before(
    tmp_path: Path, compilers: tuple[Toolchain, ...]
) -> None:
    suite = a_suite(tmp_path, a="churn", b="sum")
    made = planned(suite, DEFAULT, NO_FMAD, found=compilers)
    store = ArtifactStore(tmp_path / "store")
    with scripted(1) as alone, scripted(2) as together:
        cold = results(made, store, alone, jobs=1)
        warm = results(made, store, together, jobs=2)
        other = results(made, store, together, seed="18")
    assert set(cold) == set(warm) == set(made.rows)
    assert all(cold[row].outputs == warm[row].outputs for row in made.rows)
    assert all(cold[row].outputs != other[row].outputs for row in made.rows)
    patterns = [cold[row].outputs[0].patterns[0].sha256 for row in made.rows]
    assert len(set(patterns)) == len(patterns)  # the scripted executor shows its seed


def test_results_and_artifacts_come_as_they_are_made(
    tmp_path: Path, store: ArtifactStore, compilers: tuple[Toolchain, ...]
) -> None:
    suite = a_suite(tmp_path, quick="sum", slow="sleep 90")
    heard: list[str] = []
    progress = Progress(building=lambda build, artifact: heard.append(build.kernel.name))
    made = planned(suite, found=compilers)
    with scripted(timeout=120.0) as pool:
        work = carry_out(made, pool, Lane.MODELLED, store, seed="1", jobs=1, progress=progress)
        began = time.monotonic()
        result, artifact = next(work)
        assert time.monotonic() - began < 60  # the slow one takes 90 s, on any machine
        assert (result.kernel.name, result.status) == ("quick", Status.OK)
        assert artifact is not None
        assert artifact.build == result.build
        work.close()
    assert "quick" in heard


def test_without_compiling_an_absent_artifact_is_an_error_before_any_result(
    tmp_path: Path, compilers: tuple[Toolchain, ...]
) -> None:
    suite = a_suite(tmp_path, a="sum", b="sum")
    made = planned(suite, found=compilers)
    store = ArtifactStore(tmp_path / "store")
    with scripted() as pool:
        results(replace(made, builds=made.builds[:1]), store, pool)
        with pytest.raises(ToolchainError, match="b under default"):
            results(made, store, pool, no_compile=True)
        again = results(replace(made, builds=made.builds[:1]), store, pool, no_compile=True)
    assert [r.status for r in again.values()] == [Status.OK] * 2


def test_a_source_that_vanished_is_a_failed_build_of_its_kernel(
    tmp_path: Path, store: ArtifactStore, compilers: tuple[Toolchain, ...]
) -> None:
    suite = a_suite(tmp_path, a="sum", b="sum")
    lost: Kernel = replace(suite.kernels[1], source="gone.cu")
    made = plan(suite, (suite.kernels[0], lost), (DEFAULT,), compilers, repetitions=2)
    with scripted() as pool:
        found = results(made, store, pool)
    assert [r.status for r in found.values() if r.kernel.name == "a"] == [Status.OK] * 2
    failed = [r for r in found.values() if r.kernel.name == "b"]
    assert [r.status for r in failed] == [Status.BUILD_FAILED] * 2
    assert "gone.cu" in failed[0].error


def test_without_compiling_a_profile_the_store_lacks_names_the_store_and_the_build_command(
    tmp_path: Path, compilers: tuple[Toolchain, ...]
) -> None:
    suite = a_suite(tmp_path, a="sum")
    profiles = (Profile("here", "nvrtc", ">=1"), Profile("there", "nvcc", ">=99"))
    made = plan(suite, suite.kernels, profiles, compilers, store=tmp_path / "store")
    (skipped,) = made.skipped
    assert skipped.reason == f"{tmp_path / 'store'} has nothing that nvcc >=99 built"
    assert skipped.remedy == f"reprodb build --profile there --store {tmp_path / 'store'}"
