"""Make the artifacts of a plan: from the store where it has them, else in parallel worker processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from reprodb.artifacts import ArtifactStore
from reprodb.digest import content_key, sha256
from reprodb.domain import (
    Artifact,
    Build,
    BuildRequest,
    Kernel,
    Profile,
    Status,
    Suite,
    Toolchain,
)
from reprodb.errors import ToolchainError
from reprodb.profiles import check_arch
from reprodb.toolchains import headers, pool, sass
from reprodb.toolchains.options import resolved
from reprodb.toolchains.process import clip
from reprodb.toolchains.worker import Done

# Raised when the same inputs would give another artifact: how compilers are called, what an entry holds.
SCHEMA = "reprodb.artifact/1"

_ENTRY = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$]+)", re.MULTILINE)


def request(suite: Suite, kernel: Kernel, profile: Profile, toolchain: Toolchain, arch: str) -> BuildRequest:
    """What is to be compiled, its sources read. Raises UsageError for an architecture that is none."""
    from reprodb.suite import source_files

    return BuildRequest(
        kernel=kernel.name,
        entries=tuple(dict.fromkeys(stage.entry for stage in kernel.stages)),
        source=kernel.source,
        files=source_files(suite, kernel),
        defines=kernel.defines,
        profile=profile,
        toolchain=toolchain,
        arch=check_arch(arch),
    )


def probing(request: BuildRequest, kernel: Kernel) -> BuildRequest | None:
    """The build that a kernel's order is probed with, where that is not the request itself."""
    probe = kernel.fingerprint
    if probe is None or not probe.defines:
        return None
    return replace(request, defines=tuple(sorted({**dict(request.defines), **dict(probe.defines)}.items())))


def options_of(request: BuildRequest) -> tuple[str, ...]:
    """The full option list of a request."""
    return resolved(request.profile, request.arch, request.defines)


def artifact_key(request: BuildRequest, options: tuple[str, ...] | None = None) -> str:
    """The content key: schema, toolchain with its parts, options, architecture, every source text, defines.

    The profile's name, the kernel's name and the places of files are not in it, so that equal work is shared.
    """
    toolchain = _with_headers(request)
    parts: list[str] = [SCHEMA, "toolchain"]
    parts += [f"{name}={value}" for name, value in toolchain.identity]
    parts += ["options", *(options_of(request) if options is None else options), "arch", request.arch]
    parts += ["source", request.source]
    for file in sorted(request.files, key=lambda f: f.path):
        parts += [file.path, file.text]
    parts.append("defines")
    parts += [f"{name}={value}" for name, value in request.defines]
    return content_key("reprodb.artifact/1", *parts)


def build_all(
    requests: Sequence[BuildRequest],
    store: ArtifactStore,
    jobs: int | None = None,
    *,
    no_compile: bool = False,
    seconds: float = pool.TIME_LIMIT,
) -> Iterator[Artifact]:
    """One artifact a request, as they come: first what the store has (`cached`), then what compilers make.

    A failed build is an artifact whose `build.status` is not ok, with the log. See `build_each` for the pairs
    with their requests, and for `no_compile`.
    """
    for _, artifact in build_each(requests, store, jobs, no_compile=no_compile, seconds=seconds):
        yield artifact


def build_each(
    requests: Sequence[BuildRequest],
    store: ArtifactStore,
    jobs: int | None = None,
    *,
    no_compile: bool = False,
    seconds: float = pool.TIME_LIMIT,
) -> Iterator[tuple[BuildRequest, Artifact]]:
    """Each request with its artifact. Requests of equal key are compiled once.

    With `no_compile` the store alone decides: the newest toolchain there that the profile accepts, whatever
    is installed here. Raises ToolchainError that names every absent artifact before anything is yielded.
    """
    if no_compile:
        yield from _from_store(requests, store)
        return
    tool = sass.find()
    absent: dict[str, list[BuildRequest]] = {}
    for wanted in requests:
        key = artifact_key(wanted)
        if key not in absent:
            artifact = store.get(key)
            if artifact is not None:
                yield wanted, _fit(wanted, _with_text(artifact, store, tool))
                continue
        absent.setdefault(key, []).append(wanted)
    firsts = [(key, same[0]) for key, same in absent.items()]
    for done in pool.compile_all([r for _, r in firsts], jobs, disassembler=tool, seconds=seconds):
        key, first = firsts[done.number]
        artifact = _artifact(key, first, done)
        for wanted in absent[key]:
            yield wanted, _fit(wanted, artifact)
        if artifact.build.status is Status.OK:  # it is executed while the disk takes it
            store.put(artifact)


