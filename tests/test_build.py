"""Building with real compilers: what comes out, what a change rebuilds, and what a failure says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprodb.artifacts import ArtifactStore
from reprodb.build import artifact_key, build_all, build_each, options_of, request
from reprodb.domain import Artifact, BuildRequest, Kernel, Profile, SourceFile, Status, Suite, Toolchain
from reprodb.errors import ToolchainError, UsageError
from reprodb.suite import bundled_suite, load_suite
from reprodb.toolchains import flags, pool, sass
from reprodb.toolchains.base import flags_of
from tests.toolchains_here import nvcc12, nvcc13, nvrtc12, nvrtc13

HEADER = SourceFile(
    "_lib/f.cuh", "#define QUARTER 0.25f\n__device__ float f(float x) { return x*x + QUARTER; }\n"
)
SOURCE = SourceFile(
    "_lib/k.cu",
    '#include "f.cuh"\n'
    'extern "C" __global__ void k(const float* x, unsigned long long n, float* y) {\n'
    "  for (unsigned long long i = threadIdx.x; i < n; i += THREADS) y[i] = f(x[i]);\n}\n",
)


def asked(
    toolchain: Toolchain | None = None,
    *,
    files: tuple[SourceFile, ...] = (SOURCE, HEADER),
    defines: tuple[tuple[str, str], ...] = (("THREADS", "256"),),
    entries: tuple[str, ...] = ("k",),
    arch: str = "sm_90",
    **settings: object,
) -> BuildRequest:
    toolchain = toolchain or nvrtc13()
    profile = Profile("p", toolchain.compiler, toolchain.version)
    profile = replace(profile, **settings)  # type: ignore[arg-type]
    return BuildRequest("k", entries, files[0].path, files, defines, profile, toolchain, arch)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SASS text, which takes longer than compiling; for tests that do not look at it."""
    monkeypatch.setattr(sass, "find", lambda: None)


def one(tmp_path: Path, wanted: BuildRequest, jobs: int = 1) -> Artifact:
    (artifact,) = build_all([wanted], ArtifactStore(tmp_path / "store"), jobs)
    return artifact


def sass_count(artifact: Artifact, opcode: str) -> int:
    assert artifact.build.code is not None
    return sum(dict(c.sass).get(opcode, 0) for c in artifact.build.code.counts)


# --- What comes out


@pytest.mark.parametrize("find", [nvrtc12, nvrtc13, nvcc13], ids=["nvrtc12", "nvrtc13", "nvcc13"])
def test_an_artifact_is_whole(tmp_path: Path, find: object) -> None:
    toolchain = find()  # type: ignore[operator]
    plain, apart, fast = build_all(
        [asked(toolchain), asked(toolchain, fmad=False), asked(toolchain, fast_math=True, fmad=False)],
        ArtifactStore(tmp_path),
        1,
    )
    for artifact in (plain, apart, fast):
        assert artifact.build.status is Status.OK, artifact.build.log
        assert artifact.ptx is not None
        assert artifact.cubin is not None
        assert artifact.sass is not None
        assert ".visible .entry k(" in artifact.ptx
        assert artifact.cubin.startswith(b"\x7fELF")
        assert artifact.sass.startswith("// nvdisasm ")
        assert artifact.build.toolchain.version == toolchain.version
        assert [path for path, _ in artifact.build.sources] == ["_lib/k.cu", "_lib/f.cuh"]
        assert not artifact.cached
    assert "fma.rn.f32" in (plain.ptx or "")
    assert "mul.rn.f32" in (apart.ptx or "")
    assert sass_count(plain, "FFMA") > sass_count(apart, "FFMA") == 0
    assert "mul.rn.ftz.f32" in (fast.ptx or "")
    assert options_of(asked(toolchain)) == plain.build.options
    assert flags_of(plain.build) == ("-std=c++17", "-fmad=true")


def test_both_majors_of_nvcc(tmp_path: Path) -> None:
    """nvcc 12 is installed into the cache folder where the machine has none."""
    twelve, thirteen = build_all([asked(nvcc12()), asked(nvcc13())], ArtifactStore(tmp_path))
    for artifact in (twelve, thirteen):
        assert artifact.build.status is Status.OK, artifact.build.log
        assert artifact.sass is not None
    assert {a.build.toolchain.version.split(".")[0] for a in (twelve, thirteen)} == {"12", "13"}
    assert twelve.build.key != thirteen.build.key


