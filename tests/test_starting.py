"""`reprodb init` and `kernels add`: from an empty repository to a green night, and nothing overwritten."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from reprodb.cli.init import FILES, new_files
from reprodb.errors import UsageError
from reprodb.policy import load_policy
from reprodb.profiles import load_profiles
from reprodb.starting import places
from reprodb.starting.guesses import guess, manifest
from reprodb.starting.signatures import DTYPES, Parameter, read_signatures, without_comments
from reprodb.suite import load_suite
from tests.command import Said, reprodb
from tests.test_repository import git
from tests.test_workflows import BIN

SCALE = """
// one thread an element
extern "C" __global__ void scale(const float* __restrict__ in, float* out, unsigned long long n)
{
    unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = 3.0f * in[i];
}
"""


@pytest.fixture(name="root")
def an_empty_repository(tmp_path: Path) -> Path:
    root = tmp_path / "mine"
    root.mkdir()
    git(root, "init", "-q")
    return root


def test_from_nothing_to_a_green_night(root: Path, tmp_path: Path) -> None:
    """These commands alone. 1000003 squares of standard normals: the total is near a million."""
    (tmp_path / "scale.cu").write_text(SCALE)
    assert reprodb("init", folder=root).code == 0
    added = reprodb("kernels", "add", "scale", tmp_path / "scale.cu", folder=root)
    assert added.code == 0, added.err
    assert "scale(in: x, out: out, n: n)" in added.out
    assert "tried on the model: scale normal-seed1-4096 default: 1 pattern of 3" in added.out
    said = reprodb("kernels", "--json", folder=root)
    assert said.code == 0, said.err
    listed = said.json
    assert (listed["suite"], [k["kernel"] for k in listed["kernels"]]) == ("mine", ["scale", "sum_blocks"])
    night = reprodb("nightly", "--device", "model", "--json", "--profile", "default", "-n", 3, folder=root)
    assert night.code == 0, night.err
    rows = {row["kernel"]: (row["verdict"], row["accuracy"]) for row in night.json["comparisons"]}
    assert rows == {"scale": ("no_baseline", "unknown"), "sum_blocks": ("no_baseline", "ok")}
    assert git(root, "status", "--porcelain").splitlines() == [
        "?? .github/", "?? .gitignore", "?? builds/", "?? kernels/", "?? reprodb.toml",
    ]  # fmt: skip


def test_the_check_of_a_beginning_finds_nothing(root: Path) -> None:
    assert reprodb("init", root, "--name", "gpu").code == 0
    said = reprodb("suite", "check", folder=root)
    assert said.code == 0, said.out
    assert said.out.rstrip().endswith("nothing found")


def test_what_init_writes_is_valid(root: Path) -> None:
    assert reprodb("init", root, "--name", "gpu").code == 0
    suite = load_suite(root / "kernels")
    assert (suite.name, [k.name for k in suite.kernels]) == ("gpu", ["sum_blocks"])
    assert set(load_profiles(root / "builds" / "profiles.toml")) == {"default", "no-fmad", "cuda12"}
    policy = load_policy(root / "reprodb.toml")
    assert (policy.project.suite, policy.every is not None) == ("kernels", True)
    workflow = root / ".github" / "workflows" / "reprodb.yml"
    assert "@VERSION@" not in workflow.read_text()
    lint = subprocess.run([BIN / "actionlint", workflow], capture_output=True, text=True)
    assert (lint.returncode, lint.stdout) == (0, "")
    command = [str(BIN / "zizmor"), "--offline", "--persona", "pedantic", "--no-progress", str(workflow)]
    audit = subprocess.run(command, capture_output=True, text=True)
    assert audit.returncode == 0, audit.stdout


# --- Nothing is overwritten --------------------------------------------------------------------


def texts(root: Path) -> dict[str, str]:
    return {
        str(p.relative_to(root)): p.read_text()
        for p in root.rglob("*")
        if p.is_file() and ".git/" not in str(p)
    }


def test_init_again_changes_nothing_and_keeps_what_is_ones_own(root: Path) -> None:
    (root / ".gitignore").write_text("/mine")
    assert reprodb("init", folder=root).code == 0
    assert (root / ".gitignore").read_text().startswith("/mine\n/.venv/\n")
    before = texts(root)
    said = reprodb("init", folder=root)
    assert (said.code, texts(root)) == (0, before)
    assert said.out.count("is there already") == len(FILES) + 2


def test_init_keeps_bytes_that_are_no_text_and_lines_of_another_system(root: Path) -> None:
    (root / ".gitignore").write_bytes(b"/caf\xe9\r\n/mine")
    said = reprodb("init", folder=root)
    assert (said.code, ".gitignore                        lines added" in said.out) == (0, True)
    kept = (root / ".gitignore").read_bytes()
    assert kept.startswith(b"/caf\xe9\r\n/mine\n/.venv/\n")
    assert ".gitignore                        is there already" in reprodb("init", folder=root).out
    assert (root / ".gitignore").read_bytes() == kept


def test_a_gitignore_that_cannot_be_written_stops_all_of_it(root: Path) -> None:
    (root / ".gitignore").mkdir()
    assert reprodb("init", folder=root).code == 4
    assert sorted(path.name for path in root.iterdir()) == [".git", ".gitignore"]


def test_init_says_where_github_would_not_look(root: Path, tmp_path: Path) -> None:
    inner = root / "gpu" / "kernels-here"
    inner.mkdir(parents=True)
    said = reprodb("init", folder=inner)
    assert said.code == 0
    assert "move gpu/kernels-here/.github/workflows/reprodb.yml to .github/workflows" in said.err
    bare = tmp_path / "bare"
    bare.mkdir()
    said = reprodb("init", folder=bare)
    assert (said.code, "is in no git repository yet: git init" in said.err) == (0, True)
    assert reprodb("init", folder=root).err == ""


def test_a_file_that_says_something_else_stops_all_of_it_where_nobody_can_be_asked(root: Path) -> None:
    (root / "reprodb.toml").write_text("[gate]\naccuracy = false\n")
    piped = subprocess.run(
        [sys.executable, "-m", "reprodb", "init"], cwd=root, input="y\ny\n", capture_output=True, text=True
    )
    assert piped.returncode == 2
    assert "reprodb.toml is there and says something else" in piped.stderr
    assert texts(root) == {"reprodb.toml": "[gate]\naccuracy = false\n"}
    assert reprodb("init", "--force", folder=root).code == 0
    assert "[project]" in (root / "reprodb.toml").read_text()


@pytest.mark.parametrize(("answer", "state"), [(True, places.State.REPLACED), (False, places.State.KEPT)])
def test_each_such_file_is_asked_for(tmp_path: Path, answer: bool, state: places.State) -> None:
    (tmp_path / "a").write_text("mine")
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return answer

    files = [places.NewFile("a", "theirs"), places.NewFile("b", "new")]
    done = places.write_files(tmp_path, files, ask)
    assert (asked, done) == (["replace a?"], (("a", state), ("b", places.State.WRITTEN)))
    assert (tmp_path / "a").read_text() == ("theirs" if answer else "mine")


@pytest.mark.parametrize("link", ["kernels", "reprodb.toml", ".github"])
def test_nothing_is_written_through_a_link(root: Path, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / link).symlink_to(outside if link != "reprodb.toml" else outside / "x.toml")
    said = reprodb("init", "--force", folder=root)
    assert (said.code, "leaves the repository" in said.err) == (2, True)
    assert list(outside.iterdir()) == []


def test_names_that_no_suite_has(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no name of a suite"):
        new_files("my kernels")
    assert reprodb("init", tmp_path / "absent").code == 2
    for name in ("../x", "a b", ""):
        assert reprodb("kernels", "add", name, "x.cu", folder=tmp_path).code == 2


# --- What is read off a source -----------------------------------------------------------------


def add(root: Path, text: str, *more: object) -> Said:
    (root / "kernels").mkdir(exist_ok=True)
    (root / "k.cu").write_text(text)
    return reprodb("kernels", "add", "k", root / "k.cu", "--no-try", *more, folder=root)


def guessed(text: str) -> dict[str, object]:
    signatures = read_signatures(text, "k.cu")
    return tomllib.loads(manifest(guess("k", "k.cu", without_comments(text), signatures)))


def test_every_way_to_write_a_parameter() -> None:
    text = """
    extern "C" { // a block of them
    static __device__ float helper(float* notMine);
    __global__ __launch_bounds__(192, 2) void k(const float *a, float const* b, double* __restrict__ c,
        unsigned long long n, int32_t m, const __half* h, unsigned int u[], const uint8_t* /* * */ bytes)
    { c[0] = a[0]; }
    }
    template <typename T> __global__ void cpp(T* x) { x[0] = 1; }
    #define MACRO(name) extern "C" __global__ void name(float* x) { x[0] = 1; }
    __global__ void declared(float* x);
    """
    (signature,) = read_signatures(text, "k.cu")
    assert (signature.entry, signature.threads) == ("k", 192)
    assert signature.parameters == (
        Parameter("a", "float32", True, True), Parameter("b", "float32", True, True),
        Parameter("c", "float64", True, False), Parameter("n", "uint64", False, False),
        Parameter("m", "int32", False, False), Parameter("h", "float16", True, True),
        Parameter("u", "uint32", True, False), Parameter("bytes", "uint8", True, True),
    )  # fmt: skip


def test_the_example_guessed_from_its_source_is_the_example() -> None:
    """Entries, launch shapes, arguments, sizes and roles as the manifest by hand has them."""
    files = {file.path: file.text for file in new_files("x")}
    written = tomllib.loads(files["kernels/sum_blocks/kernel.toml"])
    found = guessed(files["kernels/sum_blocks/sum_blocks.cu"])
    assert (found["stage"], found["buffer"]) == (written["stage"], written["buffer"])
    assert isinstance(found["kernel"], dict)
    assert found["kernel"]["defines"] == written["kernel"]["defines"]


def test_atomics_are_not_guaranteed_and_start_from_zero() -> None:
    found = guessed(
        'extern "C" __global__ void k(const float* x, unsigned long long n, float* partials, float* total) {'
        "partials[blockIdx.x] = x[0]; if (threadIdx.x == 0) atomicAdd(total, x[0]); }"
    )
    kernel, buffers = found["kernel"], found["buffer"]
    assert isinstance(kernel, dict)
    assert isinstance(buffers, list)
    assert kernel["determinism"] == "not_guaranteed"
    sizes = {b["name"]: (b["size"], b.get("init", "poison")) for b in buffers}
    assert sizes == {"partials": ("BLOCKS", "poison"), "total": (1, "zero")}


def test_a_define_that_nothing_uses_is_left_out() -> None:
    kernel = guessed('extern "C" __global__ void k(float* x) { x[0] = 1; }')["kernel"]
    assert isinstance(kernel, dict)
    assert kernel["defines"] == {"THREADS": 128}


def test_a_constant_of_the_source_s_own_is_no_define() -> None:
    found = guessed(
        '#define THREADS 96\nextern "C" __global__ void k(const float* x, float* y)\n'
        "{ y[threadIdx.x] = x[threadIdx.x]; }"
    )
    assert isinstance(found["kernel"], dict)
    assert isinstance(found["stage"], list)
    assert "defines" not in found["kernel"]
    assert (found["stage"][0]["block"], found["stage"][0]["grid"]) == (96, 1)


def test_an_added_kernel_validates_or_leaves_nothing(root: Path) -> None:
    assert add(root, SCALE).code == 0
    (kernel,) = load_suite(root / "kernels").kernels
    assert [b.shape for b in kernel.cases[0].buffers] == [(4096,)]
    assert (root / "kernels/k/k.cu").read_text() == SCALE
    other = add(root, SCALE.replace("3.0f", "4.0f"))
    assert (other.code, "says something else" in other.err) == (2, True)
    assert (root / "kernels/k/k.cu").read_text() == SCALE
    bad = root / "kernels" / "bad"
    bad.mkdir()
    (bad / "kernel.toml").write_text("[kernel]\n")
    (root / "k2.cu").write_text(SCALE)
    said = reprodb("kernels", "add", "k2", root / "k2.cu", "--no-try", folder=root)
    assert (said.code, (root / "kernels/k2").exists()) == (2, False)


def test_headers_that_stay_behind_are_told_and_those_outside_refused(root: Path) -> None:
    (root / "helper.cuh").write_text("__device__ float helper(float x) { return x; }\n")
    said = add(root, '#include "helper.cuh"\n' + SCALE)
    assert said.code == 0, said.err
    assert (
        "check: k.cu includes helper.cuh, which is not in the suite yet: copy it into kernels/k" in said.out
    )
    said = add(root, '#include "../../helper.cuh"\n' + SCALE, "--force")
    assert (said.code, "lies outside the suite" in said.err) == (2, True)
    assert (root / "kernels/k/k.cu").read_text() == '#include "helper.cuh"\n' + SCALE


@pytest.mark.parametrize("file", ["new\nline.cu", "sp ace.cu", "-dash.cu", "k\n[kernel].cu"])
def test_names_that_no_source_has(root: Path, file: str) -> None:
    (root / "kernels").mkdir()
    (root / file).write_text(SCALE)
    said = reprodb("kernels", "add", "k", root / file, "--no-try", folder=root)
    assert (said.code, "has an unfit name" in said.err) == (2, True), said.err
    assert list((root / "kernels").iterdir()) == []


def test_a_source_in_the_suite_is_named_where_it_lies(root: Path) -> None:
    lib = root / "kernels" / "_lib"
    lib.mkdir(parents=True)
    two = SCALE + SCALE.replace("void scale", "void other")
    (lib / "two.cu").write_text(two)
    said = reprodb("kernels", "add", "k", lib / "two.cu", "--no-try", "--entry", "other", folder=root)
    assert said.code == 0, said.err
    (kernel,) = load_suite(root / "kernels").kernels
    assert (kernel.source, [s.entry for s in kernel.stages]) == ("_lib/two.cu", ["other"])
    assert [path.name for path in (root / "kernels" / "k").iterdir()] == ["kernel.toml"]
    said = reprodb("kernels", "add", "k3", lib / "two.cu", "--no-try", "--entry", "othr", folder=root)
    assert (said.code, "did you mean 'other'?" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int x;", 'has no extern "C" __global__ function'),
        ("__global__ void k(float* x) { x[0] = 1; }", "k are C++"),
        ('#define K extern "C" __global__ void\nK k(float* x) { x[0] = 1; }', "stands in a macro"),
        ('#define D(f) extern "C" __global__ void f(float* x) {\\\r\n x[0] = 1; }\nD(k)', "in a macro"),
        ('extern "C" __global__ void k(struct Grid g) { }', "the parameter 'struct Grid g'"),
        ('extern "C" __global__ void k(float** rows) { }', "the parameter 'float** rows'"),
        ("\xff", "no extern"),
    ],
)
def test_what_no_manifest_can_be_made_of(root: Path, text: str, words: str) -> None:
    said = add(root, text)
    assert (said.code, words in said.err) == (2, True), said.err
    assert list((root / "kernels").iterdir()) == []


@pytest.mark.soak
def test_a_kernel_that_does_not_build_is_told_and_kept(root: Path) -> None:
    (root / "kernels").mkdir()
    (root / "k.cu").write_text(SCALE.replace("3.0f", "UNKNOWN"))
    said = reprodb("kernels", "add", "k", root / "k.cu", folder=root)
    assert said.code == 0
    assert "build failed" in said.out
    assert "mend kernels/k/kernel.toml" in said.out
    assert (root / "kernels/k/kernel.toml").exists()


def test_every_type_has_a_place_in_a_manifest() -> None:
    from reprodb.domain import DTYPE_BYTES

    assert set(DTYPES.values()) == set(DTYPE_BYTES)
