"""PTX text read token by token: module, functions, scopes and operands."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from reprodb.errors import UnsupportedError
from reprodb.executors.model.ptx import (
    TYPE_BYTES,
    Args,
    Float,
    Function,
    Guard,
    Instruction,
    Int,
    Label,
    Mem,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Source,
    Statement,
    Sym,
    Variable,
    Vec,
)

# --- Tokens ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\f]+|//[^\n]*|/\*.*?\*/)
    |(?P<newline>\n)
    |(?P<string>"[^"\n]*")
    |(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    |(?P<word>[%$_a-zA-Z.][\w$%.]*(?:::[\w$.]+)*)
    |(?P<punct>[-+,;:(){}\[\]<>@!|=~*/&^?])""",
    re.VERBOSE | re.DOTALL,
)


# Far above what compilers write; text from elsewhere may say anything.
MOST_REGISTERS = 1 << 20
MOST_BYTES = 1 << 40  # of a variable
MOST_INITIALISED = 1 << 26


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(line, f"character {text[position]!r}")
        position = match.end()
        kind = match.lastgroup or ""
        if kind == "newline":
            line += 1
        elif kind == "skip":
            line += match.group().count("\n")
        else:
            yield _Token(kind, match.group(), line)
    yield _Token("end", "", line)


def _unreadable(line: int, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"PTX line {line}: {what} is not understood by the model",
        remedy="execute this kernel on a GPU, or report the line",
    )


# --- Parser ------------------------------------------------------------------------------------

_LINKAGE = (".visible", ".extern", ".weak", ".common")
_SPACES = (".global", ".const", ".shared", ".local", ".param")
# Directives in front of a body that describe it and do not change what it computes.
_TUNING = (".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".noreturn", ".pragma",
           ".abi_preserve", ".abi_preserve_control", ".blocksareclusters", ".explicitcluster",
           ".reqnctapercluster", ".maxclusterrank", ".unified", ".attribute")  # fmt: skip


@dataclass
class _Scope:
    """Names declared inside one pair of braces, mapped to the unique names that the function keeps."""

    names: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, int] = field(default_factory=dict)


