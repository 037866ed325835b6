"""LLVM IR as text: values of one lane or 32, and a builder that names what it writes.

Emitters are polymorphic in the number of lanes: the same lines compute one scalar (a value that every
thread of a block shares) or a vector of 32. No fast-math flag is ever written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WARP = 32

BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128, "float": 32, "double": 64, "ptr": 64}
_SUFFIX = {"float": "f32", "double": "f64", "ptr": "p0"}


class Value(NamedTuple):
    """An LLVM value: element type, lanes (1 or 32), and the text that names it."""

    kind: str
    lanes: int
    text: str

    @property
    def type(self) -> str:
        return type_of(self.kind, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def bits(self) -> int:
        return BITS[self.kind]


def type_of(kind: str, lanes: int) -> str:
    """`i32`, or `<32 x i32>`."""
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def const(kind: str, value: int, lanes: int = 1) -> Value:
    """An integer constant, wrapped to its width."""
    bits = BITS[kind]
    value &= (1 << bits) - 1
    text = ("true" if value else "false") if bits == 1 else str(value)
    return Value(kind, lanes, text if lanes == 1 else f"splat ({kind} {text})")


def vector(kind: str, values: Sequence[int]) -> Value:
    """A constant vector of 32 integers."""
    return Value(kind, WARP, "<" + ", ".join(f"{kind} {v}" for v in values) + ">")


class Code:
    """The lines of one LLVM function, and the declarations and helpers that they need."""

    def __init__(self, helpers: Helpers) -> None:
        self.lines: list[str] = []
        self.helpers = helpers
        self._names = 0

    # Text.

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def fresh(self, stem: str) -> str:
        """A label that nothing else has."""
        self._names += 1
        return f"{stem}.{self._names}"

    def define(self, text: str, kind: str, lanes: int = 1) -> Value:
        """`%n = text`, as a value of that type."""
        self._names += 1
        name = f"%v{self._names}"
        self.lines.append(f"  {name} = {text}")
        return Value(kind, lanes, name)

    # Instructions.

    def op(self, name: str, a: Value, b: Value) -> Value:
        """A binary operation of two values of one type: `add`, `fmul`, `lshr`, …"""
        return self.define(f"{name} {a.typed}, {b.text}", a.kind, a.lanes)

    def neg(self, a: Value) -> Value:
        return self.op("sub", self.const(a, 0), a)

    def inv(self, a: Value) -> Value:
        return self.op("xor", a, self.const(a, -1))

    def cmp(self, name: str, a: Value, b: Value) -> Value:
        """`icmp ult`, `fcmp uno`, …: an i1 for every lane."""
        return self.define(f"{name} {a.typed}, {b.text}", "i1", a.lanes)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        if condition.lanes != a.lanes:
            condition = self.splat(condition, a.lanes)
        return self.define(f"select {condition.typed}, {a.typed}, {b.typed}", a.kind, a.lanes)

    def cast(self, name: str, a: Value, kind: str) -> Value:
        """`zext`, `bitcast`, `fptrunc`, …; nothing where the type is that already."""
        if a.kind == kind:
            return a
        return self.define(f"{name} {a.typed} to {type_of(kind, a.lanes)}", kind, a.lanes)

    def resize(self, a: Value, kind: str, *, signed: bool = False) -> Value:
        """An integer of another width: cut, or extended with zeros or the sign."""
        if BITS[kind] < a.bits:
            return self.cast("trunc", a, kind)
        return self.cast("sext" if signed else "zext", a, kind)

    def const(self, like: Value, value: int) -> Value:
        """An integer constant of the type of `like`."""
        return const(like.kind, value, like.lanes)

    def splat(self, a: Value, lanes: int = WARP) -> Value:
        """A scalar repeated in every lane; a vector as it is."""
        if a.lanes == lanes:
            return a
        if not a.text.startswith("%"):
            return Value(a.kind, lanes, f"splat ({a.kind} {a.text})")
        wide = type_of(a.kind, lanes)
        first = self.define(f"insertelement {wide} poison, {a.typed}, i64 0", a.kind, lanes)
        zero = f"<{lanes} x i32> zeroinitializer"
        return self.define(f"shufflevector {first.typed}, {wide} poison, {zero}", a.kind, lanes)

    def intrinsic(self, name: str, a: Value, *rest: Value) -> Value:
        """`llvm.<name>` overloaded on the type of its first argument, which is its result's too."""
        suffix = _SUFFIX.get(a.kind, a.kind)
        full = f"llvm.{name}.{suffix}" if a.lanes == 1 else f"llvm.{name}.v{a.lanes}{suffix}"
        values = (a, *rest)
        self.helpers.declare(f"declare {a.type} @{full}({', '.join(v.type for v in values)})")
        arguments = ", ".join(v.typed for v in values)
        return self.define(f"call {a.type} @{full}({arguments})", a.kind, a.lanes)

    def call(self, name: str, kind: str, lanes: int, *values: Value) -> Value:
        """A call of a helper function."""
        arguments = ", ".join(v.typed for v in values)
        return self.define(f"call {type_of(kind, lanes)} @{name}({arguments})", kind, lanes)

    def invoke(self, name: str, *values: Value) -> None:
        """A call of a helper function that returns nothing."""
        self.line(f"call void @{name}({', '.join(v.typed for v in values)})")

    # Memory of the engine itself. Alignment is always stated.

    def at(self, base: Value, offset: int | Value) -> Value:
        if isinstance(offset, int):
            if offset == 0:
                return base
            offset = const("i64", offset)
        return self.define(f"getelementptr i8, ptr {base.text}, {offset.typed}", "ptr")

    def load(self, kind: str, address: Value, lanes: int = 1, align: int | None = None) -> Value:
        align = align or max(1, BITS[kind] // 8)
        return self.define(f"load {type_of(kind, lanes)}, ptr {address.text}, align {align}", kind, lanes)

    def store(self, value: Value, address: Value, align: int | None = None) -> None:
        align = align or max(1, value.bits // 8)
        self.line(f"store {value.typed}, ptr {address.text}, align {align}")

    # Masks: an i1 of every lane as the bits of an i32, and back.

    def bits(self, mask: Value) -> Value:
        return self.define(f"bitcast {mask.typed} to i32", "i32")

    def lanes_of(self, bits: Value) -> Value:
        return self.define(f"bitcast i32 {bits.text} to <32 x i1>", "i1", WARP)

    # Control.

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: Value, yes: str, no: str) -> None:
        self.line(f"br i1 {condition.text}, label %{yes}, label %{no}")


class Helpers:
    """Declarations and helper functions of a module, each once, in the order of first need."""

    def __init__(self, *, fma: bool) -> None:
        self.fma = fma  # the CPU has fused multiply-add
        self._declared: dict[str, None] = {}
        self._defined: dict[str, str] = {}

    def declare(self, text: str) -> None:
        self._declared.setdefault(text)

    def function(self, name: str, text: str) -> str:
        """Adds the helper function `name` with that text, unless it is there; returns its name."""
        self._defined.setdefault(name, text)
        return name

    def known(self, name: str) -> bool:
        return name in self._defined

    @property
    def text(self) -> str:
        return "\n".join((*self._defined.values(), *self._declared))
