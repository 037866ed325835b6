"""PTX as frozen values: modules, functions, variables and instructions with their lines."""

from __future__ import annotations

from dataclasses import dataclass, field

# --- Operands ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reg:
    """A register of the function, or a special register such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Int:
    """An integer constant, any width, signed as written."""

    value: int


@dataclass(frozen=True, slots=True)
class Float:
    """A floating constant: its bits and width (32 for `0f…`, 64 for `0d…` and decimal)."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Sym:
    """A name that is no register: a variable, a label, a function or a table of labels."""

    name: str


@dataclass(frozen=True, slots=True)
class Mem:
    """`[base+offset]`; `extra` holds coordinates of texture operands, which nothing here executes."""

    base: Reg | Sym | Int
    offset: int = 0
    extra: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vec:
    """`{a, b}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two destinations. `_` is `Sink`."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    """`!p`, a negated predicate."""

    operand: Reg


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`, a destination that nobody reads."""


@dataclass(frozen=True, slots=True)
class Args:
    """`(a, b)`: the results or arguments of a call."""

    items: tuple[Operand, ...]


Operand = Reg | Int | Float | Sym | Mem | Vec | Pair | Not | Sink | Args

# --- Statements --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """Where an instruction comes from by `.loc`: file and line; the column tells its statements apart.

    `root` is the statement outside of all inlined functions, None where this is no inlined code.
    """

    file: str
    line: int
    column: int = field(default=0, compare=False)
    root: Source | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p` before an instruction."""

    register: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `opcode` with all its modifiers, operands as written, and its PTX line."""

    opcode: str
    operands: tuple[Operand, ...]
    line: int
    guard: Guard | None = None
    source: Source | None = None

    @property
    def base(self) -> str:
        """The opcode without modifiers: `fma` of `fma.rn.f32`."""
        return self.opcode.split(".", 1)[0]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.opcode.split("."))

    @property
    def where(self) -> str:
        """`PTX line 88`, with the source line where the compiler gave one."""
        return f"PTX line {self.line}" + (f" ({self.source})" if self.source else "")


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target."""

    name: str
    line: int


Statement = Instruction | Label


@dataclass(frozen=True, slots=True)
class Variable:
    """A declared variable or parameter in a state space; `nbytes` is 0 for `extern … []`.

    `data` holds the initial bytes where there is an initialiser; `relocations` are addresses of other
    variables in it: (byte offset, name, addend, generic).
    """

    name: str
    space: str  # global | const | shared | local | param
    type: str  # element type: f32, b8, …
    align: int
    nbytes: int
    line: int
    data: bytes | None = None
    relocations: tuple[tuple[int, str, int, bool], ...] = ()
    extern: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """An `.entry` or `.func`. Names of inner scopes are made unique; `body` is flat.

    `registers` maps names to types; `variables` are the function's own shared, local and param variables;
    `tables` maps names of `.branchtargets` lists to labels. A declaration without a body has `body` None.
    """

    name: str
    entry: bool
    params: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    registers: dict[str, str]
    variables: tuple[Variable, ...]
    tables: dict[str, tuple[str, ...]]
    body: tuple[Statement, ...] | None
    line: int
    directives: tuple[str, ...] = ()

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return tuple(s for s in self.body or () if isinstance(s, Instruction))


@dataclass(frozen=True, slots=True)
class Module:
    """A translation unit. `functions` and `variables` keep the order of the text."""

    version: str
    target: str
    functions: tuple[Function, ...]
    variables: tuple[Variable, ...]

    def function(self, name: str) -> Function | None:
        """The function of that name that has a body."""
        return next((f for f in self.functions if f.name == name and f.body is not None), None)


TYPE_BYTES = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1,
    "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "f32x2": 8,
    "b128": 16, "texref": 8, "samplerref": 8, "surfref": 8,
}  # fmt: skip


def parse(text: str) -> Module:
    """The module of a PTX text. Text that is no PTX known here raises UnsupportedError with its line."""
    from reprodb.executors.model import parser

    return parser.parse(text)
