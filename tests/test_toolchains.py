"""Finding compilers: what they are, where they came from, which one a profile gets; tools that misbehave."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from reprodb.domain import Profile, SourceFile, Toolchain
from reprodb.errors import ToolchainError
from reprodb.toolchains import catalog, headers, nvcc, nvrtc, probe, sass
from reprodb.toolchains.catalog import Places
from reprodb.toolchains.places import cache_folder, toolchains_folder
from reprodb.toolchains.process import (
    STEERING_VARIABLES,
    Finished,
    clean_environment,
    clip,
    dropped_variables,
    run,
)
from tests import fake_compilers
from tests.toolchains_here import nvcc13, nvrtc12, nvrtc13

NOWHERE = Places((), (), ())


class Counted:
    """Runs real programs and remembers which."""

    def __init__(self, seconds: float | None = None) -> None:
        self.calls: list[list[str]] = []
        self.seconds = seconds

    def __call__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        seconds: float,
        output: Path | None = None,
    ) -> Finished:
        self.calls.append(list(arguments))
        return run(arguments, folder, environment, self.seconds or seconds, output)


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    """An environment with a cache of its own and the machine's host compiler, and no nvcc on PATH."""
    tools = tmp_path / "tools"
    if not tools.exists():
        tools.mkdir()
        for name in ("gcc", "sh"):
            found = shutil.which(name)
            assert found, f"{name} is missing"
            (tools / name).symlink_to(found)
    return {"PATH": str(tools), "REPRODB_CACHE": str(tmp_path / "cache"), **more}


def wheels_of(toolchain: Toolchain) -> str:
    """The folder of packages that a wheel's library lies in: …/nvidia/cu13/lib/libnvrtc.so.13."""
    return str(Path(toolchain.path).parents[3])


# --- What is found


def test_both_nvrtcs_of_one_environment_with_their_exact_versions(tmp_path: Path) -> None:
    places = Places((wheels_of(nvrtc12()), wheels_of(nvrtc13())), (), ())
    found = {t.version: t for t in catalog.find(environ(tmp_path), places) if t.compiler == "nvrtc"}
    assert {"12.6.85", nvrtc13().version} <= set(found)
    assert {t.origin for t in found.values()} == {"wheel"}
    assert found["12.6.85"].architectures[0] == "sm_50"
    assert found["12.6.85"].architectures[-1] == "sm_90"
    assert found[nvrtc13().version].architectures[0] == "sm_75"
    assert all(Path(t.path).is_absolute() for t in found.values())


def test_an_answer_is_kept_until_the_file_changes(tmp_path: Path) -> None:
    program = fake_compilers.lay_out(tmp_path / "kit")
    variables = environ(tmp_path, CUDA_HOME=str(tmp_path / "kit"))
    first, second, third = Counted(), Counted(), Counted()
    found = catalog.survey(variables, NOWHERE, first)
    assert [t.label for t in found.found] == ["nvcc 12.8.93"]
    assert first.calls
    assert catalog.survey(variables, NOWHERE, second) == found
    assert second.calls == []
    program.write_text(program.read_text().replace("12.8.93", "12.9.86"))
    assert [t.label for t in catalog.survey(variables, NOWHERE, third).found] == ["nvcc 12.9.86"]
    assert third.calls


@pytest.mark.parametrize("kept", ["", "{", "[]", '{"path": 3}', '{"path": "/nowhere"}'])
def test_a_spoilt_answer_is_asked_for_again(tmp_path: Path, kept: str) -> None:
    fake_compilers.lay_out(tmp_path / "kit")
    variables = environ(tmp_path, CUDA_HOME=str(tmp_path / "kit"))
    catalog.find(variables, NOWHERE)
    for file in (tmp_path / "cache/probes").iterdir():
        file.write_text(kept)
    assert [t.label for t in catalog.find(variables, NOWHERE)] == ["nvcc 12.8.93"]


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    fake_compilers.lay_out(tmp_path / "kit")
    variables = environ(tmp_path, CUDA_HOME=str(tmp_path / "kit"), REPRODB_CACHE="/proc/nothing")
    assert [t.label for t in catalog.find(variables, NOWHERE)] == ["nvcc 12.8.93"]


