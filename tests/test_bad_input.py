"""Bad input at the command line: exit code, essential words, and that nothing is lost or left half."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reprodb.store import open_store
from reprodb.toolchains.catalog import Places
from tests.builders import make_result
from tests.command import Said, reprodb
from tests.nights import Nights

SOURCE = """
extern "C" __global__ void total(const float* x, unsigned long long n, float* out)
{ float sum = 0.0f; for (unsigned long long i = 0; i < n; ++i) sum += x[i]; out[0] = sum; }
"""
MANIFEST = """
[kernel]
name = "total"
source = "total.cu"
operation = "sum of x"
determinism = "run_to_run"
accumulator = "float32"
[[buffer]]
name = "out"
dtype = "float32"
size = 1
role = "result"
[[stage]]
entry = "total"
grid = 1
block = 1
args = ["x", "n", "out"]
[[case]]
input = "ones"
n = 8
"""


def write_kernel(suite: Path, name: str = "total", manifest: str = MANIFEST, source: str = SOURCE) -> None:
    folder = suite / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.toml").write_text(manifest.replace('name = "total"', f'name = "{name}"'))
    (folder / "total.cu").write_text(source)


@pytest.fixture(name="compiled", scope="module")
def an_artifact_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests here compile, each kernel once."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(name="home")
def a_folder_with_a_suite(tmp_path: Path) -> Path:
    write_kernel(tmp_path / "suite")
    return tmp_path


def nightly(home: Path, compiled: Path, *more: object) -> Said:
    return reprodb(*arguments(compiled, *more), folder=home)


def arguments(compiled: Path, *more: object) -> list[object]:
    where = ("--suite", "suite", "--store", compiled, "--db", "reprodb.db")
    return ["nightly", *where, "--device", "model", "--profile", "default", "-n", 3, "-j", 1, *more]


def recorded(home: Path) -> list[tuple[bool, int | None]]:
    """Of every run, oldest first: whether it is complete, and its exit code. The database is whole."""
    if not (home / "reprodb.db").exists():
        return []
    with open_store(str(home / "reprodb.db")) as store:
        assert store.check() == ()
        return [(run.complete, run.exit_code) for run in reversed(store.runs())]


# --- Names that nothing has --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--profile", "defualt"), ("no profile matches 'defualt'", "allowed: default, no-fmad", "default?")),
        (
            ("--kernel", "totl"),
            (
                "has no kernel 'totl'",
                "allowed: total",
                "'total'? Or name its suite with --suite",
            ),
        ),
        (("--kernel", "mean_rows"), ("has no kernel 'mean_rows'", "remedy: name its suite with --suite")),
        (("--seed", "-1"), ("Invalid value for '--seed'", "greater than or equal to 0")),
        (("--case", "ones-9"), ("no case matches 'ones-9'", "allowed: ones-8")),
        (("--require", "nvcc99"), ("no required profile matches 'nvcc99'", "allowed: default", "nvcc")),
        (
            ("--require", "cuda12"),
            ("the required profile cuda12 is not selected", "allowed: default\n", "add --profile cuda12"),
        ),
    ],
)
def test_an_unknown_name(home: Path, compiled: Path, option: tuple[str, str], words: tuple[str, ...]) -> None:
    said = nightly(home, compiled, *option)
    assert (said.code, said.out) == (2, "")
    for word in words:
        assert word in said.err
    assert "modelled" not in said.err  # no device is opened, and no database made
    assert not (home / "reprodb.db").exists()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"ones"', '"noes"', ("input x: unknown input pattern 'noes'", "ramp1000", "did you mean 'ones'?")),
        (
            'e = "float32"\nsize',
            'e = "flaot32"\nsize',
            ("dtype = 'flaot32'", "int8", "did you mean 'float32'?"),
        ),
        ('operation = "sum of x"\n', "", ("[kernel]: missing key 'operation'", "allowed: text")),
        ("block = 1", "blocks = 1", ("unknown key 'blocks' = 1", "missing key 'block'", "grid")),
        ("n = 8", "n = 8\nrelative = 1", ("[[case]] 1: unknown key 'relative' = 1", "rel_tol")),
        ("grid = 1", "grid = 0", ("[[stage]] 1: grid = 0", "allowed: 1 to 2147483647")),
        ("n = 8", "n = -1", ("[[case]] 1: n = -1", "allowed: a whole number from 0")),
        ("n = 8", "n = 1099511627777", ("n = 1099511627777", "0 to 1099511627776")),
        ('"total.cu"', '"gone.cu"', ("source = 'gone.cu'", "an existing file")),
        ('"total.cu"', '"../../total.cu"', ("source = '../../total.cu'", "copy the file into the suite")),
        ('name = "total"', 'name = "../total"', ("name = '../total'", "allowed: letters, digits")),
        ("[kernel]", "[kernel", ("is not TOML", "line 2")),
    ],
)
def test_a_wrong_manifest_names_file_key_value_and_what_is_allowed(
    home: Path, before: str, after: str, words: tuple[str, ...]
) -> None:
    assert before in MANIFEST
    (home / "suite/total/kernel.toml").write_text(MANIFEST.replace(before, after))
    said = reprodb("kernels", "--suite", "suite", folder=home)
    assert (said.code, said.out) == (2, "")
    assert "total/kernel.toml: " in said.err
    for word in words:
        assert word in said.err
    assert said.err.count("missing key") <= 1


def test_nothing_runs_while_one_manifest_of_the_suite_is_wrong(home: Path, compiled: Path) -> None:
    write_kernel(home / "suite", "other", MANIFEST.replace("grid = 1", "grid = 0"))
    said = nightly(home, compiled, "--kernel", "total")
    assert said.code == 2
    assert "other/kernel.toml: [[stage]] 1: grid = 0" in said.err
    assert recorded(home) == []


@pytest.mark.parametrize("suite", ["absent", "suite/total/total.cu", "x" * 5000, "empty"])
def test_a_suite_that_is_none(home: Path, suite: str) -> None:
    (home / "empty").mkdir()
    said = reprodb("kernels", "--suite", suite, folder=home)
    assert said.code == 2
    assert suite[:40] in said.err
    assert "*/kernel.toml" in said.err
    assert len(said.err) < 1000


# --- Sources -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", ['"../../secret.cuh"', '"{home}/secret.cuh"', '"link.cuh"', "<../../secret.cuh>"]
)
def test_an_include_outside_the_suite_is_refused(home: Path, form: str) -> None:
    (home / "secret.cuh").write_text("#error secret")
    (home / "suite/total/link.cuh").symlink_to(home / "secret.cuh")
    include = form.format(home=home)
    write_kernel(home / "suite", source=f"#include {include}\n{SOURCE}")
    said = reprodb("kernels", "--suite", "suite", folder=home)
    assert said.code == 2
    assert f"total/total.cu includes {include}, which lies outside the suite" in said.err
    assert "remedy: copy the file into the suite" in said.err


def test_what_is_compiled_does_not_depend_on_files_outside_the_suite(home: Path) -> None:
    write_kernel(home / "suite", source=f'#if __has_include("/etc/passwd")\n#endif\n{SOURCE}')
    said = reprodb("kernels", "--suite", "suite", folder=home)
    assert said.code == 2
    assert 'total/total.cu includes "/etc/passwd", which lies outside the suite' in said.err
    write_kernel(home / "suite", source=f"#if __has_include(<cuda_fp16.h>)\n#endif\n{SOURCE}")
    assert reprodb("kernels", "--suite", "suite", folder=home).code == 0


def test_a_compiler_s_log_does_not_steer_the_terminal(home: Path, compiled: Path) -> None:
    write_kernel(home / "suite", source="#error \x1b[31m red\n" + SOURCE)
    said = reprodb("build", "--suite", "suite", "--profile", "default", "--store", compiled, folder=home)
    assert said.code == 4
    assert "\x1b" not in said.out + said.err
    assert "failed  total  default  sm_90" in said.err
    assert "#error directive: ⟨U+001B⟩[31m red" in said.err


def test_what_does_not_compile_or_launch_costs_its_own_result_alone(home: Path, compiled: Path) -> None:
    """With n = 0 and n = 1 beside them: a sum of nothing is 0, of one 1 it is 1."""
    write_kernel(
        home / "suite",
        manifest=MANIFEST + '[[case]]\ninput = "ones"\nn = 0\n[[case]]\ninput = "ones"\nn = 1\n',
    )
    write_kernel(home / "suite", "broken", source=SOURCE + "this is not C")
    write_kernel(home / "suite", "lost", MANIFEST.replace('entry = "total"', 'entry = "totals"'))
    write_kernel(home / "suite", "wide", MANIFEST.replace("block = 1", "block = 1025"))
    said = nightly(home, compiled)
    assert said.code == 0  # a first night: nothing had bits before
    assert "broken, default: build_failed\n    total/total.cu" not in said.err
    for word in (
        "broken/total.cu(4): error: expected a declaration\n      this is not C",
        "no __global__ function totals in lost/total.cu; found: total; check the stage's entry",
        "stage total has blocks of 1025 threads",
    ):
        assert word in said.out
    rows = {
        (r["kernel"], r["case"]): r for r in reprodb("show", "latest", "--json", folder=home).json["results"]
    }
    assert {case: rows["total", case]["first_bits"] for _, case in rows if _ == "total"} == {
        "ones-8": "0x41000000",
        "ones-0": "0x00000000",
        "ones-1": "0x3f800000",
    }
    assert {kernel: row["status"] for (kernel, _), row in rows.items()} == {
        "broken": "build_failed",
        "lost": "build_failed",
        "total": "ok",
        "wide": "launch_failed",
    }
    quiet = nightly(home, compiled, "--kernel", "broken", "--kernel", "lost", "-q")
    assert quiet.code == 4
    assert "nothing could be compared" in quiet.out
    assert "broken, default: build_failed: broken/total.cu(4): error: expected a declaration\n" in quiet.out
    assert recorded(home) == [(True, 0), (True, 4)]


# --- No compiler -------------------------------------------------------------------------------


@pytest.fixture(name="bare")
def a_machine_without_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Places, "of_this_machine", staticmethod(lambda: Places((), (), ())))
    monkeypatch.setenv("REPRODB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("bare")
def test_no_nvrtc_at_all(home: Path) -> None:
    said = nightly(home, home / "store")
    assert (said.code, said.out) == (4, "")
    assert "no profile has a toolchain: default (no nvrtc >=13,<14 is installed)" in said.err
    assert "remedy: reprodb toolchains install nvrtc 13" in said.err
    assert not (home / "reprodb.db").exists()
    missing = nightly(home, home / "store", "--no-compile")
    assert missing.code == 4
    assert f"nothing is in the artifact store {home / 'store'}" in missing.err
    assert "remedy: reprodb build" in missing.err
    listed = reprodb("profiles", folder=home)
    assert listed.code == 0
    assert "absent: reprodb toolchains install nvrtc 13" in listed.out


# --- Databases and disks -----------------------------------------------------------------------


def as_anyone() -> None:
    """In a child: root's right to write what is read-only is given up; others never had it."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def on_a_full_disk() -> None:
    """In a child: the system refuses to write beyond 40,000 bytes of any file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))


def child(home: Path, *args: object, before: Callable[[], None] | None = None) -> Said:
    done = subprocess.run(
        [sys.executable, "-m", "reprodb", *map(str, args)],
        cwd=home,
        preexec_fn=before,
        capture_output=True,
        text=True,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def test_a_read_only_database_is_read_and_not_written(tmp_path: Path, compiled: Path) -> None:
    write_kernel(tmp_path / "suite")
    Nights(tmp_path).night(make_result())
    database = tmp_path / "reprodb.db"
    database.chmod(0o444)
    content = database.read_bytes()
    said = child(tmp_path, *arguments(compiled), before=as_anyone)
    assert (said.code, said.out) == (4, "")
    assert "reprodb: reprodb.db cannot be written: file or folder is read-only" in said.err
    assert "remedy: make file and folder writable, or name another with --db" in said.err
    assert database.read_bytes() == content
    shown = child(tmp_path, "show", "latest", "-q", "--db", "reprodb.db", before=as_anyone)
    assert (shown.code, shown.err) == (0, "")


def test_a_kernel_that_may_not_be_read_is_no_kernel_less(home: Path) -> None:
    write_kernel(home / "suite", "other")
    (home / "suite/other").chmod(0)
    said = child(home, "kernels", "--suite", "suite", before=as_anyone)
    (home / "suite/other").chmod(0o755)
    assert said.code == 2
    assert "reprodb: other/kernel.toml: cannot be read: Permission denied" in said.err


def test_a_full_disk_while_artifacts_are_stored(home: Path, compiled: Path) -> None:
    """Nothing is left half, and the next night makes what is missing."""
    table = ", ".join(str(i) for i in range(4_000))
    write_kernel(
        home / "suite",
        source=f"__device__ const int table[] = {{{table}}};\n"
        + SOURCE.replace("sum += x[i]", "sum += x[i] * table[n]"),
    )
    shutil.copytree(compiled, home / "store", dirs_exist_ok=True)  # the canaries are there already
    with open_store(str(home / "reprodb.db"), write=True):
        pass
    said = child(home, *arguments(home / "store"), before=on_a_full_disk)
    assert (said.code, said.out) == (4, "")
    assert "storing artifact" in said.err
    assert str(home / "store") in said.err
    assert "File too large" in said.err
    assert "remedy: free some space, or name another folder with --store" in said.err
    assert [p for p in (home / "store").rglob("*") if p.name.startswith(".")] == []
    assert recorded(home) == []
    again = nightly(home, home / "store")
    assert (again.code, recorded(home)) == (0, [(True, 0)])


def test_a_full_disk_under_copies_is_no_damaged_database(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    for _ in range(2):
        nights.night(make_result([os.urandom(60_000)]), finish=False)
    exported = child(tmp_path, "export", "1", "2", "-o", "x.reprodb", before=on_a_full_disk)
    assert exported.code == 4
    assert (
        exported.err
        == "reprodb: x.reprodb cannot be written: File too large\nremedy: free space, or name another\n"
    )
    copied = child(tmp_path, "db", "backup", "copy.db", before=on_a_full_disk)
    assert copied.code == 4
    assert copied.err.startswith("reprodb: copy.db cannot be made: ")
    assert "remedy: free some space, or name another file" in copied.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["reprodb.db"]


def test_two_nightlies_at_once_on_one_database(home: Path, compiled: Path) -> None:
    command = [sys.executable, "-m", "reprodb", *map(str, arguments(compiled, "-q"))]
    both = [
        subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert recorded(home) == [(True, 0), (True, 0)]
    assert sorted(p.name for p in (home / "reports").iterdir()) == ["run-1.html", "run-2.html"]


def test_a_report_that_cannot_be_written_does_not_cost_the_verdict(home: Path, compiled: Path) -> None:
    (home / "reports" / "run-1.html").mkdir(parents=True)
    said = nightly(home, compiled)
    assert said.code == 4
    assert "First night: 1 row recorded" in said.out
    assert "0x41000000" in said.out
    assert "reprodb: reports/run-1.html cannot be written: " in said.err
    assert recorded(home) == [(True, 0)]


def test_where_no_report_can_be_written_no_night_is_spent(tmp_path: Path, compiled: Path) -> None:
    write_kernel(tmp_path / "suite")
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "locked").mkdir(mode=0o555)
    for out, why in (
        ("file", "file is no folder"),
        ("file/below", "/file is no folder"),
        ("locked", "Permission denied"),
        ("locked/below", "Permission denied"),
    ):
        said = child(tmp_path, *arguments(compiled, "--out", out), before=as_anyone)
        assert (said.code, said.out) == (4, "")
        assert f"reprodb: no report can be written to {out}: " in said.err
        assert f"{why}\nremedy: name another folder with --out" in said.err
        assert not (tmp_path / "reprodb.db").exists()


def test_doctor_says_that_reports_cannot_be_written(tmp_path: Path) -> None:
    def reports() -> tuple[bool, str, str]:
        checks = reprodb("doctor", "--json", folder=tmp_path).json["checks"]
        (found,) = (check for check in checks if check["name"] == "reports")
        return found["ok"], found["detail"], found["remedy"]

    assert reports() == (True, "reports: writable", "")
    (tmp_path / "reports").write_text("in the way")
    assert reports() == (False, "reports: reports is no folder", "name a writable folder with --out")


def test_latest_where_the_only_run_is_incomplete_says_how_to_go_on(tmp_path: Path) -> None:
    night = Nights(tmp_path)
    night.night(make_result())
    with open_store(str(tmp_path / "reprodb.db")) as store:
        begun = replace(store.run(1), id=None, finished_at=None, exit_code=None)
    with open_store(str(tmp_path / "other.db"), write=True) as store:
        store.begin(begun)
    said = reprodb("show", "latest", "--db", tmp_path / "other.db")
    assert (said.code, said.out) == (2, "")
    assert "has 0 complete runs, and run 1 is incomplete" in said.err
    assert f"remedy: go on with it: reprodb {begun.kind} --resume 1" in said.err


# --- What stands in the way of a number --------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--repetitions", 0), 2, "greater than or equal to 1"),
        (("--repetitions", 10**9), 2, "less than or equal to 1000000"),
        (("--timeout", 0), 2, "greater than or equal to 0.1"),
        (("--device", "bogus"), 2, "allowed: auto, gpu, model, cpu, or a device's index"),
        (("--arch", "banana"), 2, "allowed: sm_XX, such as sm_90"),
        (("--label", "x" * 10_000), 2, "allowed: up to 200 printable characters"),
        (("--policy", "absent.toml"), 2, "policy absent.toml cannot be read: No such file or directory"),
        (("--profiles-file", "absent.toml"), 2, "profiles file absent.toml cannot be read"),
        (("--db", "."), 4, "is not a file"),
        (("--db", "absent/reprodb.db"), 4, "remedy: make the folder first"),
        (("--resume", "7"), 4, "there is no database reprodb.db"),
    ],
)
def test_options_that_cannot_be(
    home: Path, compiled: Path, args: tuple[str, object], code: int, words: str
) -> None:
    said = nightly(home, compiled, *args)
    assert (said.code, said.out) == (code, "")
    assert words in said.err
    assert len(said.err) < 3000
    assert not (home / "reprodb.db").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("diff", "latest~99", "latest"), "reprodb.db has 1 complete run\nremedy: reprodb runs lists them"),
        (("diff", "latest:nope", "latest"), "run 1 has no profile 'nope'"),
        (("diff", "1", "\x1b[31m"), "no run '\\x1b[31m'"),
        (("show", "9" * 5000), "has no run '999"),
        (("history", "../.."), "no result of ../..\nallowed: sum_squares_tree"),
        (
            ("history", "sum_squares_tree", "--profile", "x"),
            "under profile x\nallowed: default (ramp1000-4194915)",
        ),
        (("runs", "--limit", 10**30), "less than or equal to 1000000000"),
    ],
)
def test_runs_that_are_not_there(tmp_path: Path, command: tuple[object, ...], words: str) -> None:
    nights = Nights(tmp_path)
    nights.night(make_result())
    said = nights.call(*command)
    assert (said.code, said.out) == (2, "")
    assert words in said.err
    assert len(said.err) < 3000
