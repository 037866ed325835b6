"""`reprodb doctor`: what is there, what is not, and the command for each gap."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprodb.cli import doctor
from reprodb.domain import Device, Toolchain
from reprodb.environment import Gpus
from reprodb.toolchains import nvcc, sass
from reprodb.toolchains.catalog import Broken, Candidate, Survey

H200 = Device("NVIDIA H200", "GPU-1", "9.0", 132, 150_000_000_000)
ALL = tuple(
    Toolchain(compiler, version, f"/{compiler}{version}", "wheel")
    for compiler in ("nvrtc", "nvcc")
    for version in ("12.4.131", "13.5.37")
)


def by_name(checks: Iterator[doctor.Check]) -> dict[str, doctor.Check]:
    return {f"{check.area} {check.name}": check for check in checks}


def test_a_machine_without_a_gpu() -> None:
    checks = by_name(doctor.lanes(Gpus(problem="no NVIDIA driver: libcuda.so.1 cannot be loaded")))
    measured, modelled = checks["lane measured"], checks["lane modelled"]
    assert (measured.ok, measured.detail) == (False, "no NVIDIA driver: libcuda.so.1 cannot be loaded")
    assert "modelled lane needs none" in measured.remedy
    assert modelled.ok


def test_a_gpu_with_and_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reprodb.environment.cupy_packages", lambda: (("cupy-cuda13x", "14.2.0"),))
    checks = by_name(doctor.lanes(Gpus((H200,), "13.0")))
    assert checks["gpu 0"].detail == "NVIDIA H200, sm_90, GPU-1"
    assert checks["lane measured"].ok

    two = (("cupy-cuda12x", "13.6.0"), ("cupy-cuda13x", "14.2.0"))
    monkeypatch.setattr("reprodb.environment.cupy_packages", lambda: two)
    lane = by_name(doctor.lanes(Gpus((H200,), "13.0")))["lane measured"]
    assert not lane.ok
    assert lane.remedy.startswith("pip uninstall -y cupy-cuda12x cupy-cuda13x")


def test_no_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    lane = by_name(doctor.lanes(Gpus()))["lane modelled"]
    assert (lane.ok, lane.remedy) == (False, "pip install 'reprodb[cpu]'")


def test_each_absent_toolchain_has_its_command() -> None:
    assert all(check.ok for check in doctor.toolchains(Survey(ALL, ())))
    gaps = [check for check in doctor.toolchains(Survey(ALL[:1], ())) if not check.ok]
    assert [(gap.name, gap.remedy) for gap in gaps] == [
        ("nvrtc 13", "reprodb toolchains install nvrtc 13"),
        ("nvcc 13", "reprodb toolchains install nvcc 13"),
        ("nvcc 12.4", "reprodb toolchains install nvcc 12.4"),
    ]
    assert "default, no-fmad, fast-math need it" in gaps[0].detail


def test_a_broken_toolchain_is_shown() -> None:
    fault = Broken(Candidate("nvrtc", Path("/x/libnvrtc.so.12"), "wheel"), "does not work")
    checks = by_name(doctor.toolchains(Survey(ALL, (fault,))))
    assert not checks["broken /x/libnvrtc.so.12"].ok


def test_tools_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(check.ok for check in doctor.tools())
    monkeypatch.setattr(sass, "find", lambda: None)
    monkeypatch.setattr(nvcc, "host_compiler", lambda: None)
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-g")
    checks = by_name(doctor.tools())
    assert checks["tool nvdisasm"].remedy == "pip install 'reprodb[sass]'"
    assert checks["tool host compiler"].remedy == "apt-get install g++"
    assert "kept from compilers" in checks["variable NVCC_APPEND_FLAGS"].detail


def test_places_that_can_and_cannot_be_written(tmp_path: Path) -> None:
    checks = by_name(doctor.places(str(tmp_path / "new/reprodb.db"), tmp_path / "store"))
    assert all(check.ok for check in checks.values())
    checks = by_name(doctor.places("/proc/reprodb.db", Path("/proc/store")))
    assert not checks["place database"].ok
    assert "--db" in checks["place database"].remedy
    assert not checks["place store"].ok
    assert "--store" in checks["place store"].remedy
    checks = by_name(doctor.places(f"sqlite:///{tmp_path}/reprodb.db", tmp_path))
    assert checks["place database"].ok


def test_a_database_server_that_does_not_answer(tmp_path: Path) -> None:
    check = by_name(doctor.places("postgresql+psycopg://127.0.0.1:9/none", tmp_path))["place database"]
    assert not check.ok
    assert check.detail


def test_the_command_as_json_and_as_a_table(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reprodb", "doctor"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert document["schema"] == "reprodb.doctor/1"
    assert document["usable"] is True
    assert {"area", "name", "ok", "detail", "remedy"} == set(document["checks"][0])
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "lane modelled" in table
    assert "\x1b" not in table
    for check in document["checks"]:
        assert check["ok"] or check["remedy"], check
