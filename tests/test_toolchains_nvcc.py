"""Compilers that hang, crash, flood, refuse or lie: each costs its own artifact and says why."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reprodb.artifacts import ArtifactStore
from reprodb.build import build_all, build_each
from reprodb.domain import Artifact, BuildRequest, Profile, SourceFile, Status
from reprodb.errors import ToolchainError
from reprodb.toolchains import pool, probe
from reprodb.toolchains.nvcc import Nvcc
from reprodb.toolchains.process import Finished, run
from tests import fake_compilers
from tests.test_cgroups import folder_for_groups
from tests.test_toolchains import gone

PROFILE = Profile("p", "nvcc", ">=12")

# A version each: equal ones would be one toolchain, and one artifact.
VERSIONS = {
    name: f"12.8.{number}"
    for number, name in enumerate(
        (
            "well",
            "hang",
            "crash",
            "megabytes",
            "refuse",
            "odd-exit",
            "no-output",
            "kill-worker",
            "environment",
            "greedy",
        )
    )
}


def request(tmp_path: Path, behaviour: str, kernel: str = "k") -> BuildRequest:
    """A request for a fake of its own, found as a real one would be."""
    place = tmp_path / behaviour
    program = (
        place / "bin/nvcc"
        if place.exists()
        else fake_compilers.lay_out(place, behaviour, VERSIONS[behaviour])
    )
    toolchain = probe.probe("nvcc", program, "test", {**os.environ, "REPRODB_CACHE": str(tmp_path / "cache")})
    source = SourceFile("d/k.cu", f'extern "C" __global__ void {kernel}() {{}}\n')
    return BuildRequest(kernel, (kernel,), "d/k.cu", (source,), (), PROFILE, toolchain, "sm_90")


def built(tmp_path: Path, *requests: BuildRequest, seconds: float = 60.0) -> list[Artifact]:
    return list(build_all(requests, ArtifactStore(tmp_path / "store"), jobs=2, seconds=seconds))


def only(tmp_path: Path, behaviour: str, seconds: float = 60.0) -> Artifact:
    (artifact,) = built(tmp_path, request(tmp_path, behaviour), seconds=seconds)
    return artifact


def test_a_fake_that_behaves_is_built_and_stored(tmp_path: Path) -> None:
    artifact = only(tmp_path, "well")
    assert artifact.build.status is Status.OK
    assert artifact.ptx is not None
    assert "-arch=sm_90 -std=c++17 -fmad=true -cubin" in artifact.ptx
    assert artifact.ptx.endswith(".visible .entry k()\n{\n\tret;\n}\n")
    assert artifact.build.toolchain.path == ""
    assert list(ArtifactStore(tmp_path / "store").keys()) == [artifact.build.key]


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("crash", "nvcc: killed by SIGSEGV"),
        ("refuse", "fake refusal"),
        ("odd-exit", "nvcc: exit code 42"),
        ("no-output", "wrote no PTX or no cubin"),
        ("kill-worker", "the compiler crashed (killed by SIGKILL)"),
    ],
)
def test_what_went_wrong_is_in_the_log(tmp_path: Path, behaviour: str, said: str) -> None:
    artifact = only(tmp_path, behaviour)
    assert artifact.build.status is Status.BUILD_FAILED
    assert said in artifact.build.log
    assert artifact.cubin is None
    assert list(ArtifactStore(tmp_path / "store").keys()) == []


def test_megabytes_of_warnings_leave_a_short_log(tmp_path: Path) -> None:
    artifact = only(tmp_path, "megabytes")
    assert artifact.build.status is Status.OK
    assert len(artifact.build.log) < 70_000
    assert "bytes left out" in artifact.build.log


def test_a_hanging_compiler_is_stopped_with_its_children(tmp_path: Path) -> None:
    started = time.monotonic()
    artifact = only(tmp_path, "hang", seconds=1.5)
    assert time.monotonic() - started < 15
    assert artifact.build.status is Status.BUILD_FAILED
    assert "nvcc 12.8.1: ran past its time limit of 1.5 s" in artifact.build.log
    assert gone(int((tmp_path / "hang/bin/child.pid").read_text()))


def test_a_compiler_that_takes_more_memory_than_it_may_costs_its_artifact_alone(tmp_path: Path) -> None:
    """In its worker's group, where one can be made; where none can, its GiB is granted."""
    requests = [request(tmp_path, "greedy"), request(tmp_path, "well")]
    greedy, well = sorted(pool.compile_all(requests, 1, memory=256 << 20), key=lambda done: done.number)
    assert well.output.ok
    if folder_for_groups() is None:
        assert greedy.output.ok
    else:
        assert "memory was exhausted: a compiler may hold 256 MiB here" in greedy.output.log
        assert not greedy.output.ok


