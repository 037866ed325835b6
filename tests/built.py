"""A suite compiled once a session by NVRTC 13: PTX and cubin, no store and no SASS."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from reprodb.build import request
from reprodb.domain import Artifact, Build, Profile, Status
from reprodb.suite import load_suite
from reprodb.toolchains.pool import compile_all
from tests.toolchains_here import nvrtc13


@cache
def built(root: Path, profile: Profile) -> dict[str, Artifact]:
    """Every kernel of the suite in `root` by name, for sm_90."""
    suite, toolchain = load_suite(root), nvrtc13()
    wanted = [request(suite, kernel, profile, toolchain, "sm_90") for kernel in suite.kernels]
    artifacts = {}
    for done in compile_all(wanted, 2):
        asked = wanted[done.number]
        status = Status.OK if done.output.ok else Status.BUILD_FAILED
        build = Build("", profile, toolchain, "sm_90", (), asked.defines, (), status, done.output.log)
        artifacts[asked.kernel] = Artifact(build, done.output.ptx, done.output.cubin)
    return artifacts
