"""`reprodb run`: recorded as results come, kept when interrupted, resumed, repeated by its seed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from reprodb.cli.flow import RecordedRun, RunOptions, record_run
from reprodb.cli.progress import Lines, Silent, describe
from reprodb.cli.run import verdict
from reprodb.domain import Accuracy, CanaryOutcome, Device, Judgement, Lane, Result, Status
from reprodb.environment import Gpus
from reprodb.errors import Exit, ReprodbError, UsageError
from reprodb.executors import choice
from reprodb.store import open_store
from tests import shared
from tests.builders import make_result
from tests.command import Said, reprodb

SOURCE = """
extern "C" __global__ void fixed(const float* x, unsigned long long n, float* total)
{ float sum = 0.0f; for (unsigned long long i = 0; i < n; ++i) sum += x[i]; total[0] = sum; }
extern "C" __global__ void arrival(const float* x, unsigned long long n, float* total)
{ unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(total, x[i]); }
extern "C" __global__ void unending(const float* x, unsigned long long n, float* total)
{ volatile float* v = total; v[0] = 0.0f; while (v[0] == 0.0f) { } }
"""
MANIFEST = """
[kernel]
name = "{name}"
source = "../kernels.cu"
operation = "sum of x"
determinism = "{determinism}"
accumulator = "float32"
[[buffer]]
name = "total"
dtype = "float32"
size = 1
role = "result"
init = "zero"
[[stage]]
entry = "{name}"
grid = {grid}
block = {block}
args = ["x", "n", "total"]
[[case]]
input = {{ pattern = "normal", seed = 1 }}
n = 2048
reference = "sum"
rel_tol = 1e-3
"""


@pytest.fixture(name="home", scope="module")
def a_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite that the tests here share."""
    home = tmp_path_factory.mktemp("home")
    suite = home / "suite"
    for name, determinism, grid, block in (
        ("fixed", "run_to_run", 1, 1),
        ("arrival", "not_guaranteed", 16, 128),
        ("unending", "run_to_run", 1, 1),
    ):
        (suite / name).mkdir(parents=True)
        text = MANIFEST.format(name=name, determinism=determinism, grid=grid, block=block)
        (suite / name / "kernel.toml").write_text(text)
    (suite / "kernels.cu").write_text(SOURCE)
    return home


def options(home: Path, kernels: Sequence[str] = ("fixed", "arrival")) -> RunOptions:
    return RunOptions(
        suite=home / "suite",
        store=shared.store(),
        kernels=tuple(kernels),
        profiles=("default",),
        repetitions=5,
        device="model",
        jobs=1,
    )


def recorded(home: Path, database: Path, asked: RunOptions) -> RecordedRun:
    with open_store(str(database), write=True) as store:
        return record_run(asked, store, Silent())


def patterns(run: RecordedRun, kernel: str) -> list[str]:
    (result,) = (r for r in run.results if r.kernel.name == kernel)
    return [pattern.sha256 for pattern in result.outputs[0].patterns]


def test_a_run_is_recorded_whole(home: Path, tmp_path: Path) -> None:
    made = recorded(home, tmp_path / "db", replace(options(home), label="first"))
    run = made.run
    assert (run.id, run.label, run.suite, run.lane, run.kind) == (1, "first", "suite", Lane.MODELLED, "run")
    assert run.complete
    assert run.exit_code is None  # the caller's to set
    assert all(canary.ok for canary in run.canaries)
    names = {canary.name for canary in run.canaries}
    assert names == {"hashing", "integer sum", "contraction", "grouping", "churn"}
    assert run.environment.device is None
    assert "llvmlite" in dict(run.environment.libraries)
    statuses = {r.kernel.name: (r.status, r.repetitions, r.outputs[0].distinct > 1) for r in made.results}
    assert statuses == {"fixed": (Status.OK, 5, False), "arrival": (Status.OK, 5, True)}
    assert all(r.accuracy.verdict is Accuracy.OK for r in made.results)
    assert all(r.build is not None and r.build.toolchain.compiler == "nvrtc" for r in made.results)


def test_a_seed_repeats_arrival_orders_and_without_one_each_run_has_its_own(
    home: Path, tmp_path: Path
) -> None:
    database = tmp_path / "db"
    seeded = replace(options(home, ["arrival"]), seed=7)
    first, again = recorded(home, database, seeded), recorded(home, database, seeded)
    free = recorded(home, database, options(home, ["arrival"]))
    assert first.run.seed == 7
    assert patterns(first, "arrival") == patterns(again, "arrival")
    assert patterns(first, "arrival") != patterns(free, "arrival")


