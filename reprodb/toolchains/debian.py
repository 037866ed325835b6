"""A real nvcc 12 in a folder, from Debian's package and wheels: no root, nothing on the system changes."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.version import Version

from reprodb.errors import ToolchainError, UsageError
from reprodb.toolchains.process import Runner, clean_environment, run
from reprodb.toolchains.registry import Registry

_SECONDS = 900.0

VERSION = "12.4.131"
_SUITE, _COMPONENT, _PACKAGE = "trixie", "non-free", "nvidia-cuda-toolkit"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# From the package: the driver and its parts, by their place there and here.
_TOOLS = ("ptxas", "cudafe++", "fatbinary", "nvlink", "bin2c", "cuobjdump", "nvdisasm")
_LIBRARY_FOLDER = Path("usr/lib/nvidia-cuda-toolkit/bin")

# From wheels of the same release: libdevice and the headers, which Debian splits over large packages.
_WHEELS = (
    ("nvidia-cuda-nvcc-cu12", Version("12.4.131")),
    ("nvidia-cuda-runtime-cu12", Version("12.4.127")),
    ("nvidia-cuda-cccl-cu12", Version("12.4.127.post1")),
)

# Where nvcc finds its parts, relative to itself.
_NVCC_PROFILE = """\
TOP = $(_HERE_)/..
CICC_PATH = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(CICC_PATH):$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
"""


def choose(version: str) -> str:
    """The exact version for `12` or `12.4`. Raises UsageError for another nvcc 12, or off Debian."""
    if version != VERSION and not VERSION.startswith(f"{version}."):
        raise UsageError(
            f"nvcc {version} is not to be had as a download",
            allowed=f"nvcc {VERSION} on Debian, nvcc 13 and later anywhere",
            remedy="install that CUDA toolkit and set CUDA_HOME, or use NVRTC of that version: "
            f"reprodb toolchains install nvrtc {version}",
        )
    if not is_here():
        raise UsageError(
            f"nvcc {version} comes from Debian's package for x86-64, and this is no such Debian",
            remedy="install a CUDA 12 toolkit and set CUDA_HOME, or use NVRTC: "
            f"reprodb toolchains install nvrtc {version}",
        )
    return VERSION


def is_here() -> bool:
    """Whether this is a Debian whose package can be unpacked and run."""
    tools = shutil.which("apt-get") and shutil.which("dpkg-deb") and Path(_KEYRING).is_file()
    return bool(tools) and platform.machine() == "x86_64"


def lay_out(
    place: Path,
    registry: Registry,
    say: Callable[[str], None],
    runner: Runner = run,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Make a toolkit's folder of package and wheels. Raises ToolchainError with the log of what failed.

    apt works on lists and caches of its own below `place`; its hooks are left out.
    """
    apt = _Apt(place / ".apt", runner, environ)
    say(f"downloading {_PACKAGE} {VERSION} of Debian {_SUITE}")
    package = apt.download()
    unpacked = place / ".package"
    apt.run(["dpkg-deb", "-x", str(package), str(unpacked)])
    say("downloading " + ", ".join(f"{name} {version}" for name, version in _WHEELS))
    wheels = place / ".wheels"
    registry.install(_WHEELS, wheels)

    for folder in ("bin", "nvvm/bin", "include"):
        (place / folder).mkdir(parents=True)
    inside = unpacked / _LIBRARY_FOLDER
    shutil.move(inside / "nvcc", place / "bin")
    shutil.move(inside / "crt", place / "bin")
    shutil.move(inside / "cicc", place / "nvvm/bin")
    for tool in _TOOLS:
        shutil.move(unpacked / "usr/bin" / tool, place / "bin")
    shutil.copytree(unpacked / "usr/share/doc" / _PACKAGE, place / "doc")
    (place / "bin/nvcc.profile").write_text(_NVCC_PROFILE)
    shutil.move(wheels / "nvidia/cuda_nvcc/nvvm/libdevice", place / "nvvm")
    for part in ("cuda_nvcc", "cuda_runtime", "cuda_cccl"):
        shutil.copytree(wheels / "nvidia" / part / "include", place / "include", dirs_exist_ok=True)
    for scraps in (".apt", ".package", ".wheels"):
        shutil.rmtree(place / scraps)


class _Apt:
    """apt with a state, a cache and a source of its own; the machine's proxies and mirrors still count."""

    def __init__(self, home: Path, runner: Runner, environ: Mapping[str, str]) -> None:
        self._home = home
        self._run = runner
        proxies = {name: environ[name] for name in environ if name.lower().endswith("_proxy")}
        self._environment = clean_environment(environ, home) | proxies
        for folder in ("lists/partial", "archives/partial"):
            (home / folder).mkdir(parents=True)
        (home / "status").touch()

    def download(self) -> Path:
        (self._home / "sources.list").write_text(
            f"deb [signed-by={_KEYRING}] {self._mirror()} {_SUITE} {_COMPONENT}\n"
        )
        # Read last, so that it overrides the machine's own settings, hooks included.
        (self._home / "apt.conf").write_text(
            "#clear APT::Update;\n"
            f'Dir::Etc::sourcelist "{self._home}/sources.list";\n'
            'Dir::Etc::sourceparts "/dev/null";\n'
            f'Dir::State "{self._home}";\n'
            f'Dir::State::status "{self._home}/status";\n'
            f'Dir::Cache "{self._home}";\n'
            'APT::Sandbox::User "";\n'
            'APT::Architecture "amd64";\n'
            'APT::Architectures { "amd64"; };\n'
        )
        apt = ["apt-get", "-q", "-c", str(self._home / "apt.conf")]
        self.run([*apt, "update"])
        self.run([*apt, "download", _PACKAGE])
        packages = sorted(self._home.glob(f"{_PACKAGE}_{VERSION}*.deb"))
        if not packages:
            present = ", ".join(p.name for p in self._home.glob("*.deb")) or "nothing"
            raise ToolchainError(f"Debian {_SUITE} does not have {_PACKAGE} {VERSION}; it gave {present}")
        return packages[0]

    def _mirror(self) -> str:
        """The machine's own Debian mirror, as apt knows it."""
        targets = self.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN)"])
        mirrors = [line.split()[0] for line in targets.splitlines() if line.strip()]
        plain = [uri for uri in mirrors if re.fullmatch(r"https?://\S+/debian/?", uri)]
        if not plain:
            raise ToolchainError(
                "apt knows no Debian mirror on this machine", allowed="a source whose address ends in /debian"
            )
        return plain[0]

    def run(self, arguments: list[str]) -> str:
        done = self._run(arguments, self._home, self._environment, _SECONDS)
        if not done.ok:
            raise ToolchainError(
                f"{arguments[0]} failed ({done.reason})",
                remedy="check the network and that Debian's non-free archive is reachable",
                detail=done.log,
            )
        return done.log
