"""Integer and bit operations of PTX on Python ints that hold a register's bits."""

from __future__ import annotations

from tests.model.reference.errors import Refused, Trap


def mask(width: int) -> int:
    return (1 << width) - 1


def signed(a: int, width: int) -> int:
    """The two's complement value of the low `width` bits."""
    a &= mask(width)
    return a - (1 << width) if a >> (width - 1) else a


def quotient(a: int, b: int) -> int:
    """C's division: toward zero."""
    if b == 0:
        raise Trap("division by zero, whose result PTX does not define")
    q = abs(a) // abs(b)
    return -q if (a < 0) != (b < 0) else q


def remainder(a: int, b: int) -> int:
    return a - quotient(a, b) * b


def shift_left(a: int, n: int, width: int) -> int:
    return (a << n) & mask(width) if n < width else 0


def shift_right(a: int, n: int) -> int:
    """For a signed value: by the width or more leaves the sign."""
    return a >> min(n, 64)


def funnel(a: int, b: int, n: int, left: bool, clamp: bool) -> int:
    n = min(n, 32) if clamp else n & 31
    both = (b & mask(32)) << 32 | (a & mask(32))
    return (both >> (32 - n) if left else both >> n) & mask(32)


def extract(a: int, position: int, length: int, width: int, is_signed: bool) -> int:
    """bfe: beyond the top comes the sign, or 0.

    Position and length of 32-bit fields are their low bytes; ptxas cuts nothing off those of 64-bit ones.
    """
    if width == 32:
        position, length = position & 0xFF, length & 0xFF
    fill = 0
    if is_signed and length:
        fill = a >> min(position + length - 1, width - 1) & 1
    result = 0
    for i in range(width):
        inside = i < length and position + i < width
        result |= (a >> (position + i) & 1 if inside else fill) << i
    return result


def insert(a: int, b: int, position: int, length: int, width: int) -> int:
    position, length = position & 0xFF, length & 0xFF
    for i in range(length):
        if position + i < width:
            bit = 1 << (position + i)
            b = b | bit if a >> i & 1 else b & ~bit
    return b


def find_top(a: int, width: int, is_signed: bool, shift_amount: bool) -> int:
    """bfind: the top bit that differs from the sign, all ones where there is none."""
    if is_signed and a >> (width - 1) & 1:
        a = ~a & mask(width)
    if a == 0:
        return mask(32)
    top = a.bit_length() - 1
    return width - 1 - top if shift_amount else top


def lop3(a: int, b: int, c: int, table: int) -> int:
    result = 0
    for i in range(32):
        row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)
        result |= (table >> row & 1) << i
    return result


def permute(a: int, b: int, c: int, mode: str) -> int:
    pool = [(b << 32 | a) >> 8 * i & 0xFF for i in range(8)]
    n = c & 3
    if mode == "":
        chosen = []
        for i in range(4):
            selector = c >> 4 * i & 0xF
            byte = pool[selector & 7]
            chosen.append((0xFF if byte & 0x80 else 0) if selector & 8 else byte)
    else:
        rows = {
            "f4e": [n, n + 1, n + 2, n + 3],
            "b4e": [n, (n - 1) & 7, (n - 2) & 7, (n - 3) & 7],
            "rc8": [n, n, n, n],
            "ecl": [max(n, 0), max(n, 1), max(n, 2), 3],
            "ecr": [0, min(n, 1), min(n, 2), min(n, 3)],
            "rc16": [2 * (n & 1), 2 * (n & 1) + 1] * 2,
        }
        chosen = [pool[i] for i in rows[mode]]
    return sum(byte << 8 * i for i, byte in enumerate(chosen))


def reverse(a: int, width: int) -> int:
    return int(f"{a:0{width}b}"[::-1], 2)


def dot_bytes(a: int, b: int, c: int, *, a_signed: bool, b_signed: bool) -> int:
    """dp4a: four products of bytes, added to c."""

    def byte(v: int, i: int, s: bool) -> int:
        return signed(v >> 8 * i, 8) if s else v >> 8 * i & 0xFF

    return c + sum(byte(a, i, a_signed) * byte(b, i, b_signed) for i in range(4))


def dot_halves(a: int, b: int, c: int, *, a_signed: bool, b_signed: bool, high: bool) -> int:
    """dp2a: two products of a's halves and two of b's bytes, added to c."""
    for i in range(2):
        half = signed(a >> 16 * i, 16) if a_signed else a >> 16 * i & 0xFFFF
        shift = 8 * (i + (2 if high else 0))
        byte = signed(b >> shift, 8) if b_signed else b >> shift & 0xFF
        c += half * byte
    return c


def compare(relation: str, a: int, b: int, width: int, is_signed: bool) -> bool:
    x, y = (signed(a, width), signed(b, width)) if is_signed else (a, b)
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(relation, relation)
    table = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    if name not in table:
        raise Refused(f"the relation {relation!r} of integers")
    return table[name]