def test_a_compiler_s_part_is_in_the_key() -> None:
    toolchain = nvcc13()
    other = replace(toolchain, components=(*toolchain.components[:-1], ("host", "gcc 99.1.0")))
    assert artifact_key(asked(toolchain)) != artifact_key(asked(other))
    elsewhere = replace(toolchain, origin="elsewhere")
    assert artifact_key(asked(toolchain)) == artifact_key(asked(elsewhere))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("find", [nvrtc12, nvrtc13, nvcc13], ids=["nvrtc12", "nvrtc13", "nvcc13"])
@pytest.mark.parametrize("extra", [(), ("-lineinfo",)], ids=["plain", "lineinfo"])
def test_two_builds_in_two_folders_give_the_same_bytes(
    tmp_path: Path, find: object, extra: tuple[str, ...]
) -> None:
    wanted = asked(find(), extra=extra)  # type: ignore[operator]
    first = list(build_all([wanted], ArtifactStore(tmp_path / "a")))
    second = list(build_all([wanted], ArtifactStore(tmp_path / "b")))
    assert first == second
    (artifact,) = first
    assert "reprodb-build" not in (artifact.ptx or "")
    assert b"reprodb-build" not in (artifact.cubin or b"")
    if extra:
        assert re.findall(r'\.file\s+\d+ "([^"]+)"', artifact.ptx or "") == ["_lib/k.cu", "_lib/f.cuh"]


def test_names_of_the_unit_do_not_count(tmp_path: Path) -> None:
    """nvcc names what is private to a unit after the folder that it compiled in."""
    private = replace(
        HEADER, text="static __device__ int calls;\nnamespace { __device__ int hidden; }\n" + HEADER.text
    )
    uses = replace(SOURCE, text=SOURCE.text.replace("y[i] = ", "y[i] = (calls++, hidden++), "))
    wanted = asked(nvcc13(), files=(uses, private))
    codes = [next(iter(build_all([wanted], ArtifactStore(tmp_path / name)))).build.code for name in "ab"]
    assert codes[0] is not None
    assert codes[0] == codes[1]


@pytest.mark.usefixtures("quick")
def test_variables_do_not_reach_the_real_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [asked(nvcc13()), asked(nvrtc12())]
    before = list(build_all(wanted, ArtifactStore(tmp_path / "a")))
    for name in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVRTC_APPEND_FLAGS", "NVRTC_PREPEND_FLAGS"):
        monkeypatch.setenv(name, "-fmad=false")
    monkeypatch.setenv("INCLUDES", "-Ijunk")
    monkeypatch.setenv("CPATH", "/junk")
    after = list(build_all(wanted, ArtifactStore(tmp_path / "b")))
    by_key = {a.build.key: a for a in before}
    assert {a.build.key: a for a in after} == by_key


def test_the_bundled_tree_with_and_without_contraction(tmp_path: Path) -> None:
    suite = load_suite(bundled_suite())
    kernel = next(k for k in suite.kernels if k.name == "sum_squares_tree")
    profile = Profile("a", "nvrtc", ">=12,<13")
    requests = [
        request(suite, kernel, each, nvrtc12(), "sm_90")
        for each in (profile, replace(profile, name="b", fmad=False))
    ]
    built = build_all(requests, ArtifactStore(tmp_path))
    plain, apart = sorted(built, key=lambda a: a.build.profile.name)
    assert plain.build.status is apart.build.status is Status.OK
    assert sass_count(plain, "FFMA") > sass_count(apart, "FFMA")
    assert plain.build.defines == kernel.defines


# --- What a change rebuilds


def made(requests: Sequence[BuildRequest], store: ArtifactStore) -> list[str]:
    """Kernels that were compiled, not taken from the store."""
    return sorted(wanted.kernel for wanted, artifact in build_each(requests, store) if not artifact.cached)


@pytest.mark.usefixtures("quick")
def test_a_second_build_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArtifactStore(tmp_path)
    requests = [asked(), asked(nvrtc12()), asked(fmad=False)]
    first = list(build_all(requests, store))
    monkeypatch.setattr(pool._Pool, "_start", None)  # starting a worker would fail
    second = list(build_all(requests, store))
    assert all(a.cached for a in second)
    assert {a.build.key for a in second} == {a.build.key for a in first}
    assert {a.build.key: replace(a, cached=True) for a in first} == {a.build.key: a for a in second}


