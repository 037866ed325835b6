"""Where a database is: a file, or a PostgreSQL URL whose credentials no message ever shows."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from reprodb.errors import UsageError

DEFAULT = "reprodb.db"
_ALLOWED = "a file's path, sqlite:///PATH, or postgresql+psycopg://USER@HOST/DATABASE"
# What people write where a URL belongs: a scheme with a slash or colon lost, keywords as psql takes them.
_CONNECTION = re.compile(
    r"^(?:postgres\w*|sqlite)(?:\+\w+)?(?:/*:/*|//)|^\s*(?:host|hostaddr|port|user|password|dbname|service)\s*=",
    re.IGNORECASE,
)
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True, slots=True)
class Location:
    """A SQLite file (`path`), or a PostgreSQL database (`url`, credentials included)."""

    path: Path | None = None
    url: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.path is not None else redact(self.url or "")


def redact(url: str) -> str:
    """The URL with passwords replaced by `***`, whether or not it can be parsed."""
    # The last @ before the path ends the credentials: an unescaped one inside a password is hidden too.
    url = re.sub(r"(://[^/?#:@]*):[^/?#]*@", r"\1:***@", url)
    url = re.sub(r"(://[^/?#:@]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&][^=&]*pass[^=&]*=)[^&#]*", r"\1***", url, flags=re.IGNORECASE)


def _ambiguous(rest: str) -> bool:
    """Whether a part of the credentials could be read as host or database, and then stand in a message."""
    head, _, query = rest.partition("?")
    credentials, at, _ = head.rpartition("@")
    return any(c in credentials for c in "@/#") or (not at and ":" in head and "@" in query)


def locate(url: str | None) -> Location:
    """What `url` names, or REPRODB_DB, or the default. Raises UsageError for another kind of database."""
    text = url if url is not None else os.environ.get("REPRODB_DB") or DEFAULT
    if not text.strip() or "\0" in text:
        raise UsageError(f"no database in {text!r}", allowed=_ALLOWED)
    scheme, separator, rest = text.partition("://")
    if not separator:
        if text == ":memory:":
            raise UsageError("a database in memory keeps nothing", allowed=_ALLOWED)
        if _CONNECTION.search(text):
            # Not shown: a password may stand anywhere in it. As a path it would be a new, empty history.
            raise UsageError(
                "the database is given as a connection string that is no URL",
                allowed=_ALLOWED,
                remedy="a file of such a name: put ./ before it",
            )
        return Location(path=Path(text))
    if scheme in ("sqlite", "sqlite+pysqlite"):
        if not rest.startswith("/") or len(rest) == 1 or rest == "/:memory:":
            raise UsageError(f"no file in {redact(text)!r}", allowed=_ALLOWED)
        if "?" in rest or "#" in rest:
            raise UsageError(f"options in {redact(text)!r} are not supported", allowed=_ALLOWED)
        return Location(path=Path(rest[1:]))
    if scheme in _POSTGRESQL:
        if _ambiguous(rest):
            raise UsageError(
                f"{redact(text)!r} cannot be taken apart",
                allowed="postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE",
                remedy="write @ / ? # in a password as %40 %2F %3F %23",
            )
        return Location(url=f"postgresql+psycopg://{rest}")
    raise UsageError(f"unknown database {redact(text)!r}", allowed=_ALLOWED)