def test_a_result_that_runs_too_long_costs_itself_alone(home: Path, tmp_path: Path) -> None:
    made = recorded(home, tmp_path / "db", replace(options(home, ["unending", "fixed"]), timeout=2.0))
    failed = {r.kernel.name: r for r in made.results}
    assert failed["unending"].status in (Status.TIMED_OUT, Status.LAUNCH_FAILED)
    assert failed["fixed"].status is Status.OK
    assert verdict(made.results, made.run.canaries)[0] is Exit.NO_ANSWER


def command(home: Path, database: Path, *extra: str) -> list[str]:
    return [sys.executable, "-m", "reprodb", "run", "--suite", str(home / "suite"), "--db", str(database),
            "--store", str(shared.store()), "--device", "model", "--profile", "default", "-n", "5",
            "--jobs", "1", *extra]  # fmt: skip


def test_an_interrupted_run_keeps_what_is_complete_and_is_resumed(home: Path, tmp_path: Path) -> None:
    database = tmp_path / "db"
    recorded(home, database, options(home, ["fixed"]))  # everything is compiled and warm
    asked = command(home, database, "--timeout", "120")
    with subprocess.Popen(asked, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if line.startswith(("1/3 ", "2/3 ")) and len([s for s in seen if "/3 " in s]) == 2:
                time.sleep(0.3)
                process.send_signal(signal.SIGTERM)
                break
        seen.append(process.stderr.read())
        assert process.wait(20) == 130, seen
    assert "interrupted: run 2 keeps 2 of 3 results and is incomplete; go on with " in seen[-1]
    advice = shlex.split(seen[-1].strip().rpartition("go on with ")[2])
    assert advice[:4] == ["reprodb", "run", "--resume", "2"]
    assert not {"--profile", "-n", "--repetitions"} & {*advice}, "the run knows these itself"
    assert seen[-1].count("interrupted:") == 1
    with open_store(str(database)) as store:
        run = store.run(2)
        assert not run.complete
        kept = {result.kernel.name: result.id for result in store.results(2)}
        assert set(kept) == {"arrival", "fixed"}
    resumed = subprocess.run(
        [sys.executable, "-m", *advice, "--timeout", "2", "--json"],
        capture_output=True,
        text=True,
    )
    assert resumed.returncode == int(Exit.NO_ANSWER), resumed.stderr  # the unending kernel has no result
    document = json.loads(resumed.stdout)
    assert (document["run"]["id"], len(document["results"])) == (2, 3)
    assert {result["repetitions"] for result in document["results"] if result["status"] == "ok"} == {5}
    with open_store(str(database)) as store:
        assert store.run(2).exit_code == int(Exit.NO_ANSWER)
        assert {r.kernel.name: r.id for r in store.results(2)}.items() > kept.items()
        assert len(store.runs()) == 2


class Impatient(Silent):
    """Ctrl-C after the first result."""

    def finished(self, result: Result) -> None:
        raise KeyboardInterrupt


def begun(home: Path, database: Path, asked: RunOptions) -> str:
    """Begin a run that is interrupted after its first result; what is said of it."""
    with open_store(str(database), write=True) as store, pytest.raises(KeyboardInterrupt) as stop:
        record_run(asked, store, Impatient())
    return str(stop.value)


def rows(database: Path) -> set[tuple[str, int]]:
    with open_store(str(database)) as store:
        return {(result.kernel.name, result.repetitions) for result in store.results(1)}


def again(home: Path, database: Path, *more: object) -> Said:
    where = ("--suite", home / "suite", "--store", shared.store(), "--db", database)
    return reprodb("run", "--resume", 1, *where, "--device", "model", *more)


def test_a_resumed_run_takes_what_it_was_asked_for_from_its_record(home: Path, tmp_path: Path) -> None:
    asked = replace(options(home), orders=False, stress=("offset",))
    begun(home, tmp_path / "db", asked)
    with open_store(str(tmp_path / "db")) as store:
        assert store.run(1).request == asked.request
    done = again(home, tmp_path / "db")
    assert done.code == 0, done.err
    with open_store(str(tmp_path / "db")) as store:
        assert store.run(1).complete
        assert store.run(1).request == asked.request
        found = {(r.kernel.name, r.profile, r.condition, r.repetitions) for r in store.results(1)}
    assert found == {(k, "default", c, 5) for k in ("fixed", "arrival") for c in ("plain", "offset")}


@pytest.mark.parametrize(
    ("more", "was", "now"),
    [
        (("--kernel", "fixed"), "--kernel fixed --kernel arrival", "--kernel fixed"),
        (("--tag", "quick"), "no --tag", "--tag quick"),
        (("--case", "normal*"), "no --case", "--case 'normal*'"),
        (("--profile", "no-fmad"), "--profile default", "--profile no-fmad"),
        (("--arch", "sm_80"), "no --arch", "--arch sm_80"),
        (("-n", 100), "--repetitions 5", "--repetitions 100"),
        (("--stress",), "no --stress", "--stress poison-00,poison-ff,offset"),
        (("--no-orders",), "--orders", "--no-orders"),
        (("--keep",), "no --keep", "--keep"),
    ],
)
def test_to_resume_with_something_else_is_refused(
    home: Path, unfinished: Path, more: tuple[object, ...], was: str, now: str
) -> None:
    before = rows(unfinished)
    said = again(home, unfinished, *more)
    assert (said.code, said.out) == (int(Exit.USAGE), "")
    assert f"run 1 was asked for {was}, this command asks for {now}\n" in said.err
    assert "or start a new run" in said.err
    assert rows(unfinished) == before


@pytest.fixture(name="unfinished", scope="module")
def a_database_with_an_unfinished_run(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("unfinished") / "db"
    begun(home, database, options(home))
    return database


def test_to_say_again_what_the_run_was_asked_for_is_fine(home: Path, tmp_path: Path) -> None:
    begun(home, tmp_path / "db", options(home))
    done = again(home, tmp_path / "db", "--kernel", "arrival", "--kernel", "fixed", "-n", 5, "--orders")
    assert done.code == 0, done.err
    assert rows(tmp_path / "db") == {("fixed", 5), ("arrival", 5)}


def test_what_an_interruption_counts_is_the_whole_run(home: Path, tmp_path: Path) -> None:
    asked = replace(options(home), profiles=("default", "no-fmad"))
    first = begun(home, tmp_path / "db", asked)
    assert first == "run 1 keeps 1 of 4 results and is incomplete; go on with --resume 1"
    second = begun(home, tmp_path / "db", replace(asked, resume="1"))
    assert second == "run 1 keeps 2 of 4 results and is incomplete; go on with --resume 1"


def test_a_run_from_before_requests_were_recorded_says_so(home: Path, tmp_path: Path) -> None:
    made = recorded(home, tmp_path / "other", options(home, ["fixed"]))
    with open_store(str(tmp_path / "db"), write=True) as store:
        store.begin(replace(made.run, finished_at=None, id=None, request=None))
    done = again(home, tmp_path / "db", "--kernel", "fixed", "-n", 3, "--profile", "default")
    assert done.code == 0, done.err
    assert "run 1 does not know what it was asked for: these options hold" in done.err
    assert rows(tmp_path / "db") == {("fixed", 3)}


def test_a_bundle_carries_what_a_run_was_asked_for(home: Path, unfinished: Path, tmp_path: Path) -> None:
    assert reprodb("export", 1, "-o", tmp_path / "one.reprodb", "--db", unfinished).code == 0
    assert reprodb("import", tmp_path / "one.reprodb", "--db", tmp_path / "db").code == 0
    with open_store(str(tmp_path / "db")) as store:
        assert store.run(1).request == options(home).request


def test_a_run_that_is_complete_or_another_suites_is_not_resumed(home: Path, tmp_path: Path) -> None:
    made = recorded(home, tmp_path / "db", options(home, ["fixed"]))
    with pytest.raises(UsageError, match="run 1 is complete"):
        recorded(home, tmp_path / "db", replace(options(home), resume="1"))
    with open_store(str(tmp_path / "db"), write=True) as store:
        store.begin(replace(made.run, uid="other", suite="elsewhere", finished_at=None, id=None))
    with pytest.raises(UsageError, match="run 2 is of elsewhere modelled; this would be suite modelled"):
        recorded(home, tmp_path / "db", replace(options(home), resume="2"))


def test_nothing_is_recorded_where_nothing_could_be_planned(home: Path, tmp_path: Path) -> None:
    for wrong in (
        replace(options(home), kernels=("fixd",)),
        replace(options(home), profiles=("defualt",)),
        replace(options(home), cases=("none",)),
        replace(options(home), require=("nothing",)),
        replace(options(home), no_compile=True, store=tmp_path / "empty"),
    ):
        with pytest.raises(ReprodbError):
            recorded(home, tmp_path / "db", wrong)
    with open_store(str(tmp_path / "db")) as store:
        assert store.runs() == ()


def test_a_gpu_that_auto_chose_and_that_does_not_open_gives_way_to_the_model(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seventh = Device("Phantom", "GPU-7", "9.0", 132, 1 << 37, 7)  # listed, and then not to be had
    monkeypatch.setattr(choice, "look", lambda: choice.Machine(Gpus((seventh,), "13.0")))
    asked = replace(options(home, ["fixed"]), device="auto")
    made = recorded(home, tmp_path / "db", asked)
    assert made.run.lane is Lane.MODELLED
    # With CuPy the device refuses; without it the worker does, in the same place.
    refusal = "opening device 7: cudaError" if find_spec("cupy") else "CuPy is not installed"
    assert made.sentence.startswith(f"modelled on the CPU: {refusal}")
    with pytest.raises(ReprodbError, match=refusal):
        recorded(home, tmp_path / "db", replace(asked, device="gpu"))


def test_the_command_says_what_it_does_on_standard_error_and_the_answer_on_standard_output(
    home: Path, tmp_path: Path
) -> None:
    asked = command(home, tmp_path / "db", "--kernel", "fixed")
    done = subprocess.run(asked, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "run 1: 1 results, modelled; all executed\n"
    lines = done.stderr.splitlines()
    assert lines[0] == "modelled on the CPU: asked for"
    assert lines[-1].startswith("1/1 fixed normal-seed1-2048 default: 1 pattern of 5, 0x")


# --- The verdict of a run that is compared with nothing ----------------------------------------


GOOD = CanaryOutcome("integer sum", True, "")
BAD = CanaryOutcome("integer sum", False, "")
CALM = CanaryOutcome("churn", False, "", fatal=False)
ONE, TWO = "0x3f800000", "0x3f800001"


def outside(result: Result) -> Result:
    return replace(result, accuracy=Judgement(Accuracy.OUTSIDE, 0.5))


def failed(result: Result) -> Result:
    return replace(result, status=Status.TIMED_OUT, outputs=())


@pytest.mark.parametrize(
    ("results", "canaries", "code", "words"),
    [
        ([make_result([ONE, ONE])], [GOOD, CALM], Exit.CLEAN, "all executed"),
        ([make_result([ONE, TWO])], [GOOD], Exit.UNTRUSTWORTHY, "1 lost determinism"),
        ([outside(make_result([ONE]))], [GOOD], Exit.UNTRUSTWORTHY, "1 inaccurate"),
        ([failed(make_result([ONE]))], [GOOD], Exit.NO_ANSWER, "1 without a result"),
        ([failed(make_result([ONE])), make_result([ONE, TWO])], [GOOD], Exit.UNTRUSTWORTHY, "determinism"),
        ([make_result([ONE, TWO])], [BAD], Exit.NO_ANSWER, "invalid: canary integer sum failed"),
    ],
)
def test_the_exit_code_and_its_reason(
    results: list[Result], canaries: list[CanaryOutcome], code: Exit, words: str
) -> None:
    found, reason = verdict(results, canaries)
    assert found is code
    assert words in reason


def test_a_line_about_a_result_has_no_more_than_a_line() -> None:
    result = make_result([ONE, ONE, ONE])
    assert describe(result).endswith("default: 1 pattern of 3, 0x3f800000, 0.00 s")
    long = replace(failed(result), error="\n\nran past its limit\n" + "x" * 1000)
    assert describe(long).endswith("default: timed out: ran past its limit")
    assert describe(replace(long, error="\x1b[31mred")).endswith("timed out: ⟨U+001B⟩[31mred")


def test_plain_lines_count_results(tmp_path: Path) -> None:
    with (tmp_path / "lines").open("w+") as stream:
        lines = Lines(stream)
        lines.finished(make_result([ONE]))
        lines.finished(make_result([ONE]))
        stream.seek(0)
        assert [line.split()[0] for line in stream] == ["1/0", "2/0"]
