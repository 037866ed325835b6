"""The schema's versions: which one a database has, and the way up. Alembic is loaded only to migrate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from reprodb.errors import StoreError

VERSION_TABLE = "reprodb_schema"


@dataclass(frozen=True, slots=True)
class Schema:
    """The revisions, oldest first, and the folders that hold their scripts."""

    revisions: tuple[str, ...]
    folders: tuple[Path, ...]

    @property
    def head(self) -> str:
        return self.revisions[-1]


_FOLDER = Path(__file__).parent / "migrations"
SCHEMA = Schema(("0001",), (_FOLDER / "versions",))


def version(connection: Connection) -> str | None:
    """The schema's version, or versions, which none has; None where the database has no table of ours."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    query = text(f"SELECT version_num FROM {VERSION_TABLE} ORDER BY version_num")  # noqa: S608
    return " and ".join(str(number) for number in connection.scalars(query))


def check_version(found: str | None, schema: Schema, location: str) -> bool:
    """Whether the database stands at an older schema. Raises StoreError where it is foreign or newer."""
    if found is None:
        raise StoreError(f"{location} is not a reprodb database", remedy="name another with --db")
    if found not in schema.revisions:
        raise StoreError(
            f"{location} has schema {found!r}, which this reprodb does not know",
            allowed=f"up to schema {schema.head}",
            remedy="upgrade reprodb: a newer one wrote this database",
        )
    return found != schema.head


def too_old(found: str, schema: Schema, location: str) -> StoreError:
    return StoreError(
        f"{location} has the older schema {found}, this reprodb reads {schema.head}",
        remedy=f"reprodb db upgrade --db {location}",
    )


def upgrade(connection: Connection, schema: Schema = SCHEMA) -> None:
    """Brings the database to the newest schema inside the connection's open transaction: all or nothing."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(_FOLDER), version_locations=[str(folder) for folder in schema.folders])

    def steps(revision: object, context: object) -> object:
        return script._upgrade_revs(schema.head, revision)  # type: ignore[arg-type]

    with EnvironmentContext(Config(), script, fn=steps) as environment:
        environment.configure(connection=connection, version_table=VERSION_TABLE, transactional_ddl=True)
        environment.run_migrations()
