"""PTX text → functions of instructions, by tokens. Small on purpose: what it does not know it refuses."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.model.reference.errors import Refused

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<string>"[^"]*")
      | (?P<name>[.%$A-Za-z_](?:[\w$.%]|::)*)
      | (?P<number>0[fFdD][0-9A-Fa-f]+|0[xX][0-9A-Fa-f]+U?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+U?)
      | (?P<sign>[{}()\[\]<>,;:@!|+=-])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Operand:
    """`kind` is reg, imm, sym, mem, vec, pair, not or sink; the other fields serve it as it needs them."""

    kind: str
    text: str = ""
    offset: int = 0
    items: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Ins:
    op: str  # the first word: ld, setp, …
    mods: tuple[str, ...]  # the words after it
    args: tuple[Operand, ...]
    guard: str = ""  # the predicate register, "" for none
    unless: bool = False  # the guard is negated
    text: str = ""

    @property
    def type(self) -> str:
        return self.mods[-1]


@dataclass
class Variable:
    name: str
    space: str  # global, const, shared, local, param
    size: int
    align: int
    data: bytes = b""
    extern: bool = False


@dataclass
class Function:
    name: str
    entry: bool
    params: list[Variable] = field(default_factory=list)
    results: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)  # name or "name<" for a numbered family → type
    variables: list[Variable] = field(default_factory=list)
    code: list[Ins] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of brx.idx

    def type_of(self, register: str) -> str:
        if register in self.registers:
            return self.registers[register]
        return self.registers[register.rstrip("0123456789") + "<"]


@dataclass
class Module:
    functions: dict[str, Function] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)


BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4,
    "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "pred": 1,
}  # fmt: skip


def parse(text: str) -> Module:
    return _Parser(_tokens(text)).module()


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    text = re.sub(r"^\s*\.(loc|file)\b.*$", "", text, flags=re.MULTILINE)
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise Refused(f"cannot read {text[at : at + 20]!r}")
        if match.lastgroup != "space":
            found.append(match[0])
        at = match.end()
    return found


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.scopes: list[dict[str, str]] = []  # names of inner scopes → their names in the function
        self.scope_count = 0
        self.inner_registers: set[str] = set()

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if not token or (wanted and token != wanted):
            raise Refused(f"expected {wanted or 'more'!r}, found {token!r}")
        self.at += 1
        return token

    def until(self, end: str) -> list[str]:
        words = []
        while self.peek() != end:
            words.append(self.take())
        self.take(end)
        return words

    # --- The module ---

    def module(self) -> Module:
        module = Module()
        while self.peek():
            word = self.peek()
            if word in (".version", ".target", ".address_size"):
                self.take()
                self.take()
                while self.peek() == ",":
                    self.take()
                    self.take()
            elif word in (".visible", ".weak", ".common"):
                self.take()
            elif word == ".extern" and self.peek(1) == ".func":
                self.until(";")
            elif word in (".entry", ".func"):
                function = self.function()
                if function is not None:
                    module.functions[function.name] = function
            elif word == ".section":
                self.until("{")
                self.until("}")
            else:
                module.variables += self.variables()
        return module

    def variables(self) -> list[Variable]:
        extern = self.peek() == ".extern"
        if extern:
            self.take()
        space = self.take()
        if space not in (".global", ".const", ".shared", ".local", ".param"):
            raise Refused(f"cannot read a declaration that starts with {space!r}")
        found = [self.variable(space[1:], extern)]
        self.take(";")
        return found

    def variable(self, space: str, extern: bool = False) -> Variable:
        """`.align 4 .b8 name[16] = {…}`; the caller has read the space."""
        align, type_ = 0, ""
        while self.peek().startswith("."):
            word = self.take()
            if word == ".align":
                align = int(self.take())
            elif word[1:] in BYTES:
                type_ = word[1:]
            elif word not in (".ptr", ".global", ".shared", ".const", ".local"):
                raise Refused(f"cannot read {word!r} in a declaration")
        name = self.take()
        count = 1
        while self.peek() == "[":
            self.take()
            count *= int(self.take()) if self.peek() != "]" else 0
            self.take("]")
        data = b""
        if self.peek() == "=":
            self.take()
            data = self.initial(BYTES[type_])
        size = count * BYTES[type_]
        return Variable(name, space, size, align or BYTES[type_], data.ljust(size, b"\0"), extern)

    def initial(self, width: int) -> bytes:
        if self.peek() == "{":
            self.take()
            data = b""
            while self.peek() != "}":
                data += self.initial(width)
                if self.peek() == ",":
                    self.take()
            self.take("}")
            return data
        minus = self.peek() == "-"
        if minus:
            self.take()
        word = self.take()
        if not word[0].isdigit():
            raise Refused(f"the address of {word!r} in an initialiser")
        value = int(word[2:], 16) if word[:2].lower() in ("0f", "0d") else int(word.rstrip("U"), 0)
        return ((-value if minus else value) & ((1 << 8 * width) - 1)).to_bytes(width, "little")

    # --- Functions ---

    def function(self) -> Function | None:
        entry = self.take() == ".entry"
        results = self.parameters() if self.peek() == "(" else []
        function = Function(self.take(), entry, results=results)
        if self.peek() == "(":
            function.params = self.parameters()
        while self.peek().startswith("."):  # .maxntid 256, 1, 1 and the like, .noreturn
            self.take()
            while self.peek()[:1].isdigit() or self.peek() == ",":
                self.take()
        if self.peek() == ";":  # a declaration of what is defined below
            self.take()
            return None
        self.take("{")
        self.body(function)
        return function

    def parameters(self) -> list[Variable]:
        self.take("(")
        found = []
        while self.peek() != ")":
            self.take(".param")
            found.append(self.variable("param"))
            if self.peek() == ",":
                self.take()
        self.take(")")
        return found

    def body(self, function: Function) -> None:
        """Statements up to the closing brace; an inner scope's names are made unique."""
        while self.peek() != "}":
            word = self.peek()
            if word == "{":
                self.take()
                self.scopes.append({})
                self.scope_count += 1
                self.body(function)
                self.scopes.pop()
            elif word == ".reg":
                self.registers(function)
            elif word == ".pragma":
                self.until(";")
            elif word.startswith(".") and word not in (".branchtargets", ".callprototype"):
                for variable in self.variables():
                    variable.name = self.declare(variable.name)
                    function.variables.append(variable)
            elif self.peek(1) == ":":
                self.label(function)
            else:
                function.code.append(self.instruction())
        self.take("}")

    def declare(self, name: str) -> str:
        if not self.scopes:
            return name
        self.scopes[-1][name] = f"{name}#{self.scope_count}"
        return self.scopes[-1][name]

    def resolve(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
            family = name.rstrip("0123456789")
            if family + "<" in scope:
                return scope[family + "<"][:-1] + name[len(family) :]
        return name

    def registers(self, function: Function) -> None:
        self.take(".reg")
        type_ = self.take()[1:]
        if type_ not in BYTES:
            raise Refused(f"registers of type {type_!r}")
        while True:
            name = self.take()
            if self.peek() == "<":
                self.until(">")
                if self.scopes:
                    # `%f<3>` of scope 7 becomes `%f#7_<`, so that `%f2` resolves to `%f#7_2`.
                    self.scopes[-1][name + "<"] = f"{name}#{self.scope_count}_<"
                    name = f"{name}#{self.scope_count}_"
                function.registers[name + "<"] = type_
            else:
                name = self.declare(name)
                self.inner_registers.add(name)
                function.registers[name] = type_
            if self.take() == ";":
                return

    def label(self, function: Function) -> None:
        name = self.take()
        self.take(":")
        if self.peek() == ".branchtargets":
            self.take()
            function.tables[name] = tuple(w for w in self.until(";") if w != ",")
        elif self.peek() == ".callprototype":
            self.until(";")
        else:
            function.labels[name] = len(function.code)

    def instruction(self) -> Ins:
        start = self.at
        guard, unless = "", False
        if self.peek() == "@":
            self.take()
            unless = self.peek() == "!"
            if unless:
                self.take()
            guard = self.resolve(self.take())
        words = self.take().split(".")
        args = []
        while self.peek() != ";":
            args.append(self.operand())
            if self.peek() == ",":
                self.take()
        self.take(";")
        text = " ".join(self.tokens[start : self.at])
        return Ins(words[0], tuple(words[1:]), tuple(args), guard, unless, text)

    def operand(self) -> Operand:
        word = self.take()
        if word == "!":
            return Operand("not", items=(self.operand(),))
        if word in ("{", "("):
            items = []
            while self.peek() not in ("}", ")"):
                items.append(self.operand())
                if self.peek() == ",":
                    self.take()
            self.take()
            return Operand("vec", items=tuple(items))
        if word == "[":
            base = self.operand()
            offset = 0
            while self.peek() in ("+", "-"):
                sign = -1 if self.take() == "-" else 1
                if self.peek() == "-":  # [%rd1+-4]
                    self.take()
                    sign = -sign
                offset += sign * int(self.take(), 0)
            self.take("]")
            return Operand("mem", offset=offset, items=(base,))
        if word == "-":
            return Operand("imm", "-" + self.take())
        if word[0].isdigit():
            return Operand("imm", word)
        if word == "_":
            return Operand("sink")
        name = self.resolve(word)
        operand = Operand("reg" if word.startswith("%") or name in self.inner_registers else "sym", name)
        if self.peek() == "|":
            self.take()
            return Operand("pair", items=(operand, self.operand()))
        if operand.kind == "sym" and self.peek() in ("+",):
            self.take()
            return Operand("sym", name, int(self.take(), 0))
        return operand
