"""How commands end: exit codes of faults, readers that leave, a full device, a Ctrl-C that got lost."""

import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from reprodb.cli import ending
from reprodb.errors import Exit, StoreError, UsageError
from reprodb.version import __version__
from tests.builders import make_result
from tests.command import reprodb
from tests.nights import Nights

COMMAND = (sys.executable, "-m", "reprodb")


def _raising(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (SystemExit(3), 3, ""),
        (SystemExit(None), 0, ""),
        (
            UsageError("no 'x'", allowed="y", remedy="write y"),
            2,
            "reprodb: no 'x'\nallowed: y\nremedy: write y\n",
        ),
        (StoreError("full"), 4, "reprodb: full\n"),
        (KeyboardInterrupt(), 130, "reprodb: interrupted\n"),
        (KeyboardInterrupt("run 1 keeps 2"), 130, "reprodb: interrupted: run 1 keeps 2\n"),
        (MemoryError(), 4, "out of memory"),
        (PermissionError(13, "Permission denied", "there"), 4, "reprodb: there: Permission denied\n"),
        (
            ZeroDivisionError("oh"),
            4,
            "a fault of reprodb itself, and no answer: ZeroDivisionError: oh\nremedy: ",
        ),
    ],
)
def test_what_goes_wrong_has_its_code(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending.code_of(_raising(error)) == code
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (KeyboardInterrupt(), "interrupted\n"),
        (KeyboardInterrupt("run 1 keeps 2"), "interrupted: run 1 keeps 2\n"),
    ],
)
def test_an_interrupted_command_says_so_and_what_it_kept(
    stop: KeyboardInterrupt, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through Typer, which makes an exit of it."""
    app = typer.Typer()
    app.command()(_raising(stop))
    assert ending.code_of(lambda: app(args=[], prog_name="reprodb")) == 130
    assert capsys.readouterr().err == f"reprodb: {words}"


def test_a_fault_of_its_own_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    """Python's code for it is 1, which says that bits changed."""
    assert ending.code_of(_raising(ZeroDivisionError("oh"))) == Exit.NO_ANSWER
    assert "Traceback" in capsys.readouterr().err


def test_a_message_neither_steers_the_terminal_nor_fills_it(capsys: pytest.CaptureFixture[str]) -> None:
    ending.code_of(_raising(UsageError("no run '\x1b[2J" + "x" * 10_000 + "'", remedy="name one")))
    first, second = capsys.readouterr().err.splitlines()
    assert "⟨U+001B⟩[2J" in first
    assert "\x1b" not in first
    assert len(first) < 2100
    assert first.endswith("characters)")
    assert second == "remedy: name one"


def test_version_and_short_help() -> None:
    assert reprodb("--version").out == f"reprodb {__version__}\n"
    assert reprodb("-h").out == reprodb("--help").out
    assert reprodb("diff", "-h").code == 0


# --- A reader that leaves ----------------------------------------------------------------------


@pytest.fixture(name="changed", scope="module")
def a_database_of_a_change(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights, the second with other bits: comparing them is 1."""
    nights = Nights(tmp_path_factory.mktemp("nights"))
    nights.night(make_result())
    nights.night(make_result(["0x4b25426f"]))
    return nights.database


@pytest.mark.parametrize(
    ("command", "both", "code"),
    [
        (("diff", "1", "2"), True, 1),
        (("show", "latest", "--json"), False, 0),
        (("show", "9"), True, 2),
    ],
)
def test_a_reader_that_left_changes_no_exit_code(
    changed: Path, command: tuple[str, ...], both: bool, code: int
) -> None:
    """`reprodb diff A B | head -0` under pipefail: click would say 1 of every command."""
    read, write = os.pipe()
    os.close(read)
    errors = write if both else subprocess.DEVNULL
    done = subprocess.run([*COMMAND, *command, "--db", changed], stdout=write, stderr=errors, check=False)
    os.close(write)
    assert done.returncode == code


@pytest.mark.parametrize("command", [("runs",), ("--help",)])
def test_output_that_cannot_be_written_is_no_answer(changed: Path, command: tuple[str, ...]) -> None:
    args = command if command == ("--help",) else (*command, "--db", str(changed))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *args], stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert done.returncode == Exit.NO_ANSWER
    assert done.stderr == "reprodb: No space left on device\n"


def test_closed_streams_are_no_fault(changed: Path) -> None:
    closed = 'exec >&- 2>&- <&-; exec "$@"'
    command = ["/bin/sh", "-c", closed, "sh", *COMMAND, "diff", "1", "2", "--db", str(changed)]
    assert subprocess.run(command, check=False).returncode == 1


# --- A lost Ctrl-C -----------------------------------------------------------------------------


class _Thing:
    """Something to have weak references to."""


def _swallowed(number: signal.Signals) -> None:
    """A signal whose handler runs inside a weak reference's callback, where what it raises is lost."""
    thing = _Thing()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(number))
    del thing
    assert reference() is None


def _ends(within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        time.sleep(0.01)
    pytest.fail("the interrupt never came")


def test_a_ctrl_c_lost_in_a_callback_comes_again() -> None:
    with pytest.raises(KeyboardInterrupt), ending.interrupts_heard():
        _swallowed(signal.SIGINT)
        _ends()


def test_where_ctrl_c_is_ignored_the_lost_signal_was_sigterm() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), ending.interrupts_heard(), ending.terminated_as_interrupt():
            _swallowed(signal.SIGTERM)
            _ends()
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_ends_any_command_as_ctrl_c_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Also before it has begun to work, when Python's own answer would be to die without a word."""
    before = signal.getsignal(signal.SIGTERM)

    def command() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        _ends()

    assert ending.code_of(command) == ending.INTERRUPTED
    assert capsys.readouterr().err == "reprodb: interrupted\n"
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_lost_errors_are_shown_as_before() -> None:
    seen: list[type[BaseException]] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda lost: seen.append(lost.exc_type)
    try:
        with ending.interrupts_heard():
            thing = _Thing()
            reference = weakref.ref(thing, lambda _: int("x"))
            del thing
            assert reference() is None
    finally:
        sys.unraisablehook = before
    assert seen == [ValueError]
