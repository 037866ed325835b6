"""Column types for what databases would bend: digests, 64-bit hashes, floats to the bit, and UTC times."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import LargeBinary, String
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Digest(TypeDecorator[str]):
    """A hex SHA-256 as its 32 bytes."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> bytes | None:
        return None if value is None else bytes.fromhex(value)

    def process_result_value(self, value: Any, dialect: Any) -> str | None:
        return None if value is None else bytes(value).hex()


class Hash64(TypeDecorator[int]):
    """An unsigned 64-bit hash as 8 bytes, big endian: it overflows a database's signed integer."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Any) -> bytes | None:
        return None if value is None else value.to_bytes(8, "big")

    def process_result_value(self, value: Any, dialect: Any) -> int | None:
        return None if value is None else int.from_bytes(value, "big")


class Float64(TypeDecorator[float]):
    """A float64 as its 8 bytes, big endian: SQLite turns NaN into NULL and loses the sign of zero."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Any) -> bytes | None:
        return None if value is None else struct.pack(">d", value)

    def process_result_value(self, value: Any, dialect: Any) -> float | None:
        if value is None:
            return None
        number: float = struct.unpack(">d", value)[0]
        return number


class UtcTime(TypeDecorator[datetime]):
    """A time in UTC as text of fixed width (`2026-01-31T23:59:00.000000Z`), so that text sorts as time."""

    impl = String(27)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> str | None:
        return None if value is None else utc_text(value)

    def process_result_value(self, value: Any, dialect: Any) -> datetime | None:
        return None if value is None else utc_time(value)


def utc_text(value: datetime) -> str:
    """The time as text; it must know its zone."""
    if value.tzinfo is None:
        raise ValueError(f"the time {value} has no zone")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def utc_time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def microseconds(value: datetime) -> int:
    """Whole microseconds since 1970, exactly."""
    delta = value - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
