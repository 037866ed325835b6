"""Installing compilers: which wheels belong together, what is refused, and that nothing half is left."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from packaging.version import Version

from reprodb.artifacts import ArtifactStore
from reprodb.build import build_all
from reprodb.domain import BuildRequest, Profile, SourceFile, Status
from reprodb.errors import ReprodbError, ToolchainError, UsageError
from reprodb.toolchains import catalog, debian, install
from reprodb.toolchains.catalog import Places
from reprodb.toolchains.process import Finished
from reprodb.toolchains.registry import Registry, minor_of
from tests import fake_compilers
from tests.toolchains_here import nvcc12

# As published on the day that this was written; the rules, not the lists, are what is tested.
PUBLISHED = {
    "nvidia-cuda-nvrtc": "13.5.37 13.4.92 13.4.59 13.0.88 13.0.48",
    "nvidia-cuda-nvrtc-cu12": "12.9.86 12.9.41 12.6.85 12.6.77 12.0.140 12.0.76",
    "nvidia-cuda-nvrtc-cu11": "11.8.89",
    "nvidia-cuda-nvcc": "13.5.37 13.4.92 13.4.59 13.3.73 13.0.88 13.0.48",
    "nvidia-nvvm": "13.5.37 13.4.92 13.4.59 13.3.73 13.0.88 13.0.48",
    "nvidia-cuda-crt": "13.5.37 13.4.92 13.4.59 13.3.73 13.0.88 13.0.48",
    "nvidia-cuda-runtime": "13.5.37 13.4.92 13.4.49 13.3.29 13.0.96 13.0.88 13.0.48",
    "nvidia-cuda-cccl": "13.3.5.0.6 13.3.4.3.1 13.3.4.2.1 13.3.3.4.1 13.0.85 13.0.50",
    "nvidia-cuda-runtime-cu12": "12.9.79 12.9.37 12.6.77 12.6.68 12.0.146 12.0.107",
    "nvidia-cuda-cccl-cu12": "12.9.27 12.6.77 12.0.140 12.0.90",
    "nvidia-cuda-runtime-cu11": "11.8.89",
}


class FakePip:
    """Answers like pip; `lay_out` puts files where pip would."""

    def __init__(self, behaviour: str = "well") -> None:
        self.behaviour = behaviour
        self.installed: list[str] = []

    def __call__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        seconds: float,
        output: Path | None = None,
    ) -> Finished:
        assert arguments[:3] == [sys.executable, "-m", "pip"]
        if "index" in arguments:
            package = next(a for a in arguments if a.startswith("nvidia-"))
            versions = PUBLISHED.get(package)
            if versions is None:
                return Finished(1, f"ERROR: No matching distribution found for {package}\n")
            return Finished(0, f"{package} (1)\nAvailable versions: {', '.join(versions.split())}\n")
        self.installed = [a for a in arguments if "==" in a]
        target = Path(arguments[list(arguments).index("--target") + 1])
        if self.behaviour == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.behaviour == "fails":
            return Finished(1, "ERROR: something\n")
        if self.behaviour != "empty":
            behaviour = "refuse" if self.behaviour == "broken" else "well"
            fake_compilers.lay_out(target / "nvidia/cu13", behaviour, "13.0.88")
        return Finished(0, "")


def environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "REPRODB_CACHE": str(tmp_path)}


def put(tmp_path: Path, compiler: str, version: str, pip: FakePip) -> list[str]:
    """What pip would be asked to install."""
    here = environ(tmp_path)
    with suppress(ToolchainError):  # nothing was laid out
        install.install(compiler, version, environ=here, registry=Registry(pip, here))
    return [pin.removeprefix("nvidia-").removeprefix("cuda-") for pin in pip.installed]


@pytest.mark.parametrize(
    ("compiler", "version", "wheels"),
    [
        ("nvrtc", "12.9", "nvrtc-cu12==12.9.86 runtime-cu12==12.9.79 cccl-cu12==12.9.27"),
        ("nvrtc", "12", "nvrtc-cu12==12.9.86 runtime-cu12==12.9.79 cccl-cu12==12.9.27"),
        ("nvrtc", "12.6.77", "nvrtc-cu12==12.6.77 runtime-cu12==12.6.77 cccl-cu12==12.6.77"),
        ("nvrtc", "12.0.76", "nvrtc-cu12==12.0.76 runtime-cu12==12.0.107 cccl-cu12==12.0.90"),
        ("nvrtc", "11", "nvrtc-cu11==11.8.89 runtime-cu11==11.8.89"),
        ("nvrtc", "13", "nvrtc==13.5.37 crt==13.5.37 runtime==13.5.37 cccl==13.3.5.0.6"),
        ("nvcc", "13.0", "nvcc==13.0.88 nvvm==13.0.88 crt==13.0.88 runtime==13.0.96 cccl==13.0.85"),
        ("nvcc", "13.0.48", "nvcc==13.0.48 nvvm==13.0.48 crt==13.0.48 runtime==13.0.48 cccl==13.0.50"),
        ("nvcc", "13.4.59", "nvcc==13.4.59 nvvm==13.4.59 crt==13.4.59 runtime==13.4.49 cccl==13.3.4.3.1"),
        ("nvcc", "13.3", "nvcc==13.3.73 nvvm==13.3.73 crt==13.3.73 runtime==13.3.29 cccl==13.3.3.4.1"),
    ],
)
def test_wheels_of_one_release_go_together(tmp_path: Path, compiler: str, version: str, wheels: str) -> None:
    assert put(tmp_path, compiler, version, FakePip("empty")) == wheels.split()


def test_what_is_published_is_listed_from_old_to_new() -> None:
    registry = Registry(FakePip(), {})
    assert install.published("nvrtc", registry) == (
        "11.8.89", "12.0.76", "12.0.140", "12.6.77", "12.6.85", "12.9.41", "12.9.86",
        "13.0.48", "13.0.88", "13.4.59", "13.4.92", "13.5.37",
    )  # fmt: skip
    assert install.published("nvcc", registry)[:3] == ("12.4.131", "13.0.48", "13.0.88")
    with pytest.raises(UsageError, match="no compiler 'clang'"):
        install.published("clang", registry)


def test_releases_of_wheel_versions() -> None:
    assert minor_of(Version("12.4.127.post1")) == (12, 4)
    assert minor_of(Version("13.3.5.0.6")) == (13, 5)


@pytest.mark.parametrize(
    ("compiler", "version", "said"),
    [
        ("nvrtc", "12.7", "nvrtc 12.7 is not published\nallowed: 12.9.86, 12.9.41, 12.6.85"),
        ("nvrtc", "12.6.8", "nvrtc 12.6.8 is not published"),
        ("nvcc", "12.9", "allowed: nvcc 12.4.131 on Debian, nvcc 13 and later anywhere"),
        ("nvcc", "11.8", "nvcc 11.8 is not published as wheels"),
        ("nvrtc", "newest", "'newest' is no version"),
        ("nvrtc", "13; rm", "is no version"),
        ("nvrtc", "../13", "is no version"),
        ("clang", "17", "no compiler 'clang'"),
    ],
)
def test_versions_that_do_not_exist(tmp_path: Path, compiler: str, version: str, said: str) -> None:
    here = environ(tmp_path)
    with pytest.raises(UsageError) as caught:
        install.install(compiler, version, environ=here, registry=Registry(FakePip(), here))
    assert said in str(caught.value)
    assert not (tmp_path / "toolchains").exists()


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("/usr/bin/python3: No module named pip\n", "this Python has no pip"),
        ("WARNING: Retrying (Retry(total=0)) after connection broken\nERROR: No matching distribution\n",
         "the package index cannot be reached"),
        ("ERROR: No matching distribution found for x\n", "no wheel of nvidia-cuda-nvrtc is published"),
    ],
)  # fmt: skip
def test_pip_and_network_troubles_are_told_apart(tmp_path: Path, log: str, said: str) -> None:
    registry = Registry(lambda *_, **__: Finished(1, log), {})
    with pytest.raises(ToolchainError, match=said):
        install.install("nvrtc", "13", environ=environ(tmp_path), registry=registry)


def test_no_network_for_real(tmp_path: Path) -> None:
    """pip itself, against a port where nobody listens."""
    here = {**environ(tmp_path), "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_INDEX": "",
            "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}  # fmt: skip
    with pytest.raises(ToolchainError, match="the package index cannot be reached") as caught:
        install.install("nvrtc", "13", environ=here, registry=Registry(environ=here))
    assert "--pack" in caught.value.remedy


def test_an_install_is_found_and_removed(tmp_path: Path) -> None:
    here, said = environ(tmp_path), list[str]()
    made = install.install("nvcc", "13.0", environ=here, registry=Registry(FakePip(), here), say=said.append)
    assert made.path == str(tmp_path / "toolchains/nvcc-13.0.88/nvidia/cu13/bin/nvcc")
    assert said[0].startswith("downloading nvidia-cuda-nvcc 13.0.88, nvidia-nvvm 13.0.88")
    bare = {**here, "PATH": os.defpath}
    assert made in catalog.find({**bare, "PATH": os.environ["PATH"]}, Places((), (), ()))
    again = install.install(
        "nvcc", "13.0", environ=here, registry=Registry(FakePip("fails"), here), say=said.append
    )
    assert again == made
    assert said[-1] == "nvcc 13.0.88 is there already"
    assert install.remove("nvcc", "13.0", here) == tmp_path / "toolchains/nvcc-13.0.88"
    assert list((tmp_path / "toolchains").iterdir()) == []


@pytest.mark.parametrize("behaviour", ["fails", "empty", "broken", "full"])
def test_a_failed_install_leaves_nothing(tmp_path: Path, behaviour: str) -> None:
    here = environ(tmp_path)
    with pytest.raises(ToolchainError) as caught:
        install.install("nvcc", "13.0", environ=here, registry=Registry(FakePip(behaviour), here))
    said = {"fails": "pip could not install", "empty": "no working nvcc", "broken": "does not compile",
            "full": "No space left"}  # fmt: skip
    assert said[behaviour] in str(caught.value)
    assert list((tmp_path / "toolchains").iterdir()) == []


def test_what_an_older_install_left_is_swept(tmp_path: Path) -> None:
    old, young = tmp_path / "toolchains/.part-old", tmp_path / "toolchains/.part-young"
    old.mkdir(parents=True)
    young.mkdir()
    os.utime(old, (1, 1))
    here = environ(tmp_path)
    install.install("nvcc", "13.0", environ=here, registry=Registry(FakePip(), here))
    assert not old.exists()
    assert young.exists()


def test_removing_names_what_is_there(tmp_path: Path) -> None:
    here = environ(tmp_path)
    for version in ("12.6.85", "12.6.77", "12.9.86"):
        (tmp_path / f"toolchains/nvrtc-{version}").mkdir(parents=True)
    with pytest.raises(UsageError, match="fits several"):
        install.remove("nvrtc", "12.6", here)
    with pytest.raises(UsageError, match="is not in the cache folder") as caught:
        install.remove("nvrtc", "13", here)
    assert "nvrtc 12.6.77, nvrtc 12.6.85, nvrtc 12.9.86" in str(caught.value)
    assert install.remove("nvrtc", "12.9", here).name == "nvrtc-12.9.86"
    with pytest.raises(UsageError, match="is no version"):
        install.remove("nvrtc", "..", here)


def test_a_wheel_that_lays_cicc_elsewhere_is_mended(tmp_path: Path) -> None:
    for name in (
        "nvidia/cu13/bin/cicc",
        "nvidia/cu13/lib/libnvrtc.alt.so.13",
        "nvidia/cu13/lib/libnvrtc_static.a",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    install._mend(tmp_path)
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()] == [
        "nvidia/cu13/nvvm/bin/cicc"
    ]


# --- The real ones


def test_nvcc_12_from_debian_compiles_a_header_s_worth(tmp_path: Path) -> None:
    toolchain = nvcc12()
    assert toolchain.version.startswith("12.")
    source = SourceFile(
        "k.cu",
        "#include <cuda_fp16.h>\n#include <cooperative_groups.h>\n"
        'extern "C" __global__ void k(const __half* x, float* y) {\n'
        "  cooperative_groups::this_thread_block().sync();\n  y[0] = __half2float(x[0]);\n}\n",
    )
    profile = Profile("nvcc12", "nvcc", ">=12,<13")
    wanted = [
        BuildRequest("k", ("k",), "k.cu", (source,), (), profile, toolchain, a) for a in ("sm_75", "sm_90")
    ]
    for artifact in build_all(wanted, ArtifactStore(tmp_path)):
        assert artifact.build.status is Status.OK, artifact.build.log


def test_an_nvrtc_from_the_registry(tmp_path: Path) -> None:
    """The smallest published one, with its headers, into a folder of its own."""
    here = environ(tmp_path)
    toolchain = install.install("nvrtc", "11.8", environ=here)
    assert toolchain.label == "nvrtc 11.8.89"
    assert "sm_90" in toolchain.architectures
    assert Path(toolchain.path).is_relative_to(tmp_path)
    assert catalog.match(Profile("p", "nvrtc", "11.8"), catalog.find(here)) == toolchain


# --- Debian


def test_off_debian_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert debian.choose("12") == debian.choose("12.4") == "12.4.131"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="this is no such Debian") as caught:
        debian.choose("12.4")
    assert "CUDA_HOME" in caught.value.remedy


@pytest.mark.parametrize(
    ("targets", "update", "said"),
    [
        ("", 0, "apt knows no Debian mirror"),
        ("http://mirror.example/ubuntu/ Ubuntu\n", 0, "apt knows no Debian mirror"),
        ("http://mirror.example/debian/ Debian\n", 100, "apt-get failed (exit code 100)"),
        ("http://mirror.example/debian/ Debian\n", 0, "does not have nvidia-cuda-toolkit 12.4.131"),
    ],
)
def test_what_apt_cannot_do_is_told(tmp_path: Path, targets: str, update: int, said: str) -> None:
    def apt(arguments: Sequence[str], folder: Path, *_: object, **__: object) -> Finished:
        if "indextargets" in arguments:
            return Finished(0, targets)
        settings = (folder / "apt.conf").read_text()
        assert "#clear APT::Update;" in settings
        assert 'Dir::Etc::sourceparts "/dev/null"' in settings
        assert f'Dir::State "{folder}"' in settings
        return Finished(update, "log of apt\n")

    with pytest.raises(ReprodbError) as caught:
        debian.lay_out(tmp_path, Registry(), lambda _: None, apt, {})
    assert said in str(caught.value)