@pytest.mark.usefixtures("quick")
def test_each_change_rebuilds_exactly_what_it_touches(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    plain_source = replace(SOURCE, text=SOURCE.text.replace('#include "f.cuh"\n', HEADER.text))
    includes = replace(asked(), kernel="includes")
    alone = replace(asked(files=(plain_source,)), kernel="alone")
    other_threads = replace(asked(defines=(("THREADS", "128"),)), kernel="other threads")
    twelve = replace(asked(nvrtc12()), kernel="nvrtc 12")
    requests = [includes, alone, other_threads, twelve]
    assert made(requests, store) == ["alone", "includes", "nvrtc 12", "other threads"]

    new_header = replace(HEADER, text=HEADER.text.replace("0.25f", "0.5f"))
    with_header = [replace(r, files=(SOURCE, new_header)) if len(r.files) == 2 else r for r in requests]
    assert made(with_header, store) == ["includes", "nvrtc 12", "other threads"]

    new_define = [replace(includes, defines=(("THREADS", "64"),)), alone, other_threads, twelve]
    assert made(new_define, store) == ["includes"]

    new_flag = [includes, replace(alone, profile=replace(alone.profile, fmad=False)), other_threads, twelve]
    assert made(new_flag, store) == ["alone"]

    new_version = [includes, alone, other_threads, replace(twelve, toolchain=nvrtc13())]
    assert made(new_version, store) == []  # the same work as `includes`
    new_arch = [includes, alone, other_threads, replace(twelve, arch="sm_80")]
    assert made(new_arch, store) == ["nvrtc 12"]
    assert made(requests, store) == []


@pytest.mark.usefixtures("quick")
def test_another_version_rebuilds(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    assert made([asked(nvrtc12())], store) == ["k"]
    assert made([asked(nvrtc13())], store) == ["k"]
    assert made([asked(nvrtc12())], store) == []


@pytest.mark.usefixtures("quick")
def test_equal_work_is_done_once_and_keeps_its_profile_s_name(tmp_path: Path) -> None:
    requests = [replace(asked(), kernel=name) for name in ("a", "b")]
    requests.append(replace(requests[0], profile=replace(requests[0].profile, name="other")))
    done: list[int] = []
    real = pool.compile_all

    def counted(wanted: Sequence[BuildRequest], *more: object, **named: object) -> object:
        done.append(len(wanted))
        return real(wanted, *more, **named)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "compile_all", counted)
        pairs = list(build_each(requests, ArtifactStore(tmp_path)))
    assert done == [1]
    assert sorted((r.kernel, a.build.profile.name) for r, a in pairs) == [
        ("a", "other"),
        ("a", "p"),
        ("b", "p"),
    ]
    assert len({a.build.key for _, a in pairs}) == 1


SMALL = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)


@given(st.lists(SMALL, min_size=1, max_size=3), st.lists(SMALL, min_size=1, max_size=3), SMALL)
def test_keys_tell_sources_apart_however_their_texts_are_cut(
    one_side: list[str], other_side: list[str], arch: str
) -> None:
    absent = Toolchain("nvrtc", "13.0.48", "", "store")

    def key(texts: list[str]) -> str:
        files = tuple(SourceFile(f"{i}", text) for i, text in enumerate(texts))
        profile = Profile("p", "nvrtc", "13")
        return artifact_key(BuildRequest("k", (), "0", files, (), profile, absent, f"sm_{arch}"))

    assert (key(one_side) == key(other_side)) == (one_side == other_side)


@pytest.mark.usefixtures("quick")
def test_headers_of_the_toolkit_are_in_the_key_where_they_are_included(tmp_path: Path) -> None:
    half = replace(SOURCE, text="#include <cuda_fp16.h>\n" + SOURCE.text)
    artifact = one(tmp_path, asked(nvcc13(), files=(half, HEADER)))
    assert artifact.build.status is Status.OK, artifact.build.log
    assert "included headers" in dict(artifact.build.toolchain.components)
    plain = one(tmp_path, asked(nvcc13()))
    assert "included headers" not in dict(plain.build.toolchain.components)


# --- Failures


@pytest.mark.usefixtures("quick")
def test_a_compile_error_carries_the_log_and_stops_only_itself(tmp_path: Path) -> None:
    broken = replace(SOURCE, text=SOURCE.text.replace("f(x[i])", "g(x[i])"))
    store = ArtifactStore(tmp_path)
    requests = [asked(files=(broken, HEADER)), asked(), asked(nvcc13(), files=(broken, HEADER))]
    results = {r.files[0].text + r.profile.compiler: a for r, a in build_each(requests, store)}
    for compiler in ("nvrtc", "nvcc"):
        failed = results[broken.text + compiler]
        assert failed.build.status is Status.BUILD_FAILED
        assert '_lib/k.cu(3): error: identifier "g" is undefined' in failed.build.log
        assert "/proc/self" not in failed.build.log
        assert "/tmp" not in failed.build.log
        assert failed.cubin is None
    assert results[SOURCE.text + "nvrtc"].build.status is Status.OK
    assert len(list(store.keys())) == 1