def test_the_next_job_begins_before_an_answer_is_looked_at(tmp_path: Path) -> None:
    answers = pool.compile_all([request(tmp_path, "well"), request(tmp_path, "hang")], 1)
    next(answers)
    begun = tmp_path / "hang/bin/child.pid"
    until = time.monotonic() + 30
    while not begun.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert begun.exists()
    answers.close()  # type: ignore[attr-defined]


def test_an_artifact_is_handed_on_and_then_stored(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store")
    made = build_each([request(tmp_path, "well")], store, 1)
    _, artifact = next(made)
    assert list(store.keys()) == []
    assert list(made) == []
    assert list(store.keys()) == [artifact.build.key]


def test_trouble_costs_its_own_artifact_alone(tmp_path: Path) -> None:
    requests = [
        request(tmp_path, behaviour, kernel)
        for behaviour in ("kill-worker", "well", "crash", "hang")
        for kernel in ("a", "b", "c")
    ]
    artifacts = built(tmp_path, *requests, seconds=1.5)
    statuses = sorted(a.build.status.value for a in artifacts)
    assert statuses == ["build_failed"] * 9 + ["ok"] * 3


def test_leaving_early_ends_the_workers(tmp_path: Path) -> None:
    requests = [request(tmp_path, "well"), request(tmp_path, "hang")]
    stream = build_all(requests, ArtifactStore(tmp_path / "store"), jobs=2)
    assert next(stream).build.status is Status.OK
    pid = tmp_path / "hang/bin/child.pid"
    for _ in range(100):
        if pid.exists() and pid.read_text():
            break
        time.sleep(0.05)
    stream.close()  # type: ignore[attr-defined]
    assert gone(int(pid.read_text()))


def test_the_environment_that_a_compiler_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NVCC_APPEND_FLAGS", "CPATH", "LD_PRELOAD_NOT", "PYTHONPATH"):
        monkeypatch.setenv(name, "junk")
    artifact = only(tmp_path, "environment")
    assert artifact.ptx is not None
    seen = {line[3:] for line in artifact.ptx.splitlines() if line.startswith("// ") and " " not in line[3:]}
    assert seen - {"LC_CTYPE"} <= {"PATH", "HOME", "TMPDIR", "LC_ALL", "SOURCE_DATE_EPOCH"}
    assert "PATH" in seen


def test_no_scraps_stay_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    requests = [request(tmp_path, "well"), request(tmp_path, "kill-worker")]
    assert len(built(tmp_path, *requests)) == 2
    assert list(scratch.iterdir()) == []


def test_without_a_temporary_folder_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = request(tmp_path, "well")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(ToolchainError, match="absent") as caught:
        built(tmp_path, wanted)
    assert "TMPDIR" in caught.value.remedy


def test_a_compiler_that_went_away_is_told(tmp_path: Path) -> None:
    gone_request = request(tmp_path, "well")
    Path(gone_request.toolchain.path).unlink()
    (artifact,) = built(tmp_path, gone_request)
    assert "cannot be started" in artifact.build.log


def test_an_injected_runner_sees_the_whole_command(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def runner(arguments, folder, environment, seconds, output=None):  # type: ignore[no-untyped-def]
        seen.append(arguments)
        return Finished(1, f"{folder}: /proc/self/cwd/d/k.cu(1): error: no\n")

    output = Nvcc(runner, {"PATH": "/bin"}).compile(request(tmp_path, "well"), _folder(tmp_path))
    assert not output.ok
    assert "d/k.cu(1): error: no" in output.log
    assert "/proc/self/cwd" not in output.log
    program, *flags = seen[0]
    assert program == str(tmp_path / "well/bin/nvcc")
    assert flags == [
        "-arch=sm_90", "-std=c++17", "-fmad=true", "-cubin", "-o", ".kept/kernel.cubin", "-keep", "-keep-dir",
        ".kept", "/proc/self/cwd/d/k.cu",
    ]  # fmt: skip


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_workers_are_bounded_by_jobs_and_hold_one_toolchain(tmp_path: Path) -> None:
    """Two toolchains and one job at a time: a worker gives way to the next toolchain's."""
    started: list[str] = []
    real = pool._Pool._start

    def start(self: pool._Pool, path: str) -> pool._Worker:
        assert not self._workers
        started.append(path)
        return real(self, path)

    requests = [request(tmp_path, b, k) for k in ("a", "b") for b in ("well", "megabytes")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool._Pool, "_start", start)
        done = list(pool.compile_all(requests, 1))
    assert sorted(d.number for d in done) == [0, 1, 2, 3]
    assert all(d.output.ok for d in done)
    assert len(started) == 2


def test_nothing_to_do() -> None:
    assert list(pool.compile_all([])) == []
    assert run(["true"], Path("/"), dict(os.environ), 5.0).ok
