"""How a command ends: faults become messages and codes, a lost Ctrl-C comes again, a reader may leave."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from reprodb.errors import Exit, ReprodbError

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

    from _typeshed import ReadableBuffer

INTERRUPTED = 130  # what shells say of a command that Ctrl-C ended
# A line of a message: an argument of ten thousand characters is not repeated whole.
LINE_LIMIT = 2000
_AGAIN_SECONDS = 0.02


def code_of(command: Callable[[], object]) -> int:
    """Carry out a command that leaves by SystemExit; its exit code, what is wrong said on standard error.

    A fault of reprodb itself, or of the machine, is `no answer`: Python's own code for it is 1, which would
    say that bits changed.
    """
    try:
        try:
            # From the first moment on: compilers are looked for before anything is planned, in processes.
            with terminated_as_interrupt():
                command()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except SystemExit as end:
        if end.code == INTERRUPTED and (stop := _interrupt_behind(end)) is not None:
            return _interrupted(stop)
        return end.code if isinstance(end.code, int) else int(Exit.CLEAN)
    except ReprodbError as error:
        _say(str(error))
        return int(error.code)
    except KeyboardInterrupt as stop:
        return _interrupted(stop)
    except MemoryError:
        _say("out of memory\nremedy: fewer --jobs, or a smaller case")
        return int(Exit.NO_ANSWER)
    except OSError as error:
        what = error.strerror or str(error)
        _say(f"{error.filename}: {what}" if error.filename else what)
        _discard_output()
        return int(Exit.NO_ANSWER)
    except Exception as error:
        import traceback

        from reprodb.cli.log import redacted

        if sys.stderr is not None:
            sys.stderr.write(redacted(traceback.format_exc()))
        _say(
            f"a fault of reprodb itself, and no answer: {type(error).__name__}: {error}\n"
            "remedy: report it with the lines above"
        )
        return int(Exit.NO_ANSWER)
    return int(Exit.CLEAN)


def _interrupt_behind(end: BaseException) -> KeyboardInterrupt | None:
    """The interrupt that Typer made an exit of."""
    error: BaseException | None = end
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _interrupted(stop: KeyboardInterrupt) -> int:
    """Say that it was, with what the interrupted command knows of what is kept."""
    _say(f"interrupted: {stop}" if stop.args else "interrupted")
    return INTERRUPTED


def _say(message: str) -> None:
    """The last word on standard error, nothing in it that steers a terminal."""
    from reprodb.cli.log import redacted
    from reprodb.render.text import visible

    if sys.stderr is not None:
        for line in redacted(f"reprodb: {message}").splitlines():
            sys.stderr.write(visible(line.expandtabs(4), LINE_LIMIT) + "\n")
        sys.stderr.flush()


def _discard_output() -> None:
    """What cannot be written now is not tried again when Python ends, which would change the exit code."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- A lost Ctrl-C -----------------------------------------------------------------------------


@contextmanager
def interrupts_heard() -> Iterator[None]:
    """While this runs, a KeyboardInterrupt that a finaliser or callback swallowed is raised once more.

    Python runs the handler between any two steps of the main thread, those of a weak reference's callback
    among them, and what is raised there ends there.
    """
    before = sys.unraisablehook

    def again(lost: UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        # Where Ctrl-C is ignored (a shell's background), it was SIGTERM.
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        number = signal.SIGTERM if ignored else signal.SIGINT
        main = threading.main_thread().ident
        timer = threading.Timer(_AGAIN_SECONDS, signal.pthread_kill, (main, number))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """While this runs, SIGTERM ends work as Ctrl-C does: what is complete is kept and workers go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# --- A reader that leaves ----------------------------------------------------------------------


class _Outlet(io.FileIO):
    """A pipe whose reader may leave (`| head`): what nobody reads any more goes nowhere."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return super().write(data)


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """While this runs, a command whose output is cut off goes on to its end and its own exit code."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = patient = tuple(_patient(stream) for stream in before)
    try:
        yield
    finally:
        for stream in patient:
            if stream is not None:
                with suppress(OSError):
                    stream.flush()
        sys.stdout, sys.stderr = before


def _patient(stream: TextIO) -> TextIO:
    """The process's own stream over an outlet; any other as it is, a closed one (None) too."""
    if not isinstance(stream, io.TextIOWrapper) or stream not in (sys.__stdout__, sys.__stderr__):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Outlet(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