def test_an_error_in_an_included_file_names_it(tmp_path: Path) -> None:
    broken = replace(HEADER, text="#error quarter wanted\n")
    artifact = one(tmp_path, asked(files=(SOURCE, broken)))
    assert "_lib/f.cuh(1)" in artifact.build.log
    assert "quarter wanted" in artifact.build.log


SHARED_FLAGS = (
    "-std=c++20", "-DA", "-DB=2", "-UA", "-lineinfo", "-maxrregcount=64", "-w", "-restrict",
    "-extra-device-vectorization", "-diag-suppress=177", "-device-stack-protector=false", "-Xptxas", "-O2",
    "-Xptxas=-dlcm=ca", "-Xptxas=-disable-optimizer-consts", "--ptxas-options=-opt-fp-atomics",
    "-Xptxas=-regUsageLevel=5", "-Xptxas=--allow-expensive-optimizations=true", "-Xptxas=-no-bb-merge",
)  # fmt: skip
NVRTC_FLAGS = ("-default-device", "-builtin-move-forward=true", "-builtin-initializer-list=false", "-minimal")
NVCC_FLAGS = (
    "-O1", "--expt-relaxed-constexpr", "--extended-lambda", "-Werror=cross-execution-space-call", "-jtd=50",
    "-Wno-deprecated-gpu-targets", "-Wreorder", "-allow-unsupported-compiler", "-Wext-lambda-captures-this",
    "-Xptxas=-v,-w,-warn-spills", "-Xcompiler", "-O2", "-Xcompiler=-ffp-contract=off,-Wall",
)  # fmt: skip


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("find", "extra"),
    [
        (nvrtc13, SHARED_FLAGS + NVRTC_FLAGS),
        (nvcc13, SHARED_FLAGS + NVCC_FLAGS),
        (nvcc13, ("-G", "-dopt=on")),
    ],
)
def test_the_flags_that_are_taken_exist_and_leave_their_neighbours_alone(
    tmp_path: Path, find: object, extra: tuple[str, ...]
) -> None:
    """Each is followed by another, at last by the define that the source needs."""
    wanted = asked(find())  # type: ignore[operator]
    assert flags.check(wanted.profile.compiler, extra) == extra
    artifact = one(tmp_path, replace(wanted, profile=replace(wanted.profile, extra=extra)))
    assert artifact.build.status is Status.OK, artifact.build.log


@pytest.mark.usefixtures("quick")
def test_an_absent_entry_is_named_with_those_that_exist(tmp_path: Path) -> None:
    artifact = one(tmp_path, asked(entries=("k", "fold")))
    assert artifact.build.status is Status.BUILD_FAILED
    assert artifact.build.log.startswith("no __global__ function fold in _lib/k.cu; found: k;")


@pytest.mark.usefixtures("quick")
def test_a_mangled_entry_is_told_how_to_be_found(tmp_path: Path) -> None:
    mangled = replace(SOURCE, text=SOURCE.text.replace('extern "C" ', ""))
    artifact = one(tmp_path, asked(files=(mangled, HEADER)))
    assert artifact.build.status is Status.BUILD_FAILED
    assert 'found: _Z1kPKfyPf; declare it extern "C"' in artifact.build.log


