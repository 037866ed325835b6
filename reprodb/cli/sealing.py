"""Writing a decision: who decides, and the ledger's file as a part of the database's transaction."""

from __future__ import annotations

import getpass
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from reprodb.errors import StoreError, UsageError

if TYPE_CHECKING:
    from reprodb.ledger import Ledger

_HELD = (signal.SIGINT, signal.SIGTERM)


def decider(who: str | None) -> str:
    """Who decides: as named, else git's user name and address, else the login. Raises UsageError."""
    if who is not None:
        return who.strip()
    name, address = _git("user.name"), _git("user.email")
    if name or address:
        return " ".join(part for part in (name, f"<{address}>" if address else "") if part)
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise UsageError("nobody is known to decide", remedy="say who: --who NAME") from None


def _git(key: str) -> str:
    try:
        done = subprocess.run(
            ["git", "config", "--get", key],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@contextmanager
def sealed(path: Path, before: Ledger, after: Ledger) -> Iterator[Callable[[], None]]:
    """Gives a function that writes `after` to `path`: to be called last in a transaction of the database.

    From that call to the end of this block Ctrl-C waits. If the block fails, the file is as it was. Raises
    UsageError where somebody else wrote the file since it was read, StoreError where it cannot be written.
    """
    from reprodb.files import replace_file
    from reprodb.ledger import load_ledger

    was: bytes | None = None
    written = False
    with ExitStack() as held:

        def seal() -> None:
            nonlocal was, written
            if not written:  # a transaction that is tried again calls again
                held.enter_context(signals_held())
                if load_ledger(path) != before:
                    raise UsageError(f"{path} changed meanwhile", remedy="run the command again")
                was = path.read_bytes() if path.exists() else None
            try:
                after.save(path)
            except OSError as error:
                raise StoreError(
                    f"the ledger {path} cannot be written: {error.strerror}", remedy="nothing was recorded"
                ) from None
            written = True

        try:
            yield seal
        except BaseException:
            if written and was is None:
                path.unlink(missing_ok=True)
            elif written and was is not None:
                replace_file(path.resolve(), was)
            raise


@contextmanager
def signals_held() -> Iterator[None]:
    """While this runs, SIGINT and SIGTERM wait; the first of them arrives at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)

    # Handlers and no mask: a signal to the process reaches any thread that does not mask it.
    before = {number: signal.signal(number, note) for number in _HELD}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
