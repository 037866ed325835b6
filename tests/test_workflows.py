"""The workflows: linted, pinned, with few rights, and every `run:` step carried out in order."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reprodb.store import open_store
from tests.command import reprodb
from tests.test_bad_input import SOURCE, write_kernel
from tests.test_repository import commit, git
from tests.workflows import ROOT, WORKFLOWS, Runner, checkout, environment, evaluate, load, uses

FILES = [*sorted(WORKFLOWS.glob("*.yml")), ROOT / "action.yml"]
BIN = Path(sys.executable).parent


# --- As they are written -----------------------------------------------------------------------


def test_actionlint_finds_nothing() -> None:
    done = subprocess.run([BIN / "actionlint"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_actionlint_would_find_something(tmp_path: Path) -> None:
    """Else the test above could pass by looking at nothing."""
    bad = (WORKFLOWS / "nightly.yml").read_text().replace("needs: night", "needs: nigth")
    (tmp_path / "bad.yml").write_text(bad)
    done = subprocess.run([BIN / "actionlint", tmp_path / "bad.yml"], capture_output=True, text=True)
    assert "nigth" in done.stdout


def test_zizmor_finds_nothing() -> None:
    """Without a network; the strictest persona but one, so that style counts too."""
    command = [str(BIN / "zizmor"), "--offline", "--persona", "pedantic", "--no-progress", *map(str, FILES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No findings to report" in done.stdout + done.stderr


def test_zizmor_would_find_something(tmp_path: Path) -> None:
    bad = (
        (ROOT / "action.yml")
        .read_text()
        .replace("""'"$GITHUB_ACTION_PATH""", """'echo ${{ inputs.suite }}; "$X""")
    )
    (tmp_path / "action.yml").write_text(bad)
    done = subprocess.run([BIN / "zizmor", "--offline", tmp_path], capture_output=True, text=True)
    assert "template-injection" in done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_say_their_version(path: Path) -> None:
    text = path.read_text()
    for action in uses(load(path)):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)
        assert re.search(rf"{re.escape(action)} # v\d+\.\d+\.\d+$", text, re.MULTILINE)