def test_places_and_their_order(tmp_path: Path) -> None:
    for name, version in (
        ("home", "12.1.1"),
        ("local", "12.2.2"),
        ("cache/toolchains/nvcc-12.3.3", "12.3.3"),
    ):
        fake_compilers.lay_out(tmp_path / name, version=version)
    path_kit = fake_compilers.lay_out(tmp_path / "on-path", version="12.4.4")
    wheel = fake_compilers.lay_out(tmp_path / "site/nvidia/cu13", version="13.1.1")
    variables = environ(tmp_path, CUDA_PATH=str(tmp_path / "home"))
    variables["PATH"] += os.pathsep + str(path_kit.parent)
    places = Places((str(tmp_path / "site"), str(tmp_path / "absent")), (tmp_path / "local",), ())
    found = catalog.find(variables, places)
    assert [(t.version, t.origin) for t in found] == [
        ("13.1.1", "wheel"),
        ("12.3.3", "cache"),
        ("12.1.1", "CUDA_PATH"),
        ("12.4.4", "PATH"),
        ("12.2.2", str(tmp_path)),
    ]
    assert found[0].path == str(wheel)


def test_one_compiler_found_by_several_ways_is_one(tmp_path: Path) -> None:
    program = fake_compilers.lay_out(tmp_path / "kit")
    (tmp_path / "link").symlink_to(tmp_path / "kit")
    wrapper = tmp_path / "wrapped" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    wrapper.chmod(0o755)
    variables = environ(tmp_path, CUDA_HOME=str(tmp_path / "link"))
    variables["PATH"] += os.pathsep + str(wrapper.parent)
    found = catalog.find(variables, Places((), (tmp_path / "kit",), ()))
    assert len(found) == 1
    only_wrapped = {k: v for k, v in variables.items() if k != "CUDA_HOME"}
    (through,) = catalog.find(only_wrapped, NOWHERE)
    assert through.path == str(program)


def test_the_same_version_elsewhere_is_the_same_toolchain(tmp_path: Path) -> None:
    fake_compilers.lay_out(tmp_path / "a")
    fake_compilers.lay_out(tmp_path / "b")
    fake_compilers.lay_out(tmp_path / "c", ptxas="12.8.90")
    places = Places((), (tmp_path / "a", tmp_path / "b", tmp_path / "c"), ())
    found = catalog.find(environ(tmp_path), places)
    assert [(t.label, dict(t.components)["ptxas"]) for t in found] == [
        ("nvcc 12.8.93", "12.8.93"), ("nvcc 12.8.93", "12.8.90"),
    ]  # fmt: skip


def test_what_does_not_work_is_told_and_hinders_nobody(tmp_path: Path) -> None:
    fake_compilers.lay_out(tmp_path / "good")
    library = tmp_path / "bad" / "lib64" / "libnvrtc.so.12"
    library.parent.mkdir(parents=True)
    library.write_text("not a library")
    fake_compilers.lay_out(tmp_path / "silent", behaviour="hang-asked")
    headless = fake_compilers.lay_out(tmp_path / "headless", version="12.7.7")
    shutil.rmtree(headless.parent.parent / "include")
    places = Places((), tuple(tmp_path / name for name in ("bad", "silent", "headless", "good")), ())
    survey = catalog.survey(environ(tmp_path), places, Counted(seconds=0.7))
    assert [t.label for t in survey.found] == ["nvcc 12.8.93"]
    reasons = {
        b.candidate.path.name + str(b.candidate.path.parent.parent.name): b.reason for b in survey.broken
    }
    assert "does not work as NVRTC" in reasons["libnvrtc.so.12bad"]
    assert "time limit" in reasons["nvccsilent"]
    assert "no CUDA headers" in reasons["nvccheadless"]