class _Body:
    """What a function body collects while it is read."""

    def __init__(self) -> None:
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.tables: dict[str, tuple[str, ...]] = {}
        self.statements: list[Statement] = []
        self.scopes: list[_Scope] = []
        self.opened = 0
        self.labels: list[dict[str, str]] = []


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.files = dict(self.named_files())
        self.roots: dict[tuple[int, int, int], Source | None] = {}  # of the places named so far
        self.source: Source | None = None

    # Reading tokens.

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def next(self) -> _Token:
        token = self.tokens[self.at]
        if token.kind != "end":  # the end stays: whatever is expected behind it is not there
            self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.token.text == text and self.token.kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise _unreadable(self.token.line, f"{self.token.text!r} (expected {text!r})")

    def word(self) -> str:
        token = self.next()
        if token.kind != "word":
            raise _unreadable(token.line, f"{token.text!r} (expected a name)")
        return token.text

    def integer(self) -> int:
        negative = self.accept("-")
        token = self.next()
        if token.kind != "int":
            raise _unreadable(token.line, f"{token.text!r} (expected an integer)")
        value = _integer(token.text)
        return -value if negative else value

    def skip_to(self, *stops: str) -> None:
        while self.token.text not in stops and self.token.kind != "end":
            self.at += 1

    def skip_braces(self) -> None:
        depth = 0
        while self.token.kind != "end":
            text = self.next().text
            depth += (text == "{") - (text == "}")
            if depth == 0:
                return

    # Module level.

    def module(self) -> Module:
        version = target = ""
        functions: list[Function] = []
        variables: list[Variable] = []
        while self.token.kind != "end":
            token = self.token
            if self.accept(".version"):
                version = self.next().text
            elif self.accept(".target"):
                target = self.word()
                while self.accept(","):
                    self.word()
            elif self.accept(".address_size"):
                if self.integer() != 64:
                    raise _unreadable(token.line, "a 32-bit address size")
            elif self.accept(".file"):
                self.file()
            elif self.accept(".loc"):
                self.loc()
            elif self.accept(".section"):
                self.word()
                self.skip_braces()
            elif token.text in (".pragma", ".alias"):
                self.skip_to(";")
                self.expect(";")
            elif token.text == ";":
                self.next()
            else:
                linkage = []
                while self.token.text in _LINKAGE:
                    linkage.append(self.next().text)
                if self.token.text in (".entry", ".func"):
                    functions.append(self.function(self.next().text == ".entry"))
                elif self.token.text in _SPACES:
                    variables += self.variable(extern=".extern" in linkage)
                else:
                    raise _unreadable(self.token.line, f"{self.token.text!r}")
        return Module(version, target, tuple(functions), tuple(variables))

    def named_files(self) -> Iterator[tuple[int, str]]:
        """Every `.file` of the text, since compilers put them behind the code that names them.

        Paths as the suite has them stay whole; of an absolute one the last part is told.
        """
        for token, index, path in zip(self.tokens, self.tokens[1:], self.tokens[2:], strict=False):
            if token.text == ".file" and index.kind == "int" and path.kind == "string":
                name = path.text.strip('"')
                yield _integer(index.text), name.rsplit("/", 1)[-1] if name.startswith("/") else name

    def file(self) -> None:
        self.integer()
        self.next()
        while self.accept(","):
            self.integer()

    def loc(self) -> None:
        line_of_text = self.token.line
        here = self.location()
        root = None
        while self.token.line == line_of_text and self.token.kind != "end":
            if self.next().text == "inlined_at":
                site = self.location()
                root = self.roots.get(site) or Source(self.file_name(site[0]), *site[1:])
        self.roots[here] = root
        index, line, column = here
        self.source = Source(self.file_name(index), line, column, root) if line else None

    def location(self) -> tuple[int, int, int]:
        return self.integer(), self.integer(), self.integer()

    def file_name(self, index: int) -> str:
        return self.files.get(index, f"file {index}")

    # Variables.

    def variable(self, *, extern: bool = False) -> list[Variable]:
        space = self.next().text[1:]
        return self.declarators(space, extern=extern, terminated=True)

    def declarators(self, space: str, *, extern: bool, terminated: bool) -> list[Variable]:
        align = vector = 0
        kind = ""
        while self.token.text.startswith("."):
            word = self.next().text
            if word == ".align":
                align = self.integer()
            elif word == ".ptr":
                while self.token.text in (".global", ".const", ".shared", ".local", ".param", ".align"):
                    if self.next().text == ".align":
                        self.integer()
            elif word in (".v2", ".v4"):
                vector = int(word[2:])
            elif word == ".attribute":
                self.expect("(")
                self.skip_to(")")
                self.expect(")")
            elif word[1:] in TYPE_BYTES:
                kind = word[1:]
            else:
                raise _unreadable(self.token.line, f"{word!r} in a declaration")
        found = []
        while True:
            found.append(self.declarator(space, kind, align, vector or 1, extern=extern))
            if not terminated or not self.accept(","):
                break
        if terminated:
            self.expect(";")
        return found

    def declarator(self, space: str, kind: str, align: int, vector: int, *, extern: bool) -> Variable:
        line = self.token.line
        name = self.word()
        count = vector
        dimensions: list[int] = []
        open_ended = False
        while self.accept("["):
            if self.accept("]"):
                open_ended = True
                count = 0 if extern or self.token.text != "=" else count
            else:
                dimensions.append(self.integer())
                count *= dimensions[-1]
                self.expect("]")
        if kind not in TYPE_BYTES:
            raise _unreadable(line, f"{name!r} without a type")
        size = TYPE_BYTES[kind]
        if not 0 <= count * size <= MOST_BYTES:
            raise _unreadable(line, f"{name!r} of {count} elements")
        data = None
        relocations: list[tuple[int, str, int, bool]] = []
        if self.accept("="):
            if count * size > MOST_INITIALISED:
                raise _unreadable(line, f"{name!r} of {count} elements with values")
            values: list[bytes] = []
            self.initialiser(kind, values, relocations)
            data = b"".join(values)
            if open_ended:
                count = len(data) // size
            data = data.ljust(count * size, b"\0")
        align = align or size * vector
        return Variable(name, space, kind, align, count * size, line, data, tuple(relocations), extern)

    def initialiser(
        self, kind: str, values: list[bytes], relocations: list[tuple[int, str, int, bool]]
    ) -> None:
        if self.accept("{"):
            while not self.accept("}"):
                self.initialiser(kind, values, relocations)
                self.accept(",")
            return
        size = TYPE_BYTES[kind]
        if self.token.kind == "word":
            line = self.token.line
            name, mask = self.word(), False
            if name == "mask":
                mask = True
            generic = name == "generic"
            if generic:
                self.expect("(")
                name = self.word()
                self.expect(")")
            if mask or size != 8:
                raise _unreadable(line, "an address taken to pieces in an initialiser")
            addend = self.integer() if self.accept("+") or self.token.text == "-" else 0
            relocations.append((sum(map(len, values)), name, addend, generic))
            values.append(bytes(size))
            return
        values.append(self.constant_bytes(kind))

    def constant_bytes(self, kind: str) -> bytes:
        size = TYPE_BYTES[kind]
        negative = self.accept("-")
        token = self.next()
        if token.kind == "float":
            constant = _float(token.text)
            value = _value(constant) * (-1 if negative else 1)
            if kind == "f32":
                if constant.width == 32 and not negative:
                    return constant.bits.to_bytes(4, "little")
                return struct.pack("<f", value)
            if kind == "f64":
                return struct.pack("<d", value)
            raise _unreadable(token.line, f"{token.text!r} as a value of .{kind}")
        if token.kind != "int":
            raise _unreadable(token.line, f"{token.text!r} in an initialiser")
        integer = _integer(token.text) * (-1 if negative else 1)
        if kind == "f32":
            return struct.pack("<f", integer)
        if kind == "f64":
            return struct.pack("<d", integer)
        return (integer & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    # Functions.

    def function(self, entry: bool) -> Function:
        line = self.token.line
        self.source = None
        returns: tuple[Variable, ...] = ()
        if not entry and self.token.text == "(":
            returns = self.parameters()
        name = self.word()
        params = self.parameters() if self.token.text == "(" else ()
        directives: list[str] = []
        while self.token.text.startswith("."):
            word = self.next().text
            if word not in _TUNING:
                raise _unreadable(self.token.line, f"{word!r} before a body")
            text = [word]
            while self.token.text not in ("{", ";") and not self.token.text.startswith("."):
                text.append(self.next().text)
            if word == ".pragma":
                self.accept(";")
            directives.append(" ".join(text))
        if self.accept(";"):
            return Function(name, entry, params, returns, {}, (), {}, None, line, tuple(directives))
        body = _Body()
        self.expect("{")
        self.block(body)
        return Function(name, entry, params, returns, body.registers, tuple(body.variables), body.tables,
                        tuple(body.statements), line, tuple(directives))  # fmt: skip

    def parameters(self) -> tuple[Variable, ...]:
        self.expect("(")
        found: list[Variable] = []
        while not self.accept(")"):
            space = self.word()
            if space != ".param":
                raise _unreadable(self.token.line, f"a parameter in {space}")
            found += self.declarators("param", extern=False, terminated=False)
            self.accept(",")
        return tuple(found)

    def block(self, body: _Body) -> None:
        """Statements up to the closing brace; an inner scope's names get a suffix of their own."""
        scope = _Scope()
        suffix = f"@{body.opened}" if body.scopes else ""
        body.opened += 1
        body.scopes.append(scope)
        body.labels.append(self.labels_ahead(suffix))
        while not self.accept("}"):
            token = self.token
            if token.kind == "end":
                raise _unreadable(token.line, "a body without its closing brace")
            if self.accept("{"):
                self.block(body)
            elif self.accept(".loc"):
                self.loc()
            elif self.accept(".reg"):
                self.register(body, scope, suffix)
            elif token.text in _SPACES:
                for variable in self.variable():
                    unique = variable.name + suffix
                    scope.names[variable.name] = unique
                    body.variables.append(_renamed(variable, unique))
            elif token.text == ".pragma":
                self.skip_to(";")
                self.expect(";")
            elif self.accept(";"):
                pass
            elif self.tokens[self.at + 1].text == ":" and token.kind == "word":
                self.label(body)
            else:
                body.statements.append(self.instruction(body))
        body.scopes.pop()
        body.labels.pop()

    def labels_ahead(self, suffix: str) -> dict[str, str]:
        """The labels of the scope that starts here, since branches may precede them."""
        found: dict[str, str] = {}
        depth, at = 1, self.at
        while depth and at < len(self.tokens):
            text = self.tokens[at].text
            depth += (text == "{") - (text == "}")
            if depth == 1 and text == ":" and self.tokens[at - 1].kind == "word":
                name = self.tokens[at - 1].text
                found[name] = name + suffix
            at += 1
        return found

    def register(self, body: _Body, scope: _Scope, suffix: str) -> None:
        kind = self.word()[1:]
        if kind in ("v2", "v4"):
            raise _unreadable(self.token.line, "a vector register")
        if kind not in TYPE_BYTES:
            raise _unreadable(self.token.line, f"a register of type .{kind}")
        while True:
            name = self.word()
            if self.accept("<"):
                count = self.integer()
                if len(body.registers) + count > MOST_REGISTERS:
                    raise _unreadable(self.token.line, f"{count} registers")
                self.expect(">")
                names = [f"{name}{i}" for i in range(count)]
            else:
                names = [name]
            for each in names:
                if suffix:
                    scope.names[each] = each + suffix
                body.registers[each + suffix] = kind
            if not self.accept(","):
                break
        self.expect(";")

    def label(self, body: _Body) -> None:
        token = self.next()
        self.expect(":")
        name = self.resolve(body, token.text)
        if self.accept(".branchtargets"):
            targets = [self.resolve(body, self.word())]
            while self.accept(","):
                targets.append(self.resolve(body, self.word()))
            self.expect(";")
            body.tables[name] = tuple(targets)
        elif self.token.text in (".callprototype", ".calltargets"):
            self.skip_to(";")
            self.expect(";")
        else:
            body.statements.append(Label(name, token.line))

    def instruction(self, body: _Body) -> Instruction:
        guard = None
        line = self.token.line
        if self.accept("@"):
            negated = self.accept("!")
            guard = Guard(self.resolve(body, self.word()), negated)
        opcode = self.word()
        operands: list[Operand] = []
        if not self.accept(";"):
            while True:
                operands.append(self.operand(body))
                if self.accept(","):
                    continue
                self.expect(";")
                break
        return Instruction(opcode, tuple(operands), line, guard, self.source)

    # Operands.

    def resolve(self, body: _Body, name: str) -> str:
        for scope, labels in zip(reversed(body.scopes), reversed(body.labels), strict=True):
            if name in scope.names:
                return scope.names[name]
            if name in labels:
                return labels[name]
        return name

    def operand(self, body: _Body) -> Operand:
        first = self.single(body)
        if self.accept("|"):
            return Pair(first, self.single(body))
        return first

    def single(self, body: _Body) -> Operand:
        token = self.token
        if self.accept("{"):
            return Vec(self.items(body, "}"))
        if self.accept("("):
            return Args(self.items(body, ")"))
        if self.accept("["):
            return self.address(body)
        if self.accept("!"):
            return Not(Reg(self.resolve(body, self.word())))
        if token.text == "-" or token.kind == "int":
            negative = self.accept("-")
            if self.token.kind == "float":
                constant = _float(self.next().text)
                return Float(constant.bits ^ (1 << (constant.width - 1)), constant.width)
            value = self.integer()
            return Int(-value if negative else value)
        if token.kind == "float":
            return _float(self.next().text)
        if token.text == "_":
            self.next()
            return Sink()
        name = self.resolve(body, self.word())
        return self.named(body, name)

    def named(self, body: _Body, name: str) -> Reg | Sym | Int:
        if name == "WARP_SZ":
            return Int(32)
        if name in body.registers or name.startswith("%"):
            return Reg(name)
        return Sym(name)

    def items(self, body: _Body, close: str) -> tuple[Operand, ...]:
        found: list[Operand] = []
        while not self.accept(close):
            found.append(self.operand(body))
            self.accept(",")
        return tuple(found)

    def address(self, body: _Body) -> Mem:
        base: Reg | Sym | Int
        if self.token.kind == "int" or self.token.text == "-":
            base = Int(self.integer())
        else:
            base = self.named(body, self.resolve(body, self.word()))
        offset = 0
        while self.token.text in ("+", "-"):
            sign = 1 if self.next().text == "+" else -1
            offset += sign * self.integer()
        extra: tuple[Operand, ...] = ()
        if self.accept(","):
            extra = self.items(body, "]")
        else:
            self.expect("]")
        return Mem(base, offset, extra)


def _renamed(variable: Variable, name: str) -> Variable:
    return Variable(name, variable.space, variable.type, variable.align, variable.nbytes, variable.line,
                    variable.data, variable.relocations, variable.extern)  # fmt: skip


def _integer(text: str) -> int:
    text = text.rstrip("U")
    if len(text) > 1 and text[0] == "0" and text.isdigit():
        return int(text, 8)
    return int(text, 0)


def _float(text: str) -> Float:
    if text[:2] in ("0f", "0F"):
        return Float(int(text[2:], 16), 32)
    if text[:2] in ("0d", "0D"):
        return Float(int(text[2:], 16), 64)
    return Float(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)


def _value(constant: Float) -> float:
    if constant.width == 32:
        return float(struct.unpack("<f", constant.bits.to_bytes(4, "little"))[0])
    return float(struct.unpack("<d", constant.bits.to_bytes(8, "little"))[0])


def parse(text: str) -> Module:
    """The module of a PTX text. Text that is no PTX known here raises UnsupportedError with its line."""
    parser = _Parser(text)
    try:
        return parser.module()
    except RecursionError:
        raise _unreadable(parser.token.line, "nesting this deep") from None
    except (ValueError, OverflowError, struct.error):
        raise _unreadable(parser.token.line, "a number that nothing here holds") from None
