"""The tables: what repeats from night to night is stored once by its digest, a result is a few numbers.

They say what queries need and what the migration scripts are tested against. How each database lays them out
(row numbers that are never used twice, tables without a rowid, a partial index) is in the scripts: words for
one database here would load its dialect in every command.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from reprodb.store.types import Digest, Float64, Hash64, UtcTime

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _number(name: str = "id", *of: ForeignKey, kind: type[Integer] = Integer) -> Column[Any]:
    """A part of the primary key."""
    return Column(name, kind, *of, primary_key=True)


def _text(name: str, *, index: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=False, index=index)


def _refers(name: str, to: str, *, needed: bool = True, index: bool = False) -> Column[Any]:
    """The number of a row of another table."""
    return Column(name, ForeignKey(f"{to}.id"), nullable=not needed, index=index)


def _interned(name: str, *columns: Column[Any]) -> Table:
    """A table of rows that are stored once by the digest of what they hold, and never changed."""
    return Table(name, METADATA, _number(), Column("digest", Digest, nullable=False, unique=True), *columns)


# `record` is the canonical JSON of an Environment.
environments = _interned("environments", _text("record"))

# `record` is the canonical JSON of a Kernel with this one case.
cases = _interned("cases", _text("kernel"), _text("name"), _text("input_digest"), _text("record"))

# Bytes stored once, compressed by zlib: code texts and pages of large patterns. `digest` is their SHA-256.
blobs = _interned(
    "blobs", Column("size", Integer, nullable=False), Column("data", LargeBinary, nullable=False)
)

# `record` is the canonical JSON of a Build; `key` its artifact's content key.
builds = _interned(
    "builds",
    _text("key", index=True),
    _text("record"),
    _refers("ptx_id", "blobs", needed=False),
    _refers("sass_id", "blobs", needed=False),
)

# What an output is: `record` is the canonical JSON of its name, role, type, shape and guarantee.
layouts = _interned("layouts", _text("record"))

# Texts of runs and results as JSON: policies, errors, notes.
remarks = _interned("remarks", _text("record"))

# One distinct pattern; `digest` is its SHA-256. Up to a page, `data` holds it. A larger one has the SHA-256
# of each of its pages in `pages`; `kept` says that the pages themselves are in `blobs`.
patterns = _interned(
    "patterns",
    Column("size", BigInteger, nullable=False),
    Column("data", LargeBinary),
    Column("pages", LargeBinary),
    Column("kept", Boolean, nullable=False),
)

_SCOPE = ("kernel", "suite", "case_name", "profile", "arch", "lane", "gpu", "condition_name")
# What a result is a result of. `gpu` is empty on the model.
scopes = Table(
    "scopes",
    METADATA,
    _number(),
    *(_text(name) for name in _SCOPE),
    UniqueConstraint(*_SCOPE, name="uq_scopes"),
)

# One invocation. `position` orders runs (write.next_position); without `finished_at` it is incomplete; the
# remark holds policy, skipped profiles, canaries and what was asked for.
runs = Table(
    "runs",
    METADATA,
    _number(),
    Column("uid", Text, nullable=False, unique=True),
    Column("position", BigInteger, nullable=False, index=True),
    _text("suite"),
    _text("lane"),
    _text("kind"),
    Column("label", Text, index=True),
    Column("started_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    Column("exit_code", SmallInteger),
    _refers("environment_id", "environments"),
    _refers("remark_id", "remarks"),
)

# All that a run learned about a scope. `accepted` is its run's position once it is a reference; the remark
# holds error and notes.
results = Table(
    "results",
    METADATA,
    _number(),
    _refers("run_id", "runs"),
    _refers("scope_id", "scopes", index=True),
    _refers("case_id", "cases"),
    _refers("build_id", "builds", needed=False),
    _refers("remark_id", "remarks", needed=False),
    Column("status", String(16), nullable=False),
    Column("origin", String(8)),
    Column("repetitions", Integer, nullable=False),
    Column("accuracy", String(8), nullable=False),
    Column("max_rel_err", Float64),
    Column("reference", Float64),
    Column("seconds", Float(53), nullable=False),
    Column("accepted", BigInteger),
    UniqueConstraint("run_id", "scope_id"),
)
# Of accepted results alone: the last one of a scope is one step in it.
Index("ix_results_accepted", results.c.scope_id, results.c.accepted)

# A recorded buffer of a result. `sequence` is none where there is one pattern (see sequences).
outputs = Table(
    "outputs",
    METADATA,
    _number("result_id", ForeignKey("results.id")),
    _number("place", kind=SmallInteger),
    _refers("layout_id", "layouts"),
    Column("run_hash", Hash64, nullable=False),
    Column("first_bits", Text),
    Column("sequence", LargeBinary),
)

# The distinct patterns of an output, in order of first appearance.
output_patterns = Table(
    "output_patterns",
    METADATA,
    _number("result_id"),
    _number("place", kind=SmallInteger),
    _number("number"),
    _refers("pattern_id", "patterns"),
    ForeignKeyConstraint(["result_id", "place"], ["outputs.result_id", "outputs.place"]),
)

# Decisions that a result is the baseline of its scope. Rows are only ever added.
blessings = Table(
    "blessings",
    METADATA,
    _number(),
    _refers("scope_id", "scopes", index=True),
    _refers("result_id", "results", index=True),
    _text("who"),
    _text("why"),
    _text("changed"),
    Column("blessed_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    CheckConstraint("why <> ''", name="has_reason"),
)

# The end of a blessing, as a row of its own: history is never rewritten.
withdrawals = Table(
    "withdrawals",
    METADATA,
    _number("blessing_id", ForeignKey("blessings.id")),
    _text("who"),
    _text("why"),
    Column("withdrawn_at", UtcTime, nullable=False),
)
