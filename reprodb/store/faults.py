"""Database errors as StoreError: which database, what is wrong, what to do; never a credential."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from reprodb.errors import StoreError
from reprodb.store.location import Location, redact

# What a driver's message holds, and the remedy. SQLite and PostgreSQL have no codes in common.
_REMEDIES = (
    ("database is locked", "another process is writing; wait for it, or use PostgreSQL for many writers"),
    ("lock timeout", "another process is writing; wait for it and try again"),
    ("disk is full", "free space on its disk; what was recorded before is whole"),
    ("No space left", "free space on its disk; what was recorded before is whole"),
    ("disk I/O error", "check its disk and free space; what was recorded before is whole"),
    ("readonly", "make file and folder writable, or name another database with --db"),
    ("malformed", "restore a backup; `reprodb db check` says what is damaged"),
    ("not a database", "name another file with --db; this one was left as it is"),
    ("unable to open", "check that the folder exists and may be read and written"),
    ("Connection refused", "start the server, or correct host and port"),
    ("resolve host", "correct the host"),
    ("authentication failed", "correct user and password"),
    ("relation", "`reprodb db check` says what is missing"),
    ("does not exist", "create the database first, then: reprodb db upgrade"),
    ("permission denied", "grant the user rights on this database"),
)


@contextmanager
def translated(location: Location) -> Iterator[None]:
    """Errors of database libraries become StoreError; IntegrityError passes through."""
    try:
        yield
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        raise store_error(location, error) from error


def store_error(location: Location, error: BaseException) -> StoreError:
    """The error in one line, with the remedy that fits it."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    words = redact(" ".join(str(cause).split()))
    remedy = next((remedy for sign, remedy in _REMEDIES if sign.lower() in words.lower()), "reprodb db check")
    return StoreError(f"{location}: {words}", remedy=remedy)
