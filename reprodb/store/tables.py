"""The tables: what repeats from night to night is stored once by its digest, a result is a few numbers."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from reprodb.store.types import Digest, Float64, Hash64, UtcTime

# Rows are never renumbered and numbers never used twice: people write run numbers down, and other
# processes remember the numbers of interned rows.
NUMBERED = {"sqlite_autoincrement": True}


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Interned:
    """A row that is stored once by the digest of what it holds, and never changed."""

    id: Mapped[int] = mapped_column(primary_key=True, sort_order=-2)
    digest: Mapped[str] = mapped_column(Digest, unique=True, sort_order=-1)


class EnvironmentRow(Interned, Base):
    """`record` is the canonical JSON of an Environment."""

    __tablename__ = "environments"
    __table_args__ = (NUMBERED,)
    record: Mapped[str] = mapped_column(Text)


class CaseRow(Interned, Base):
    """`record` is the canonical JSON of a Kernel with this one case."""

    __tablename__ = "cases"
    __table_args__ = (NUMBERED,)
    kernel: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    input_digest: Mapped[str] = mapped_column(Text)
    record: Mapped[str] = mapped_column(Text)


class BlobRow(Interned, Base):
    """Bytes stored once, compressed: code texts and pages of large patterns. `digest` is their SHA-256."""

    __tablename__ = "blobs"
    __table_args__ = (NUMBERED,)
    size: Mapped[int] = mapped_column(Integer)
    data: Mapped[bytes] = mapped_column(LargeBinary)  # zlib


class BuildRow(Interned, Base):
    """`record` is the canonical JSON of a Build; `key` its artifact's content key."""

    __tablename__ = "builds"
    __table_args__ = (NUMBERED,)
    key: Mapped[str] = mapped_column(Text, index=True)
    record: Mapped[str] = mapped_column(Text)
    ptx_id: Mapped[int | None] = mapped_column(ForeignKey("blobs.id"))
    sass_id: Mapped[int | None] = mapped_column(ForeignKey("blobs.id"))


class LayoutRow(Interned, Base):
    """What an output is: `record` is the canonical JSON of its name, role, type, shape and guarantee."""

    __tablename__ = "layouts"
    __table_args__ = (NUMBERED,)
    record: Mapped[str] = mapped_column(Text)


class RemarkRow(Interned, Base):
    """Texts of runs and results as JSON: policies, errors, notes."""

    __tablename__ = "remarks"
    __table_args__ = (NUMBERED,)
    record: Mapped[str] = mapped_column(Text)


class PatternRow(Interned, Base):
    """One distinct pattern; `digest` is its SHA-256.

    Up to a page, `data` holds it. A larger one has the SHA-256 of each of its pages in `pages`; `kept` says
    that the pages themselves are in `blobs`.
    """

    __tablename__ = "patterns"
    __table_args__ = (NUMBERED,)
    size: Mapped[int] = mapped_column(BigInteger)
    data: Mapped[bytes | None] = mapped_column(LargeBinary)
    pages: Mapped[bytes | None] = mapped_column(LargeBinary)
    kept: Mapped[bool]


class ScopeRow(Base):
    """What a result is a result of. `gpu` is empty on the model."""

    __tablename__ = "scopes"
    id: Mapped[int] = mapped_column(primary_key=True)
    kernel: Mapped[str] = mapped_column(Text)
    suite: Mapped[str] = mapped_column(Text)
    case_name: Mapped[str] = mapped_column(Text)
    profile: Mapped[str] = mapped_column(Text)
    arch: Mapped[str] = mapped_column(Text)
    lane: Mapped[str] = mapped_column(Text)
    gpu: Mapped[str] = mapped_column(Text)
    condition_name: Mapped[str] = mapped_column(Text)
    __table_args__ = (
        UniqueConstraint(
            "kernel", "suite", "case_name", "profile", "arch", "lane", "gpu", "condition_name",
            name="uq_scopes",
        ),
        NUMBERED,
    )  # fmt: skip


