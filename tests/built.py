"""A suite compiled once a session by NVRTC 13: PTX and cubin, no store and no SASS."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

from reprodb.build import request
from reprodb.digest import sha256
from reprodb.domain import Artifact, Build, BuildRequest, Profile, Status
from reprodb.suite import load_suite
from reprodb.toolchains.pool import compile_all
from tests import shared
from tests.toolchains_here import nvrtc13


@cache
def built(root: Path, profile: Profile) -> dict[str, Artifact]:
    """Every kernel of the suite in `root` by name, for sm_90; what another worker compiled is taken."""
    suite, toolchain = load_suite(root), nvrtc13()
    wanted = [request(suite, kernel, profile, toolchain, "sm_90") for kernel in suite.kernels]
    kept = shared.folder() / f"built-{sha256(repr(wanted).encode())[:16]}"
    with shared.alone("built"):
        if not kept.exists():
            kept.write_bytes(pickle.dumps(_compiled(wanted)))
    artifacts: dict[str, Artifact] = pickle.loads(kept.read_bytes())  # noqa: S301 -- this session's own
    return artifacts


def _compiled(wanted: list[BuildRequest]) -> dict[str, Artifact]:
    artifacts = {}
    for done in compile_all(wanted, 2):
        asked = wanted[done.number]
        status = Status.OK if done.output.ok else Status.BUILD_FAILED
        build = Build(
            "", asked.profile, asked.toolchain, asked.arch, (), asked.defines, (), status, done.output.log
        )
        artifacts[asked.kernel] = Artifact(build, done.output.ptx, done.output.cubin)
    return artifacts