def test_nvcc_s_parts_are_in_its_identity(tmp_path: Path) -> None:
    toolchain = nvcc13()
    parts = dict(toolchain.components)
    assert parts["ptxas"].startswith("13.")
    assert parts["host"].startswith("gcc ")
    assert len(parts["headers"]) == 12
    assert "sm_90" in toolchain.architectures
    assert "/" not in "".join(parts.values())


def test_a_host_compiler_of_another_kind_and_none_at_all() -> None:
    def clang(arguments: Sequence[str], *_: object) -> Finished:
        return Finished(1 if "-dumpfullversion" in arguments else 0, "clang version 17.0.6 (somewhere)\n")

    assert nvcc.host_compiler(clang, {}) == "clang version 17.0.6 (somewhere)"  # type: ignore[arg-type]
    assert nvcc.host_compiler(run, {"PATH": "/nowhere"}) is None


def test_cache_folders() -> None:
    home = Path.home()
    assert cache_folder({}) == home / ".cache/reprodb"
    assert cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/reprodb")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == home / ".cache/reprodb"
    assert cache_folder({"XDG_CACHE_HOME": "/x", "REPRODB_CACHE": "~/y"}) == home / "y"
    assert toolchains_folder({"REPRODB_CACHE": "/z"}) == Path("/z/toolchains")


# --- Matching


def some(*versions: str, compiler: str = "nvrtc") -> list[Toolchain]:
    return [Toolchain(compiler, version, f"/{version}", "wheel") for version in versions]


@pytest.mark.parametrize(
    ("toolkit", "chosen"),
    [
        (">=12,<13", "12.10.3"),
        ("12.6.*", "12.6.85"),
        ("12.6.77", "12.6.77"),
        (">=13", "13.5.37"),
        (">=14", None),
    ],
)
def test_the_newest_that_fits(toolkit: str, chosen: str | None) -> None:
    found = some("12.6.77", "13.5.37", "12.10.3", "12.6.85", "12.9.86") + some("12.11.1", compiler="nvcc")
    best = catalog.match(Profile("p", "nvrtc", toolkit), found)
    assert (best.version if best else None) == chosen


@pytest.mark.parametrize(
    ("compiler", "toolkit", "command"),
    [
        ("nvrtc", ">=13,<14", "nvrtc 13"),
        ("nvrtc", "12.6.*", "nvrtc 12.6"),
        ("nvrtc", "12.6.85", "nvrtc 12.6.85"),
        ("nvrtc", "12", "nvrtc 12"),
        ("nvcc", ">=12,<13", "nvcc 12.4"),
        ("nvcc", ">=12.5,<13", "nvcc 12.5"),
        ("nvcc", ">=13,<14", "nvcc 13"),
        ("nvrtc", "!=12.5.40", "nvrtc 13"),
    ],
)
def test_the_command_that_installs_what_is_missing(compiler: str, toolkit: str, command: str) -> None:
    assert catalog.install_command(Profile("p", compiler, toolkit)) == f"reprodb toolchains install {command}"


# --- Headers


def test_only_the_headers_that_sources_reach_are_digested(tmp_path: Path) -> None:
    toolchain = Toolchain("nvcc", "12.8.93", str(fake_compilers.lay_out(tmp_path / "kit")), "")
    include = tmp_path / "kit/include"

    def digest(text: str) -> str | None:
        headers.folders.cache_clear()
        headers._closure.cache_clear()
        return headers.included_digest(toolchain, [SourceFile("k.cu", text)])

    plain, half = digest("// nothing\n"), digest("#include <cuda_fp16.h>\n")
    assert plain is None
    assert digest("#include <cmath>\n") is None
    assert half is not None
    (include / "cuda_bf16.h").write_text("")
    assert digest("#include <cuda_fp16.h>\n") == half
    (include / "cuda_fp16.h").write_text('#include "deep.hpp"\n')
    (include / "deep.hpp").write_text("1")
    deep = digest("#include <cuda_fp16.h>\n")
    (include / "deep.hpp").write_text("2")
    assert len({half, deep, digest("#include <cuda_fp16.h>\n")}) == 3


