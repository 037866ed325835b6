"""Logs: one structured line a result, levels, files; and no password of a database anywhere."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reprodb.cli import doctor, ending
from reprodb.cli.log import JsonLog, LogFormat, LogLevel, LogOptions, journal, redacted
from reprodb.cli.progress import Lines
from reprodb.domain import Status
from reprodb.errors import StoreError
from tests import shared
from tests.builders import TREE_TOTAL, make_result
from tests.command import reprodb, valid
from tests.test_bad_input import write_kernel

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADDRESS = "postgresql://ada:hunter2@127.0.0.1:1/db"


def lines(text: str) -> list[dict[str, Any]]:
    return [valid(json.loads(line), "log") for line in text.splitlines()]


def test_a_result_is_one_line() -> None:
    stream = io.StringIO()
    JsonLog(stream, LogLevel.INFO, lambda: NOON).finished(make_result())
    (line,) = lines(stream.getvalue())
    total = line.pop("outputs")["total"]
    assert (total["first_bits"], total["run_hash"]) == (TREE_TOTAL, "0x8189389fe1bc0a65")
    assert line["time"] == "2026-03-01T12:00:00.000Z"
    assert {key: line[key] for key in ("level", "event", "kernel", "profile", "status", "lane")} == {
        "level": "info", "event": "result", "kernel": "sum_squares_tree", "profile": "default",
        "status": "ok", "lane": "modelled",
    }  # fmt: skip


@pytest.mark.parametrize(("level", "seen"), [("debug", 2), ("info", 2), ("warning", 1), ("error", 0)])
def test_levels(level: str, seen: int) -> None:
    failed = make_result(status=Status.TIMED_OUT, error="ran past its limit\nmore")
    stream = io.StringIO()
    log = JsonLog(stream, LogLevel(level), lambda: NOON)
    for result in (make_result(), failed):
        log.finished(result)
    assert len(lines(stream.getvalue())) == seen
    if seen:
        assert lines(stream.getvalue())[-1]["error"] == "ran past its limit"


def test_plain_lines_of_problems_alone() -> None:
    stream = io.StringIO()
    log = Lines(stream, problems=True)
    log.finished(make_result())
    log.finished(make_result(status=Status.CRASHED, error="SIGSEGV"))
    assert stream.getvalue() == "2/0 sum_squares_tree ramp1000-4194915 default: crashed: SIGSEGV\n"


def test_a_run_logs_its_plan_results_and_end(tmp_path: Path) -> None:
    """On standard error, JSON alone: what a collector of logs reads; in a file, it is appended."""
    write_kernel(tmp_path / "suite")
    shared.store_below(tmp_path)
    command = ("run", "--suite", "suite", "--device", "model", "--profile", "default", "-n", 2, "-j", 1)
    said = reprodb(*command, "--log-format", "json", "--log-level", "debug", folder=tmp_path)
    events = [line["event"] for line in lines(said.err)]
    assert [e for e in events if e in ("plan", "artifact", "result", "verdict")] == [
        "plan", "artifact", "result", "verdict",
    ]  # fmt: skip
    assert lines(said.err)[-1] | {"time": ""} == {
        "time": "", "level": "info", "event": "verdict", "run": 1, "exit_code": 0, "verdict": "all executed",
    }  # fmt: skip


def test_a_log_in_a_file_is_appended_and_ends_with_the_error(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "night.jsonl"
    options = LogOptions(LogFormat.JSON, LogLevel.INFO, file)
    for _ in range(2):
        with pytest.raises(StoreError), journal(options, quiet=True, now=lambda: NOON) as book:
            book.listener.said("hello")
            raise StoreError(f"{ADDRESS} does not answer")
    events = lines(file.read_text())
    assert [line["event"] for line in events] == ["message", "error"] * 2
    assert events[1]["text"] == "postgresql://ada:***@127.0.0.1:1/db does not answer"
    bad = LogOptions(LogFormat.JSON, LogLevel.INFO, Path("/proc/no/log"))
    with pytest.raises(StoreError, match="cannot be written"), journal(bad, quiet=True):
        pass


# --- Credentials -------------------------------------------------------------------------------


def test_urls_inside_sentences_lose_their_passwords() -> None:
    text = f"first {ADDRESS}, then https://x/y and sqlite:////a.db"
    assert redacted(text) == (
        "first postgresql://ada:***@127.0.0.1:1/db, then https://x/y and sqlite:////a.db"
    )


COMMANDS: tuple[tuple[object, ...], ...] = (
    ("nightly", "--device", "model", "--log-format", "json"),
    ("run", "--device", "model"),
    ("show",), ("runs",), ("diff", "1", "2"), ("history", "k"), ("claim", "1", "k"), ("dossier",),
    ("report",), ("site",), ("export", "1", "-o", "x"), ("import", "x"), ("bless", "1", "--reason", "x"),
    ("baselines",), ("explain", "1", "2"), ("trace", "1", "2", "k"), ("code", "1", "2", "k"),
    ("db", "check"), ("db", "upgrade"), ("db", "backup", "x"), ("db", "prune", "--keep-runs", "1"),
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(map(str, c[:2])))
def test_no_command_tells_the_password(
    command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRODB_DB", ADDRESS)
    said = reprodb(*command, folder=tmp_path)
    assert said.code in (0, 2, 4)
    assert "hunter2" not in said.out + said.err
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"hunter2" not in file.read_bytes()


def test_a_fault_of_its_own_tells_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    """Libraries put the address that they were given into their errors."""

    def broken() -> object:
        raise RuntimeError(f"cannot connect to {ADDRESS}")

    assert ending.code_of(broken) == 4
    assert "hunter2" not in capsys.readouterr().err


def test_doctor_is_fit_for_a_bug_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    check = doctor.Check("place", "x", False, f"{ADDRESS} and /home/ada/x", "see /home/ada/y")
    shown = doctor.fit_to_show(check, "/home/ada")
    assert (shown.detail, shown.remedy) == (
        "postgresql://ada:***@127.0.0.1:1/db and ~/x",
        "see ~/y",
    )
    monkeypatch.setenv("REPRODB_DB", ADDRESS)
    monkeypatch.setenv("GITHUB_TOKEN", "hunter2")
    for command in (("doctor",), ("doctor", "--json")):
        said = reprodb(*command, folder=tmp_path)
        assert "hunter2" not in said.out + said.err
        assert "127.0.0.1" in said.out
        if "--json" in command:
            valid(said.json, "doctor")