@pytest.mark.parametrize("path", FILES[:-1], ids=lambda path: path.name)
def test_workflows_have_few_rights_and_an_end(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["defaults"] == {"run": {"shell": "bash"}}  # a failure before a pipe counts
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= (300 if name == "soak" else 60)
        assert job.get("permissions", {}) == (
            {"pages": "write", "id-token": "write"} if name == "pages" else {}
        )
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_the_nightly_is_what_it_should_be() -> None:
    workflow = load(WORKFLOWS / "nightly.yml")
    triggers = workflow[True]  # YAML reads `on` as a truth value
    assert set(triggers) == {"schedule", "workflow_dispatch"}
    assert workflow["concurrency"]["cancel-in-progress"] is False
    night = workflow["jobs"]["night"]
    labels: dict[str, dict[str, str]] = {"vars": {}}
    runner = night["runs-on"].removeprefix("${{").removesuffix("}}")
    assert evaluate(runner, labels) == ["self-hosted", "linux", "gpu"]
    assert evaluate(runner, {"vars": {"REPRODB_RUNNER": '["h200"]'}}) == ["h200"]
    assert any("--device gpu" in step.get("run", "") for step in night["steps"])
    names = [step["with"]["name"] for step in night["steps"] if "upload-artifact" in step.get("uses", "")]
    assert all("runner.name" in name and "run_attempt" in name for name in names)
    secretly = [name for name, job in load(WORKFLOWS / "ci.yml")["jobs"].items() if "secrets." in str(job)]
    assert secretly == [], "a pull request's code must meet no secret"


# --- As they run -------------------------------------------------------------------------------


def small_suite(folder: Path) -> Path:
    write_kernel(folder / "suite", "total")
    (folder / "suite" / "suite.toml").write_text('name = "small"\n')
    return folder / "suite"


def narrowed(workflow: dict[str, Any], profiles: dict[str, str]) -> dict[str, Any]:
    for row in workflow["jobs"]["night"]["strategy"]["matrix"]["include"]:
        row["profiles"] = profiles[row["toolkit"]]
    return workflow


def night(folder: Path, workflow: dict[str, Any], suite: Path, attempt: str = "1") -> Runner:
    state = {
        "REPRODB_DB": str(folder / "state" / "history.db"),
        "REPRODB_BACKUPS": str(folder / "state" / "backups"),
    }
    (folder / "state").mkdir(exist_ok=True)
    runner = Runner(folder / attempt, variables=state, github={"run_attempt": attempt})
    runner.folder.mkdir()
    runner.run(workflow, lambda workspace: checkout(workspace, suite))
    return runner


def failed(runner: Runner) -> str:
    return "\n".join(f"{did.job}: {did.step}: {did.code}\n{did.output}" for did in runner.done if did.code)


def test_two_nights_step_by_step(tmp_path: Path) -> None:
    """Every `run:` step of the nightly in order, the model for the GPU, one profile a toolkit."""
    workflow = narrowed(load(WORKFLOWS / "nightly.yml"), {"cuda12": "cuda12", "cuda13": "default"})
    runner = night(tmp_path, workflow, small_suite(tmp_path))
    assert not failed(runner), failed(runner)
    steps = [(did.job, did.step) for did in runner.done]
    once = ["Set up", "Doctor", "Nightly", "Bundle"]
    assert steps == [("night", step) for step in once * 2] + [
        ("merge", step) for step in ("Set up", "Merge", "Back up", "Toolkits beside each other", "Site")
    ]
    left = {path.name: sorted(p.name for p in path.iterdir()) for path in runner.artifacts.iterdir()}
    assert left == {
        "nightly-cuda12-here-77-1": [
            "doctor.txt",
            "junit.xml",
            "night-cuda12.reprodb",
            "night.jsonl",
            "run-1.html",
        ],
        "nightly-cuda13-here-77-1": [
            "doctor.txt",
            "junit.xml",
            "night-cuda13.reprodb",
            "night.jsonl",
            "run-2.html",
        ],
        "merged-here-77-1": ["site", "toolkits.html"],
    }
    with open_store(str(tmp_path / "state" / "history.db")) as store:
        assert [run.label for run in store.runs()] == ["night-cuda13-77-1", "night-cuda12-77-1"]
        assert [run.exit_code for run in store.runs()] == [0, 0]
    assert len(list((tmp_path / "state" / "backups").iterdir())) == 1
    assert "first night" in (runner.folder / "summary.md").read_text().lower()


@pytest.mark.soak
def test_a_night_whose_bits_moved_fails_and_is_merged_all_the_same(tmp_path: Path) -> None:
    workflow = narrowed(load(WORKFLOWS / "nightly.yml"), {"cuda12": "cuda12", "cuda13": "default"})
    suite = small_suite(tmp_path)
    night(tmp_path, workflow, suite)
    write_kernel(suite, "total", source=SOURCE.replace("sum += x[i]", "sum += 3.0f * x[i]"))
    runner = night(tmp_path, workflow, suite, "2")
    assert [(did.step, did.code) for did in runner.done if did.code] == [("Nightly", 1)] * 2
    assert "::error file=kernels/total/total.cu" in failed(runner)
    with open_store(str(tmp_path / "state" / "history.db")) as store:
        assert [run.exit_code for run in store.runs()] == [1, 1, 0, 0]
    assert "0x41000000 → 0x41c00000" in (runner.folder / "summary.md").read_text().replace(
        "</code>", ""
    ).replace("<code>", "")


@pytest.mark.soak
def test_a_night_whose_runner_is_gone_leaves_no_bundle_and_no_green(tmp_path: Path) -> None:
    workflow = load(WORKFLOWS / "nightly.yml")
    del workflow["jobs"]["night"]["steps"][:]
    (tmp_path / "1" / "artifacts").mkdir(parents=True)
    (tmp_path / "1").rename(tmp_path / "x")
    runner = Runner(tmp_path / "x", variables={"REPRODB_DB": str(tmp_path / "a.db")})
    runner.run(workflow, lambda workspace: checkout(workspace, small_suite(tmp_path / workspace.name)))
    assert [(did.step, did.code) for did in runner.done][:2] == [("Set up", 0), ("Merge", 4)]
    assert "::error::no job of this night left a bundle" in runner.done[1].output


@pytest.mark.soak
def test_the_pull_request_job_step_by_step(tmp_path: Path) -> None:
    """ci.yml's `bits`: a pull request that changes nothing in its kernels is green."""
    workflow = load(WORKFLOWS / "ci.yml")
    del workflow["jobs"]["test"]
    suite = small_suite(tmp_path)

    def prepare(workspace: Path) -> None:
        checkout(workspace, suite)
        (workspace / ".gitignore").write_text("/.venv/\n/reports/\n/builds/store\n")
        (workspace / "builds" / "profiles.toml").write_text(
            '[profile.default]\ncompiler = "nvrtc"\ntoolkit = ">=13,<14"\n'
        )
        with (workspace / "reprodb.toml").open("a") as file:
            file.write('profiles = "builds/profiles.toml"\n')
        git(workspace, "init", "-q")
        git(workspace, "add", ".")
        git(workspace, "commit", "-q", "-m", "base")
        git(workspace, "tag", "base")
        commit(workspace, "README", "a pull request\n", "words")

    runner = Runner(tmp_path / "runner", event="pull_request")
    runner.github["event"] = {"pull_request": {"base": {"sha": "base"}}}
    runner.folder.mkdir()
    runner.run(workflow, prepare)
    assert [(did.step, did.code) for did in runner.done] == [("Set up", 0), ("Bits of both sides", 0)], (
        failed(runner)
    )
    assert {path.name for path in (runner.artifacts / "bits-here-77-1").iterdir()} == {
        "check.html",
        "check.xml",
    }
    push = Runner(tmp_path / "push", event="push")
    push.folder.mkdir()
    assert push.run(workflow, prepare) == []


@pytest.mark.soak
def test_the_workflow_that_init_writes_step_by_step(tmp_path: Path) -> None:
    """All but its set-up, which installs a release: a night on a runner, and nothing without one."""
    repository = tmp_path / "mine"
    repository.mkdir()
    git(repository, "init", "-q")
    assert reprodb("init", folder=repository).code == 0
    workflow = load(repository / ".github" / "workflows" / "reprodb.yml")
    install = workflow["jobs"]["night"]["steps"].pop(1)["run"]
    assert "reprodb[cpu,cuda13,postgres]==" in install

    def prepare(workspace: Path) -> None:
        shutil.copytree(repository, workspace)
        environment(workspace)

    state = {"REPRODB_DB": str(tmp_path / "history.db"), "REPRODB_BACKUPS": str(tmp_path / "backups")}
    idle = Runner(tmp_path / "idle", variables=state)
    idle.folder.mkdir()
    assert idle.run(workflow, prepare) == []
    runner = Runner(tmp_path / "runner", variables={**state, "REPRODB_RUNNER": '["self-hosted"]'})
    runner.folder.mkdir()
    done = runner.run(workflow, prepare)
    assert [(did.step, did.code) for did in done] == [("Nightly", 0), ("Bundle", 0), ("Back up", 0)], failed(
        runner
    )
    left = {path.name for path in (runner.artifacts / "night-here-77-1").iterdir()}
    assert left == {"run-1.html", "junit.xml", "night.reprodb"}
    assert len(list((tmp_path / "backups").iterdir())) == 1
    server = Runner(tmp_path / "server", secrets={"REPRODB_DB": "postgresql://u:p@127.0.0.1:1/d"})
    server.variables = {"REPRODB_RUNNER": '["self-hosted"]'}
    server.folder.mkdir()
    with pytest.raises(AssertionError, match="nothing to upload"):
        server.run(workflow, prepare)
    ends = {did.step: (did.code, did.output) for did in server.done}
    assert ends["Nightly"][0] == 4
    assert ends["Back up"] == (0, "PostgreSQL is backed up by its own tools\n")


# --- The composite action ----------------------------------------------------------------------


def act(folder: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """The action's script with its defaults and these inputs; a stand-in records what it is asked."""
    document = load(ROOT / "action.yml")
    (step,) = document["runs"]["steps"]
    context = {"inputs": {name: value["default"] for name, value in document["inputs"].items()} | inputs}
    environment = {name: evaluate(text[3:-2], context) for name, text in step["env"].items()}
    assert set(context["inputs"]) == {name.removeprefix("INPUT_").lower() for name in environment}
    outputs = folder / "outputs"
    outputs.unlink(missing_ok=True)
    outputs.touch()
    script = step["run"].strip('"').replace("$GITHUB_ACTION_PATH", str(ROOT))
    done = subprocess.run(
        ["bash", "-c", f'"{script}"'],
        cwd=folder,
        env={
            **environment,
            "PATH": "/usr/bin:/bin",
            "GITHUB_OUTPUT": str(outputs),
            "RUNNER_TEMP": str(folder),
        },
        capture_output=True,
        text=True,
    )
    lines = outputs.read_text().splitlines()
    return done.returncode, dict(line.split("=", 1) for line in lines), done.stdout + done.stderr


@pytest.fixture(name="command")
def a_command_that_tells_its_arguments(tmp_path: Path) -> Path:
    command = tmp_path / "reprodb"
    command.write_text('#!/bin/sh\nprintf "<%s>" "$@"; echo "db=$REPRODB_DB"; exit "${CODE:-3}"\n')
    command.chmod(0o755)
    return command


def test_the_action_passes_its_inputs_as_data(tmp_path: Path, command: Path) -> None:
    hostile = '$(touch hit); `touch hit` "; touch hit'
    code, outputs, said = act(
        tmp_path,
        command=str(command),
        suite=hostile,
        profiles="default\n  no-*",
        database="postgresql://u:p@h/d",
    )
    assert code == 3
    assert outputs == {"verdict": "no answer, see the log", "exit-code": "3", "report": ""}
    assert f"<--suite><{hostile}><--profile><default><--profile><no-*>" in said
    assert "postgresql://u:p@h/d" not in said.partition("db=")[0]
    assert "db=postgresql://u:p@h/d" in said
    assert not (tmp_path / "hit").exists()


def test_the_action_checks_a_pull_request(tmp_path: Path, command: Path) -> None:
    _, _, said = act(tmp_path, command=str(command), against="origin/main", out="r")
    assert said.startswith("<check><--against><origin/main><--html><r/check.html>")
    assert "--device" not in said


def test_what_ends_the_action_before_reprodb_is_no_answer(tmp_path: Path, command: Path) -> None:
    """Bash's own 1 would say that bits changed: no environment can be made here, no such command is there."""
    nothing = {"verdict": "no answer, see the log", "exit-code": "4", "report": ""}
    assert command.is_file()  # where the environment would be
    code, outputs, _ = act(tmp_path)
    assert (code, outputs) == (4, nothing)
    (tmp_path / "file").touch()
    code, outputs, _ = act(tmp_path, command=str(command), against="HEAD", out="file/inside")
    assert (code, outputs) == (4, nothing)
    code, outputs, said = act(tmp_path, command=str(command), against="HEAD", out="-odd")
    assert (code, outputs["exit-code"], "<--html><-odd/check.html>" in said) == (3, "3", True)
    assert (tmp_path / "-odd").is_dir()


@pytest.mark.soak
def test_the_action_runs_reprodb(tmp_path: Path) -> None:
    """With the real command: outputs are the run's own."""
    suite = small_suite(tmp_path)
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nexport GITHUB_ACTIONS=true\nexec {BIN}/python -m reprodb "$@" -n 2\n')
    wrapper.chmod(0o755)
    code, outputs, said = act(
        tmp_path, command=str(wrapper), suite=str(suite), profiles="default", device="model", database="h.db"
    )
    assert code == 0, said
    assert (outputs["exit-code"], outputs["report"]) == ("0", "reports/run-1.html")
    assert outputs["verdict"].lower().startswith("first night")
    assert (tmp_path / outputs["report"]).exists()
    assert (tmp_path / "reports" / "junit.xml").exists()
    shutil.rmtree(tmp_path / "reports")