def _from_store(
    requests: Sequence[BuildRequest], store: ArtifactStore
) -> Iterator[tuple[BuildRequest, Artifact]]:
    records = store.records()
    found = [(wanted, store.find(wanted, options_of(wanted), records)) for wanted in requests]
    absent = [wanted for wanted, artifact in found if artifact is None]
    if absent:
        profiles = sorted({wanted.profile.name for wanted in absent})
        kernels = sorted({wanted.kernel for wanted in absent})
        names = ", ".join(f"{w.kernel} under {w.profile.name} for {w.arch}" for w in absent[:8])
        more = f" and {len(absent) - 8} more" if len(absent) > 8 else ""
        flags = [f"--profile {name}" for name in profiles] + [f"--kernel {name}" for name in kernels]
        arches = sorted({wanted.arch for wanted in absent})
        raise ToolchainError(
            f"not in the store {store.root}: {names}{more}",
            remedy=f"reprodb build --arch {arches[0]} {' '.join(flags)}",
        )
    for wanted, artifact in found:
        if artifact is not None:
            yield wanted, _fit(wanted, artifact)


def _with_headers(request: BuildRequest) -> Toolchain:
    """The request's toolchain, with a digest of the toolkit headers that its sources include."""
    digest = headers.included_digest(request.toolchain, request.files)
    if digest is None:
        return request.toolchain
    components = (*request.toolchain.components, ("included headers", digest))
    return replace(request.toolchain, components=components)


def _artifact(key: str, request: BuildRequest, done: Done) -> Artifact:
    output = done.output
    first = [f for f in request.files if f.path == request.source]
    rest = sorted((f for f in request.files if f.path != request.source), key=lambda f: f.path)
    build = Build(
        key=key,
        profile=request.profile,
        # Where the compiler lay says nothing about the code, and something about a machine.
        toolchain=replace(_with_headers(request), path=""),
        arch=request.arch,
        options=options_of(request),
        defines=request.defines,
        sources=tuple((f.path, sha256(f.text.encode())) for f in (*first, *rest)),
        status=Status.OK if output.ok else Status.BUILD_FAILED,
        log=_explained(request, output.log, output.ok),
        code=done.code,
    )
    return Artifact(build, output.ptx, output.cubin, done.sass)


def _explained(request: BuildRequest, log: str, ok: bool) -> str:
    """A failure's log with what reprodb knows about it in front."""
    toolchain = request.toolchain
    if ok:
        return log
    if toolchain.architectures and request.arch.rstrip("af") not in toolchain.architectures:
        known = ", ".join(toolchain.architectures)
        return f"{toolchain.label} does not compile for {request.arch}; it knows {known}\n{log}"
    if "unsupported GNU version" in log:
        flag = '"-allow-unsupported-compiler"'
        return (
            f"{toolchain.label} does not know the host compiler {dict(toolchain.components).get('host')}; "
            f"put an older gcc first on PATH, or add {flag} to the profile's extra\n{log}"
        )
    if toolchain.compiler == "nvrtc" and "open source file" in log and not headers.folders(toolchain):
        command = f"reprodb toolchains install nvrtc {toolchain.version}"
        return f"{toolchain.label} has no CUDA headers beside it; install them: {command}\n{log}"
    return log


def _fit(request: BuildRequest, artifact: Artifact) -> Artifact:
    """A shared artifact as this request's: its profile's name, and only if it has the request's entries."""
    build = replace(artifact.build, profile=request.profile)
    if build.status is not Status.OK or artifact.ptx is None:
        return replace(artifact, build=build)
    found = _ENTRY.findall(artifact.ptx)
    absent = [entry for entry in request.entries if entry not in found]
    if not absent:
        return replace(artifact, build=build)
    mangled = [name for name in found if any(f"{len(entry)}{entry}" in name for entry in absent)]
    remedy = 'declare it extern "C"' if mangled else "check the stage's entry in the manifest"
    log = (
        f"no __global__ function {', '.join(absent)} in {request.source}; "
        f"found: {', '.join(found) or 'none'}; {remedy}\n{build.log}"
    )
    failed = replace(build, status=Status.BUILD_FAILED, log=clip(log))
    return replace(artifact, build=failed)


def _with_text(artifact: Artifact, store: ArtifactStore, tool: sass.Disassembler | None) -> Artifact:
    """A stored artifact completed where it was built without a disassembler and one is here now."""
    if artifact.sass is not None or artifact.cubin is None or tool is None:
        return artifact
    text = sass.disassemble(artifact.cubin, tool, memory=sass.memory())
    if text is None:
        return artifact
    from reprodb.codegen import code_of

    complete = replace(artifact, sass=text, build=replace(artifact.build, code=code_of(artifact.ptx, text)))
    store.put(complete)
    return complete
