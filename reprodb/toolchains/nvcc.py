"""nvcc: the compiler as a program, with an argument list, a cleaned environment and a private folder."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from reprodb.domain import BuildRequest, Pairs, Profile, Toolchain
from reprodb.errors import ToolchainError
from reprodb.toolchains import headers, options, sources
from reprodb.toolchains.nvrtc import EXACT_VERSION
from reprodb.toolchains.process import Finished, Runner, clean_environment, run, run_in_group
from reprodb.toolchains.protocol import CompileOutput

_PROBE_SECONDS = 20.0
_COMPILE_SECONDS = 600.0


class Nvcc:
    """The `nvcc` compiler of profiles. `runner` starts programs; tests put fakes there."""

    def __init__(self, runner: Runner = run_in_group, environ: Mapping[str, str] = os.environ) -> None:
        self._run = runner
        self._environ = environ

    def options(self, profile: Profile, arch: str, defines: Pairs, toolchain: Toolchain) -> tuple[str, ...]:
        del toolchain  # every version is told the same
        return options.resolved(profile, arch, defines)

    def compile(self, request: BuildRequest, folder: Path) -> CompileOutput:
        name = sources.write(request, folder)
        kept, scraps = folder / ".kept", folder / ".scraps"
        kept.mkdir()
        scraps.mkdir()
        cubin = kept / "kernel.cubin"
        done = self._run(
            [
                request.toolchain.path,
                *self.options(request.profile, request.arch, request.defines, request.toolchain),
                # One invocation yields both: the cubin is the product, the PTX is kept on the way.
                "-cubin", "-o", ".kept/kernel.cubin", "-keep", "-keep-dir", ".kept", name,
            ],
            folder, clean_environment(self._environ, scraps), _COMPILE_SECONDS,
        )  # fmt: skip
        log = sources.relative(done.log)
        ptx = next(iter(sorted(kept.glob("*.ptx"))), None)
        text = sources.relative(ptx.read_text(encoding="utf-8", errors="replace")) if ptx else None
        if done.ok and text is not None and cubin.is_file():
            return CompileOutput(True, text, cubin.read_bytes(), log)
        if not done.started:
            raise ToolchainError(f"{request.toolchain.path} cannot be started", detail=log)
        if done.ok:
            log += "nvcc ended well and wrote no PTX or no cubin\n"
        elif done.code != 1:
            log += f"nvcc: {done.reason}\n"
        return CompileOutput(False, text, None, log)


def probe(path: str, runner: Runner = run, environ: Mapping[str, str] = os.environ) -> dict[str, object]:
    """What an nvcc says of itself: its real place, exact version, architectures and components.

    A wrapper script on PATH is seen through: the place is where nvcc says that it lies. Raises ToolchainError
    where it does not work.
    """
    environment = clean_environment(environ)
    here = Path("/")

    def ask(*arguments: str) -> Finished:
        return runner(arguments, here, environment, _PROBE_SECONDS)

    dry = ask(path, "-E", "--dryrun", "-x", "cu", "/dev/null")
    place = re.search(r"^#\$ _HERE_=(.+)$", dry.log, re.MULTILINE)
    if place and (Path(place[1]) / "nvcc").is_file():
        path = str((Path(place[1]) / "nvcc").resolve())
    version = ask(path, "--version")
    exact = EXACT_VERSION.search(version.log)
    if not version.ok or exact is None:
        raise ToolchainError(f"{path} does not work as nvcc: {version.reason}", detail=version.log)
    codes = ask(path, "--list-gpu-code")
    architectures = sorted(set(re.findall(r"\bsm_\d+\b", codes.log)), key=lambda arch: int(arch[3:]))
    ptxas = ask(str(Path(path).parent / "ptxas"), "--version")
    assembler = EXACT_VERSION.search(ptxas.log)
    if not ptxas.ok or assembler is None:
        raise ToolchainError(f"{path} has no working ptxas beside it: {ptxas.reason}", detail=ptxas.log)
    components = [("ptxas", assembler[1]), ("host", host_compiler(runner, environ) or "none")]
    toolchain = Toolchain("nvcc", exact[1], path, "")
    start = headers.included_digest(toolchain, [headers.FORCED])
    if start is None:
        raise ToolchainError(f"{path} has no CUDA headers beside it")
    components.append(("headers", start))
    return {"path": path, "version": exact[1], "architectures": architectures, "components": components}


def host_compiler(runner: Runner = run, environ: Mapping[str, str] = os.environ) -> str | None:
    """The host compiler that nvcc would call, without its place: `gcc 12.2.0`; None where there is none."""
    environment = clean_environment(environ)
    full = runner(["gcc", "-dumpfullversion"], Path("/"), environment, _PROBE_SECONDS)
    if full.ok and re.fullmatch(r"\d+(\.\d+)*", full.log.strip()):
        return f"gcc {full.log.strip()}"
    version = runner(["gcc", "--version"], Path("/"), environment, _PROBE_SECONDS)
    first = version.log.splitlines()[0].strip() if version.ok and version.log else ""
    return first if first and "/" not in first else None


def main() -> None:
    """Probe one nvcc and print what it says of itself as JSON."""
    sys.stdout.write(json.dumps(probe(sys.argv[1])))