def test_a_toolchain_known_from_a_store_has_no_headers() -> None:
    assert headers.folders(Toolchain("nvrtc", "13.0.48", "", "store")) == ()


# --- Loading NVRTC


def test_one_process_refuses_a_second_version() -> None:
    code = "import sys; from reprodb.toolchains.nvrtc import Library; [Library(p) for p in sys.argv[1:]]"
    root = str(Path(nvrtc.__file__).parents[2])
    arguments = [sys.executable, "-c", code, nvrtc12().path, nvrtc13().path]
    done = run(arguments, Path(root), clean_environment(os.environ), 60.0)
    assert not done.ok
    assert "one process holds one NVRTC" in done.log


def test_probing_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = tmp_path / "libnvrtc.so.12"
    path.write_bytes(b"\x7fELF")
    with pytest.raises(ToolchainError, match="does not work as NVRTC"):
        probe.probe("nvrtc", path, "test", environ(tmp_path))


# --- Running tools


def test_arguments_reach_no_shell(tmp_path: Path) -> None:
    hostile = f"; touch {tmp_path}/made $(touch {tmp_path}/made) `touch {tmp_path}/made`"
    done = run([sys.executable, "-c", "import sys; print(sys.argv[1])", hostile], tmp_path, {}, 20.0)
    assert done == Finished(0, hostile + "\n")
    assert list(tmp_path.iterdir()) == []


def test_a_tool_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    started = time.monotonic()
    done = run([sys.executable, "-c", script], tmp_path, dict(os.environ), 1.0)
    assert done.timed_out
    assert not done.ok
    assert done.reason == "ran past its time limit and was stopped"
    assert time.monotonic() - started < 10
    assert gone(int(done.log))


def gone(process: int) -> bool:
    """Whether a process ends within a few seconds; a zombie counts as ended."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_megabytes_of_output_are_clipped(tmp_path: Path) -> None:
    script = "print('first'); print('x' * 8_000_000); print('last')"
    done = run([sys.executable, "-c", script], tmp_path, {}, 30.0)
    assert done.ok
    assert len(done.log) < 70_000
    assert done.log.startswith("first\n")
    assert done.log.endswith("last\n")
    assert "bytes left out" in done.log
    assert clip("a" * 100, 10).startswith("aaaaa\n[")
    assert clip("short") == "short"


def test_signals_and_absent_programs_are_told(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], tmp_path, {}, 20.0)
    assert done.reason == "killed by SIGSEGV"
    absent = run([str(tmp_path / "absent")], tmp_path, {}, 20.0)
    assert absent.reason == "could not be started"
    assert "No such file" in absent.log


def test_variables_that_steer_compilers_stay_behind() -> None:
    steered = dict.fromkeys(STEERING_VARIABLES, "1") | {"PATH": "/bin", "EDITOR": "vi", "CPATH": ""}
    kept = clean_environment(steered, Path("/scraps"))
    assert kept == {"PATH": "/bin", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0", "TMPDIR": "/scraps"}
    assert dropped_variables(steered) == tuple(sorted(set(STEERING_VARIABLES) - {"CPATH"}))
    assert dropped_variables({"PATH": "/bin"}) == ()


# --- Disassembling


def test_nvdisasm_is_found_and_its_version_heads_the_text() -> None:
    tool = sass.find()
    assert tool is not None
    assert tool.version.startswith("13.")


def test_no_disassembler_and_one_that_refuses(tmp_path: Path) -> None:
    tool = sass.find()
    assert sass.disassemble(b"not a cubin", tool) is None
    assert sass.first_working(iter([(tmp_path / "absent", "PATH")])) is None
    broken = tmp_path / "nvdisasm"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert sass.first_working(iter([(broken, "PATH")])) is None