class RunRow(Base):
    """One invocation. `position` orders runs; see write.next_position."""

    __tablename__ = "runs"
    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(Text, unique=True)
    position: Mapped[int] = mapped_column(BigInteger, index=True)
    suite: Mapped[str] = mapped_column(Text)
    lane: Mapped[str] = mapped_column(Text)
    kind: Mapped[str] = mapped_column(Text)
    label: Mapped[str | None] = mapped_column(Text, index=True)
    started_at: Mapped[datetime] = mapped_column(UtcTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)  # none: incomplete
    exit_code: Mapped[int | None] = mapped_column(SmallInteger)
    environment_id: Mapped[int] = mapped_column(ForeignKey("environments.id"))
    remark_id: Mapped[int] = mapped_column(ForeignKey("remarks.id"))  # policy and skipped profiles
    __table_args__ = (NUMBERED,)


class ResultRow(Base):
    """All that a run learned about a scope. `accepted` is its run's position once it is a reference."""

    __tablename__ = "results"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    scope_id: Mapped[int] = mapped_column(ForeignKey("scopes.id"))
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id"))
    build_id: Mapped[int | None] = mapped_column(ForeignKey("builds.id"))
    remark_id: Mapped[int | None] = mapped_column(ForeignKey("remarks.id"))  # error, notes
    status: Mapped[str] = mapped_column(String(16))
    origin: Mapped[str | None] = mapped_column(String(8))
    repetitions: Mapped[int]
    accuracy: Mapped[str] = mapped_column(String(8))
    max_rel_err: Mapped[float | None] = mapped_column(Float64)
    reference: Mapped[float | None] = mapped_column(Float64)
    seconds: Mapped[float] = mapped_column(Float(53))
    accepted: Mapped[int | None] = mapped_column(BigInteger)
    __table_args__ = (
        UniqueConstraint("run_id", "scope_id"),
        Index("ix_results_scope_id", "scope_id"),
        NUMBERED,
    )


# The last accepted result of a scope is one step in this index.
Index(
    "ix_results_accepted",
    ResultRow.scope_id,
    ResultRow.accepted,
    sqlite_where=ResultRow.accepted.is_not(None),
    postgresql_where=ResultRow.accepted.is_not(None),
)


class OutputRow(Base):
    """A recorded buffer of a result. `sequence` is none where there is one pattern (see sequences)."""

    __tablename__ = "outputs"
    result_id: Mapped[int] = mapped_column(ForeignKey("results.id"), primary_key=True)
    place: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    layout_id: Mapped[int] = mapped_column(ForeignKey("layouts.id"))
    run_hash: Mapped[int] = mapped_column(Hash64)
    first_bits: Mapped[str | None] = mapped_column(Text)
    sequence: Mapped[bytes | None] = mapped_column(LargeBinary)
    __table_args__ = ({"sqlite_with_rowid": False},)


class OutputPatternRow(Base):
    """The distinct patterns of an output, in order of first appearance."""

    __tablename__ = "output_patterns"
    result_id: Mapped[int] = mapped_column(primary_key=True)
    place: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    pattern_id: Mapped[int] = mapped_column(ForeignKey("patterns.id"))
    __table_args__ = (
        ForeignKeyConstraint(["result_id", "place"], ["outputs.result_id", "outputs.place"]),
        {"sqlite_with_rowid": False},
    )


class BlessingRow(Base):
    """A decision that a result is the baseline of its scope. Rows are only ever added."""

    __tablename__ = "blessings"
    id: Mapped[int] = mapped_column(primary_key=True)
    scope_id: Mapped[int] = mapped_column(ForeignKey("scopes.id"), index=True)
    result_id: Mapped[int] = mapped_column(ForeignKey("results.id"), index=True)
    who: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text)
    changed: Mapped[str] = mapped_column(Text)
    blessed_at: Mapped[datetime] = mapped_column(UtcTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcTime)
    __table_args__ = (CheckConstraint("why <> ''", name="has_reason"), NUMBERED)


class WithdrawalRow(Base):
    """The end of a blessing, as a row of its own: history is never rewritten."""

    __tablename__ = "withdrawals"
    blessing_id: Mapped[int] = mapped_column(ForeignKey("blessings.id"), primary_key=True)
    who: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text)
    withdrawn_at: Mapped[datetime] = mapped_column(UtcTime)