@pytest.mark.usefixtures("quick")
def test_an_absent_entry_is_absent_from_a_stored_artifact_too(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    good, bad = asked(), replace(asked(entries=("fold",)), kernel="bad")
    list(build_all([good], store))
    statuses = {r.kernel: (a.build.status, a.cached) for r, a in build_each([good, bad], store)}
    assert statuses == {"k": (Status.OK, True), "bad": (Status.BUILD_FAILED, True)}


@pytest.mark.parametrize(
    ("find", "arch", "said"),
    [
        (nvrtc12, "sm_100", "nvrtc 12.6.85 does not compile for sm_100; it knows sm_50, "),
        (nvrtc13, "sm_70", "does not compile for sm_70; it knows sm_75, "),
        (nvcc13, "sm_70", "does not compile for sm_70; it knows sm_75, "),
    ],
)
def test_an_architecture_that_a_version_does_not_know(
    tmp_path: Path, find: object, arch: str, said: str
) -> None:
    artifact = one(tmp_path, asked(find(), arch=arch))  # type: ignore[operator]
    assert artifact.build.status is Status.BUILD_FAILED
    assert said in artifact.build.log


def test_a_toolkit_header_that_nvrtc_lacks(tmp_path: Path) -> None:
    """An NVRTC alone in a folder: nothing lies beside it but its builtins."""
    place = tmp_path / "alone" / "lib"
    place.mkdir(parents=True)
    for file in Path(nvrtc12().path).parent.glob("libnvrtc*"):
        if ".alt." not in file.name:
            shutil.copy(file, place)
    bare = replace(nvrtc12(), path=str(place / Path(nvrtc12().path).name))
    half = replace(SOURCE, text="#include <cuda_fp16.h>\n" + SOURCE.text)
    artifact = one(tmp_path, asked(bare, files=(half, HEADER)))
    assert artifact.build.status is Status.BUILD_FAILED
    assert "reprodb toolchains install nvrtc 12.6.85" in artifact.build.log


@pytest.mark.parametrize("path", ["../k.cu", "/k.cu", "a/../../k.cu"])
def test_a_source_outside_the_folder_is_never_written(tmp_path: Path, path: str) -> None:
    artifact = one(tmp_path, asked(files=(replace(SOURCE, path=path),)))
    assert "leaves the suite" in artifact.build.log


def test_a_broken_library_is_a_failed_build(tmp_path: Path) -> None:
    broken = replace(nvrtc13(), path=str(tmp_path / "libnvrtc.so.13"))
    Path(broken.path).write_text("")
    artifact = one(tmp_path, asked(broken))
    assert artifact.build.status is Status.BUILD_FAILED
    assert "cannot be loaded as NVRTC" in artifact.build.log


# --- Building here, running there


@pytest.mark.usefixtures("quick")
def test_no_compile_takes_what_the_store_has_without_any_toolchain(tmp_path: Path) -> None:
    there, here = ArtifactStore(tmp_path / "there"), ArtifactStore(tmp_path / "here")
    wanted = [asked(nvrtc12(), toolkit=">=12"), asked(nvrtc13(), toolkit=">=12,<13")]
    list(build_all(wanted, there))
    there.pack(tmp_path / "packed")
    here.unpack(tmp_path / "packed")
    found = here.toolchains()
    assert {t.version for t in found} == {nvrtc12().version, nvrtc13().version}
    asking = replace(asked(toolkit=">=12"), toolchain=found[0])
    (artifact,) = build_all([asking], here, no_compile=True)
    assert artifact.build.toolchain.version == nvrtc13().version
    assert artifact.cached
    older = replace(asking, profile=replace(asking.profile, toolkit=">=12,<13"))
    (artifact,) = build_all([older], here, no_compile=True)
    assert artifact.build.toolchain.version == nvrtc12().version


@pytest.mark.usefixtures("quick")
def test_no_compile_says_what_is_absent_and_the_command_before_anything(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    list(build_all([asked()], store))
    changed = replace(asked(defines=(("THREADS", "1"),)), kernel="changed")
    with pytest.raises(ToolchainError, match="changed under p for sm_90") as caught:
        next(iter(build_all([asked(), changed], store, no_compile=True)))
    assert caught.value.remedy == "reprodb build --arch sm_90 --profile p --kernel changed"


def test_text_is_added_where_it_was_built_without_a_disassembler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sass, "find", lambda: None)
        (without,) = build_all([asked()], store)
    assert without.sass is None
    assert without.build.code is not None
    assert without.build.code.sass is None
    (completed,) = build_all([asked()], store)
    assert completed.cached
    assert completed.sass is not None
    assert completed.build.code is not None
    assert completed.build.code.sass is not None
    assert store.get(completed.build.key) == completed


# --- Requests


def test_a_request_reads_the_sources_of_its_suite() -> None:
    suite: Suite = load_suite(bundled_suite())
    kernel: Kernel = next(k for k in suite.kernels if k.name == "sum_squares_tree")
    wanted = request(suite, kernel, Profile("p", "nvrtc", ">=12"), nvrtc12(), "sm_90")
    assert wanted.files[0].path == wanted.source == kernel.source
    assert wanted.entries == tuple(dict.fromkeys(s.entry for s in kernel.stages))
    with pytest.raises(UsageError, match="is no architecture"):
        request(suite, kernel, Profile("p", "nvrtc", ">=12"), nvrtc12(), "90")
