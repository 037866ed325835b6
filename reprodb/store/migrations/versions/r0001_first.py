"""The first schema: runs, what they share, results with outputs and patterns, blessings."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

DIGEST = sa.LargeBinary()  # SHA-256, 32 bytes
FLOAT64 = sa.LargeBinary()  # 8 bytes, big endian
HASH64 = sa.LargeBinary()  # 8 bytes, big endian
TIME = sa.String(27)  # 2026-01-31T23:59:00.000000Z


def _numbered(name: str, *columns: sa.Column[Any] | sa.Constraint) -> None:
    """A table with its own numbers, none of which is used twice."""
    number = sa.Column("id", sa.Integer, nullable=False)
    key = sa.PrimaryKeyConstraint("id", name=f"pk_{name}")
    op.create_table(name, number, *columns, key, sqlite_autoincrement=True)


def _interned(name: str, *columns: sa.Column[Any] | sa.Constraint) -> None:
    """A table whose rows are stored once by digest."""
    unique = sa.UniqueConstraint("digest", name=f"uq_{name}_digest")
    _numbered(name, sa.Column("digest", DIGEST, nullable=False), *columns, unique)


def _foreign(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{target}.id"], name=f"fk_{table}_{column}")


def upgrade() -> None:
    _interned("environments", sa.Column("record", sa.Text, nullable=False))
    _interned("remarks", sa.Column("record", sa.Text, nullable=False))
    _interned("layouts", sa.Column("record", sa.Text, nullable=False))
    _interned(
        "cases",
        sa.Column("kernel", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("input_digest", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    _interned(
        "blobs",
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    _interned(
        "builds",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("ptx_id", sa.Integer),
        sa.Column("sass_id", sa.Integer),
        _foreign("builds", "ptx_id", "blobs"),
        _foreign("builds", "sass_id", "blobs"),
    )
    op.create_index("ix_builds_key", "builds", ["key"])
    _interned(
        "patterns",
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary),
        sa.Column("pages", sa.LargeBinary),
        sa.Column("kept", sa.Boolean, nullable=False),
    )
    scope = ("kernel", "suite", "case_name", "profile", "arch", "lane", "gpu", "condition_name")
    _numbered(
        "scopes",
        *(sa.Column(name, sa.Text, nullable=False) for name in scope),
        sa.UniqueConstraint(*scope, name="uq_scopes"),
    )
    _numbered(
        "runs",
        sa.Column("uid", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("suite", sa.Text, nullable=False),
        sa.Column("lane", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("exit_code", sa.SmallInteger),
        sa.Column("environment_id", sa.Integer, nullable=False),
        sa.Column("remark_id", sa.Integer, nullable=False),
        sa.UniqueConstraint("uid", name="uq_runs_uid"),
        _foreign("runs", "environment_id", "environments"),
        _foreign("runs", "remark_id", "remarks"),
    )
    op.create_index("ix_runs_position", "runs", ["position"])
    op.create_index("ix_runs_label", "runs", ["label"])
    _numbered(
        "results",
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("scope_id", sa.Integer, nullable=False),
        sa.Column("case_id", sa.Integer, nullable=False),
        sa.Column("build_id", sa.Integer),
        sa.Column("remark_id", sa.Integer),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("origin", sa.String(8)),
        sa.Column("repetitions", sa.Integer, nullable=False),
        sa.Column("accuracy", sa.String(8), nullable=False),
        sa.Column("max_rel_err", FLOAT64),
        sa.Column("reference", FLOAT64),
        sa.Column("seconds", sa.Float(53), nullable=False),
        sa.Column("accepted", sa.BigInteger),
        sa.UniqueConstraint("run_id", "scope_id", name="uq_results_run_id_scope_id"),
        _foreign("results", "run_id", "runs"),
        _foreign("results", "scope_id", "scopes"),
        _foreign("results", "case_id", "cases"),
        _foreign("results", "build_id", "builds"),
        _foreign("results", "remark_id", "remarks"),
    )
    op.create_index("ix_results_scope_id", "results", ["scope_id"])
    accepted = sa.text("accepted IS NOT NULL")
    op.create_index(
        "ix_results_accepted",
        "results",
        ["scope_id", "accepted"],
        sqlite_where=accepted,
        postgresql_where=accepted,
    )
    op.create_table(
        "outputs",
        sa.Column("result_id", sa.Integer, nullable=False),
        sa.Column("place", sa.SmallInteger, nullable=False),
        sa.Column("layout_id", sa.Integer, nullable=False),
        sa.Column("run_hash", HASH64, nullable=False),
        sa.Column("first_bits", sa.Text),
        sa.Column("sequence", sa.LargeBinary),
        sa.PrimaryKeyConstraint("result_id", "place", name="pk_outputs"),
        _foreign("outputs", "result_id", "results"),
        _foreign("outputs", "layout_id", "layouts"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "output_patterns",
        sa.Column("result_id", sa.Integer, nullable=False),
        sa.Column("place", sa.SmallInteger, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("pattern_id", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("result_id", "place", "number", name="pk_output_patterns"),
        sa.ForeignKeyConstraint(
            ["result_id", "place"],
            ["outputs.result_id", "outputs.place"],
            name="fk_output_patterns_result_id_place",
        ),
        _foreign("output_patterns", "pattern_id", "patterns"),
        sqlite_with_rowid=False,
    )
    _numbered(
        "blessings",
        sa.Column("scope_id", sa.Integer, nullable=False),
        sa.Column("result_id", sa.Integer, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("changed", sa.Text, nullable=False),
        sa.Column("blessed_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.CheckConstraint("why <> ''", name=op.f("ck_blessings_has_reason")),
        _foreign("blessings", "scope_id", "scopes"),
        _foreign("blessings", "result_id", "results"),
    )
    op.create_index("ix_blessings_scope_id", "blessings", ["scope_id"])
    op.create_index("ix_blessings_result_id", "blessings", ["result_id"])
    op.create_table(
        "withdrawals",
        sa.Column("blessing_id", sa.Integer, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("withdrawn_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("blessing_id", name="pk_withdrawals"),
        _foreign("withdrawals", "blessing_id", "blessings"),
    )
