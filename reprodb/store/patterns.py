"""Patterns in the database: each distinct one once, large ones in pages, the largest as page digests only."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, select, update

from reprodb.digest import sha256
from reprodb.errors import StoreError
from reprodb.store import tables as t
from reprodb.store.intern import Known, batches, intern, intern_blobs

PAGE = 64 << 10  # bytes: a pattern up to this size lies in its row
LARGEST_KEPT = 16 << 20  # bytes: a larger one leaves its page digests only, unless it is to be kept
_DIGEST = 32
_PAGES_AT_ONCE = 256


def write_patterns(
    connection: Connection, known: Known, patterns: Mapping[str, bytes | None], *, keep: bool = False
) -> dict[str, int]:
    """The row number of each pattern by SHA-256, stored where it is new.

    `keep` keeps the pages of patterns larger than 16 MiB too. Raises StoreError where data does not fit its
    digest, or is left out and the database has no such pattern.
    """
    for digest, data in patterns.items():
        if data is not None and sha256(data) != digest:
            raise StoreError(f"pattern {digest} has other data than its SHA-256 says")
    large = {d: data for d, data in patterns.items() if data is not None and len(data) > PAGE}
    kept = {d for d, data in large.items() if keep or len(data) <= LARGEST_KEPT}

    def columns(digest: str) -> dict[str, Any]:
        data = patterns[digest]
        if data is None:
            raise StoreError(f"pattern {digest} has no data here and is not in the database")
        if digest not in large:
            return {"size": len(data), "data": data, "pages": None, "kept": True}
        if digest in kept:
            write_pages(connection, known, data)
        return {"size": len(data), "data": None, "pages": page_digests(data), "kept": digest in kept}

    numbers = intern(connection, known, t.patterns, patterns.keys(), columns)
    for digest in sorted(kept):
        number = numbers[digest]
        if not connection.scalar(select(t.patterns.c.kept).where(t.patterns.c.id == number)):
            write_pages(connection, known, large[digest])
            connection.execute(update(t.patterns).where(t.patterns.c.id == number).values(kept=True))
    return numbers


def write_unkept(connection: Connection, known: Known, sizes: Mapping[str, tuple[int, bytes]]) -> None:
    """Patterns of which only size and page digests are known, as a bundle brings them."""

    def columns(digest: str) -> dict[str, Any]:
        size, pages = sizes[digest]
        return {"size": size, "data": None, "pages": pages, "kept": False}

    intern(connection, known, t.patterns, sizes.keys(), columns)


def page_digests(data: bytes) -> bytes:
    """The SHA-256 of each page of 64 KiB, one after the other."""
    return b"".join(bytes.fromhex(sha256(data[i : i + PAGE])) for i in range(0, len(data), PAGE))


def write_pages(connection: Connection, known: Known, data: bytes) -> None:
    """The pages as blobs, some at a time so that a large pattern costs no second copy of itself."""
    step = PAGE * _PAGES_AT_ONCE
    for start in range(0, len(data), step):
        pages = [data[i : i + PAGE] for i in range(start, min(start + step, len(data)), PAGE)]
        # Sums of floats hardly compress; zeros and poison do at any level.
        intern_blobs(connection, known, {sha256(page): page for page in pages}, level=1)


def read_patterns(connection: Connection, digests: Iterable[str]) -> dict[str, bytes]:
    """The bytes of each pattern. Raises StoreError for one that is unknown or was not kept."""
    wanted = list(dict.fromkeys(digests))
    found: dict[str, bytes] = {}
    for batch in batches(wanted):
        query = select(
            t.patterns.c.digest, t.patterns.c.size, t.patterns.c.data, t.patterns.c.pages, t.patterns.c.kept
        )
        for digest, size, data, pages, kept in connection.execute(
            query.where(t.patterns.c.digest.in_(batch))
        ):
            if data is not None:
                found[digest] = bytes(data)
            elif kept and pages is not None:
                found[digest] = join_pages(connection, digest, pages)
            else:
                raise StoreError(
                    f"pattern {digest} ({size} bytes) was not kept: the database has its page digests only",
                    remedy="record it again with --keep",
                )
    missing = [digest for digest in wanted if digest not in found]
    if missing:
        raise StoreError(f"the database has no pattern {missing[0]}")
    return found


def join_pages(connection: Connection, digest: str, pages: bytes) -> bytes:
    """The pattern whose pages have these digests."""
    order = split_digests(pages)
    blobs = read_blobs(connection, order)
    try:
        return b"".join(blobs[page] for page in order)
    except KeyError as error:
        raise StoreError(
            f"pattern {digest} lacks its page {error.args[0]}", remedy="reprodb db check"
        ) from None


def read_blobs(connection: Connection, digests: Iterable[str]) -> dict[str, bytes]:
    """The inflated bytes of those blobs that the database has. Raises StoreError for a damaged one."""
    found = {}
    for batch in batches(list(dict.fromkeys(digests))):
        query = select(t.blobs.c.digest, t.blobs.c.size, t.blobs.c.data).where(t.blobs.c.digest.in_(batch))
        for digest, size, data in connection.execute(query):
            found[digest] = inflate(digest, size, data)
    return found


def inflate(digest: str, size: int, data: bytes) -> bytes:
    """A blob's bytes, never more than its size says."""
    try:
        raw = zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise StoreError(f"blob {digest} does not inflate: {error}", remedy="reprodb db check") from None
    if len(raw) != size:
        raise StoreError(f"blob {digest} has {len(raw)} bytes, not {size}", remedy="reprodb db check")
    return raw


def split_digests(pages: bytes) -> tuple[str, ...]:
    """The hex digests of the stored page digests."""
    return tuple(pages[i : i + _DIGEST].hex() for i in range(0, len(pages), _DIGEST))
