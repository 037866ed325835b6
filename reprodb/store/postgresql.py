"""A PostgreSQL database: how it is connected, and the one lock that all who write take in turn."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from reprodb.errors import StoreError, UsageError
from reprodb.store.location import redact

CONNECT_SECONDS = 10
LOCK_SECONDS = 30
_WRITE_LOCK = 0x72706462  # an advisory lock's number, "rpdb"


def connect(url: str, *, write: bool) -> Engine:
    """An engine on the database. Reads see one moment; writers come one at a time, as on SQLite."""
    try:
        engine = create_engine(make_url(url), pool_size=1, connect_args={"connect_timeout": CONNECT_SECONDS})
    except ImportError:
        raise StoreError(
            "PostgreSQL needs psycopg, which is not installed", remedy="pip install 'reprodb[postgres]'"
        ) from None
    except (ArgumentError, ValueError):
        raise UsageError(
            f"{redact(url)!r} is not a database URL",
            allowed="postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE",
        ) from None

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")
            cursor.execute("SET idle_in_transaction_session_timeout = '10min'")
        connection.commit()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if write and options.get("reprodb_write", True):
            waits = "on" if options.get("reprodb_durable", True) else "off"
            connection.exec_driver_sql(
                f"SELECT pg_advisory_xact_lock({_WRITE_LOCK}), "
                f"set_config('synchronous_commit', '{waits}', true)"
            )
        else:
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    return engine
