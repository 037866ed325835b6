"""Normalise, digest and count PTX and SASS, so that code is compared by what it does.

Two texts that normalise alike are the same code. Normalising is sound: it drops only what no result can
depend on. PTX registers are virtual and are renumbered; SASS registers are physical (a wide operand means its
neighbours too) and are kept, so another register allocation counts as other code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import gcd

from reprodb.digest import content_key
from reprodb.domain import Code, FunctionCounts
from reprodb.findings import CodeDelta

Rows = tuple[tuple[str, int, int], ...]

# nvcc names what is internal to a unit after the unit's path; equal sources elsewhere get other names.
_UNIT_HASH = re.compile(
    r"(_INTERNAL_)[0-9a-f]{8}_\d+_\w+?_[0-9a-f]{8}(?:_\d+)?|(__nv_static_\d+__)[0-9a-f]{8}"
)


def unit_names(text: str) -> str:
    return _UNIT_HASH.sub(lambda match: (match[1] or match[2]) + "unit", text)


# --- PTX ---------------------------------------------------------------------------------------

# Possessive (`*+`) where giving back could not help: a text of a bundle may be made to take long.
_PTX_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PTX_HEADER = re.compile(r"^[^\S\n]*+\.(?:version|target|address_size)\b[^\n]*", re.MULTILINE)
_PTX_LINE_INFO = re.compile(r"^[^\S\n]*+(?:@@DWARF|\.loc|\.file)\b[^\n]*", re.MULTILINE)
_PTX_SECTION = re.compile(r"^[^\S\n]*+\.section\b[^{]*\{[^}]*\}", re.MULTILINE)
_LOCAL_DEPOT = re.compile(r"\b__local_depot\d+")  # one a function, numbered through the module
_PTX_TOKEN = re.compile(r'"[^"\n]*"|[%$A-Za-z_][\w$]*|[{}:;]|\s+|[^\s%$A-Za-z_{}:;"]+')
_PTX_REGISTERS = re.compile(r"\.reg\s++(?:\.\w++\s++)++([^;]+);")
_PTX_FUNCTION = re.compile(r"\.(entry|func)\b")
PTX_NAME = re.compile(r"(?<![\w$])([%$A-Za-z_][\w$]*+)\s*+\(")
_PTX_LABEL = re.compile(r"(?:^|(?<=[;{}:]))\s*([%$A-Za-z_][\w$]*)\s*:(?!:)")
_PTX_PREDICATE = re.compile(r"^@!?[%\w$]+\s+")
_PTX_VECTOR = re.compile(r"\{([^;{}]*)\}")  # {%r1, %r2}: an operand, not a scope
VECTOR_BACK = {1: "{", 2: "}"}
_PTX_OPCODE = re.compile(r"^[a-z]\w*(?:(?:\.|::)\w+)*")


def ptx_items(text: str) -> Iterator[tuple[str, str]]:
    """The module's top-level items in order: (head, body); the body of a function is between its braces."""
    start = depth = 0
    head = ""
    for match in re.finditer(r"[{};]", text):
        mark, at = match[0], match.start()
        if mark == "{":
            if depth == 0:
                head, start = text[start:at], at
            depth += 1
        elif mark == "}":
            depth -= 1
            if depth == 0 and _PTX_FUNCTION.search(head):
                yield head, _PTX_VECTOR.sub("\x01\\1\x02", text[start : at + 1])
                start, head = at + 1, ""
            elif depth == 0:  # an initialiser: the item goes on to its semicolon
                text_so_far = head + text[start : at + 1]
                end = text.find(";", at)
                yield text_so_far + text[at + 1 : end + 1], ""
                start, head = end + 1, ""
        elif depth == 0 and at >= start:
            yield text[start : at + 1], ""
            start, head = at + 1, ""


def _registers(declaration: str) -> Iterator[tuple[str, bool]]:
    """Names of one `.reg` declaration, and whether a name is a prefix (`%r<8>` declares %r0 … %r7)."""
    for part in declaration.split(","):
        name, _, count = part.strip().partition("<")
        yield name.strip(), bool(count)


class _Renamer:
    """Register and label names of one function body, renumbered as they appear; scopes nest by braces."""

    def __init__(self, body: str) -> None:
        self.labels = set(_PTX_LABEL.findall(body))
        self.scopes: list[tuple[dict[str, str], set[str], set[str]]] = []
        self.names: dict[str, str] = {}
        self.count = 0

    def open(self, body: str, at: int) -> None:
        """Enter the scope whose brace is at `at`: its own declarations come first or later, all at once."""
        exact: set[str] = set()
        prefixes: set[str] = set()
        for declaration in _PTX_REGISTERS.finditer(_own_text(body, at)):
            for name, many in _registers(declaration[1]):
                (prefixes if many else exact).add(name)
        self.scopes.append(({}, exact, prefixes))

    def close(self) -> None:
        self.scopes.pop()

    def __call__(self, token: str) -> str:
        for names, exact, prefixes in reversed(self.scopes):
            if token in names:
                return names[token]
            if token in exact or token.rstrip("0123456789") in prefixes - {token}:
                names[token] = f"%{self.count}"
                self.count += 1
                return names[token]
        if token in self.labels:
            return self.names.setdefault(token, f"L{len(self.names)}")
        return token


def _own_text(body: str, at: int) -> str:
    """The text of the scope that opens at `at`, without its inner scopes."""
    depth, parts, start = 0, [], at
    for match in re.compile(r"[{}]").finditer(body, at):
        if match[0] == "{":
            if depth == 1:
                parts.append(body[start : match.start()])
            depth += 1
            start = match.end() if depth == 1 else start
        else:
            depth -= 1
            if depth == 1:
                start = match.end()
            if depth == 0:
                parts.append(body[start : match.start()])
                break
    return ";".join(parts)


def _without_unused_labels(body: str) -> str:
    """Line information leaves labels that nothing names: those go."""
    uses = Counter(_PTX_TOKEN.findall(body))
    return _PTX_LABEL.sub(lambda match: match[0] if uses[match[1]] > 1 else "", body)


def _normalise_body(body: str) -> list[str]:
    body = _without_unused_labels(body)
    rename = _Renamer(body)
    out: list[str] = []
    for match in _PTX_TOKEN.finditer(body):
        word = match[0]
        if word == "{":
            rename.open(body, match.start())
        elif word == "}":
            rename.close()
        out.append(rename(word) if word[0] in "%$_" or word[0].isalpha() else word)
    # How many names were declared says nothing about their use.
    text = _PTX_REGISTERS.sub("", "".join(out))
    lines = (" ".join(line.split()) for line in re.split(r"(?<=[;{}])|(?<=\d:)\s", text))
    return [line.translate(VECTOR_BACK) for line in lines if line]


def ptx_clean(text: str) -> str:
    text = _LOCAL_DEPOT.sub("__local_depot", _PTX_COMMENT.sub("", text.replace("\x00", "")))
    return _PTX_SECTION.sub("", _PTX_LINE_INFO.sub("", _PTX_HEADER.sub("", text)))


def ptx_header(text: str) -> list[str]:
    """Version, target and address size, a line each."""
    return [line.strip() for line in _PTX_HEADER.findall(text)]


def normalise_ptx(text: str) -> str:
    """PTX without comments, version, target and line info; registers and labels renumbered per function.

    Returns one statement a line. Idempotent.
    """
    lines: list[str] = []
    for head, body in ptx_items(ptx_clean(unit_names(text))):
        if line := " ".join(head.split()):
            lines.append(line)
        lines += _normalise_body(body) if body else []
    return "\n".join(lines) + "\n" if lines else ""


def ptx_counts(text: str) -> dict[str, Counter[str]]:
    """Opcodes with types and rounding of each function with a body: `fma.rn.f32`, `ld.global.f32`."""
    counts: dict[str, Counter[str]] = {}
    for head, body in ptx_items(ptx_clean(text)):
        names = PTX_NAME.findall(head)
        if not body or not names:
            continue
        # A function's return parameter stands before its name in parentheses: the name is the last one.
        counter = counts.setdefault(names[-1], Counter())
        for statement in re.split(r"[;{}]", body):
            bare = statement.strip()
            while label := re.match(r"[%$A-Za-z_][\w$]*\s*:(?!:)\s*", bare):
                bare = bare[label.end() :]
            if opcode := _PTX_OPCODE.match(_PTX_PREDICATE.sub("", bare)):
                counter[opcode[0]] += 1
    return counts


# --- SASS --------------------------------------------------------------------------------------

_SECTION = re.compile(r"^\s*\.section\s+([^,\s]+)")
_SASS_LINE = re.compile(r"^\s*+/\*[0-9a-f]{4,}+\*/\s++([^;]*+);")
_SASS_LABEL = re.compile(r"^\s*+([.$\w]++):\s*$")
_SASS_TARGET = re.compile(r"`\(([^)]*)\)")
_SASS_LOCAL = re.compile(r"\.L_\w+")
# Operand reuse caches, and the waits and stalls that newer disassemblers print.
_SCHEDULING = re.compile(r"\.reuse\b| ?&\w++=\S+| ?\?\w+")
_SASS_PREDICATE = re.compile(r"^@!?U?P\w+\s+")
_DATA = re.compile(r"^\s*(?:/\*[0-9a-f]+\*/\s*)?\.(byte|short|word|dword|zero|string|ascii)\s+(.*)$")
_DATA_SECTION = re.compile(r"^\.nv\.(?:constant\d+|global\.init)(?:\.|$)")
_MOST_ZEROS = 1 << 26  # written out; text from elsewhere may ask for any number
_DATA_BYTES = {"byte": 1, "short": 2, "word": 4, "dword": 8}


def _sections(text: str) -> dict[str, list[str]]:
    """The lines of every section of nvdisasm's text, by section name."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in unit_names(text).splitlines():
        if match := _SECTION.match(line):
            lines = sections.setdefault(match[1], [])
        elif not line.startswith("//"):
            lines.append(line)
    return sections


def _instruction(text: str) -> str:
    """An instruction without the disassembler's remarks."""
    for opening, closing in (("(*", "*)"), ("/*", "*/")):
        text = _without(text, opening, closing)
    return " ".join(_SCHEDULING.sub("", " ".join(text.split())).split())


def _without(text: str, opening: str, closing: str) -> str:
    kept, at = [], 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start + 2)) >= 0:
        kept.append(text[at:start])
        at = end + len(closing)
    return "".join(kept) + text[at:]


def _functions(text: str) -> dict[str, list[str]]:
    """Function name → its instructions and local labels (`.L_x_1:`), without padding, sorted by name."""
    functions: dict[str, list[str]] = {}
    for section, lines in _sections(text).items():
        if not section.startswith(".text."):
            continue
        name = section.removeprefix(".text.")
        body: list[str] = []
        for line in lines:
            if match := _SASS_LINE.match(line):
                body.append(_instruction(match[1]))
            elif (label := _SASS_LABEL.match(line)) and label[1] not in (name, section):
                body.append(label[1] + ":")
        while body and (body[-1] == "NOP" or body[-1].endswith(":")):
            body.pop()  # padding up to the section's alignment
        functions[name] = body
    return dict(sorted(functions.items()))


def normalise_sass(text: str) -> str:
    """What `nvdisasm FILE` prints, without addresses, encodings, padding and scheduling annotations.

    Branch targets become labels numbered as they appear; functions are sorted by name, each under a line
    `.text NAME`. Registers stay as they are. Text in the normal form comes back as it went in.
    """
    if text.startswith(".text "):
        return text
    out: list[str] = []
    for name, body in _functions(text).items():
        targets = {t for line in body for t in _SASS_LOCAL.findall(line) if not line.endswith(":")}
        numbers: dict[str, str] = {}
        lines: list[str] = []
        for line in body:
            label = line[:-1] if line.endswith(":") else None
            if label is not None and label.startswith(".L_") and label not in targets:
                continue  # a mark of the disassembler that nothing branches to
            lines.append(
                _SASS_LOCAL.sub(lambda m, n=numbers: n.setdefault(m[0], f"L{len(n)}"), line)  # type: ignore[misc]
            )
        out += [f".text {name}", *lines]
    return "\n".join(out) + "\n" if out else ""


def _data(lines: list[str]) -> tuple[str, bool]:
    """A data section as hex, symbols by name, and whether any byte of it is not zero."""
    out: list[str] = []
    carries = False
    for line in lines:
        if label := _SASS_LABEL.match(line):
            if not label[1].startswith((".L_", ".nv.")):
                out.append(f"\n{label[1]}:")
        elif match := _DATA.match(line):
            kind, rest = match[1], match[2].rstrip()
            if kind == "zero":
                count = _number(rest)
                out.append(f"<zero {rest}>" if count is None or count > _MOST_ZEROS else "00" * count)
            elif kind in ("string", "ascii"):
                out.append(rest)
                carries = True
            else:
                for value in (part.strip() for part in rest.split(",")):
                    number = _number(value)
                    if number is not None and number < 1 << 8 * _DATA_BYTES[kind]:
                        carries |= number != 0
                        out.append(number.to_bytes(_DATA_BYTES[kind], "little").hex())
                    else:
                        carries = True
                        out.append(f"<{value}>")
    return "".join(out), carries


def _number(text: str) -> int | None:
    """A number of at most 64 bits as disassemblers write it; None for anything else, such as a symbol."""
    if re.fullmatch(r"0x[0-9a-f]{1,16}", text):
        return int(text, 16)
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None


def constants(text: str) -> str:
    """The data that the compiler placed beside the instructions: constant banks and initialised globals.

    Bank 0 holds launch parameters and is left out unless the file fills it. One section after another,
    sorted by name; the empty string where there is no data.
    """
    out = []
    for section, lines in sorted(_sections(text).items()):
        if _DATA_SECTION.match(section):
            data, carries = _data(lines)
            if carries or not section.startswith(".nv.constant0"):
                out.append(f"{section}\n{data}\n")
    return "".join(out)


# Modifiers worth telling apart, by base opcode; others (cache hints, scopes, address widths) are not counted.
_ROUNDING = ("FTZ", "SAT", "RM", "RP", "RZ")
_HALF = ("BF16", "BF16_V2", "F32", "FTZ", "SAT", "RELU", "FMZ")
_ATOMIC = (
    "ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "CAS", "SAFEADD",
    "F16x2", "BF16_V2", "BF16x2", "F32", "F64", "S32", "S64", "64", "FTZ", "RN",
)  # fmt: skip
_TOLD_APART: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("FADD", "FMUL", "FFMA", "DADD", "DMUL", "DFMA", "FADD2", "FMUL2", "FFMA2"), _ROUNDING),
    **dict.fromkeys(("HADD2", "HMUL2", "HFMA2"), _HALF),
    **dict.fromkeys(("ATOM", "ATOMG", "ATOMS", "RED", "REDG"), _ATOMIC),
    "SHFL": ("IDX", "UP", "DOWN", "BFLY"),
    "BAR": ("SYNC", "ARV", "RED", "SYNCALL"),
    "VOTE": ("ALL", "ANY", "EQ"),
    "IMAD": ("WIDE", "HI", "MOV", "IADD", "SHL", "X"),
}  # fmt: skip
# Opcodes whose every modifier is part of the name: functions, conversions, matrix shapes.
_WHOLE = frozenset(
    ["MUFU", "F2F", "F2I", "I2F", "FRND", "HMMA", "IMMA", "DMMA", "QGMMA", "HGMMA", "REDUX", "CREDUX"]
)
_NUMERICS = (
    "FFMA", "FMUL", "FADD", "FFMA2", "FMUL2", "FADD2", "DFMA", "DMUL", "DADD", "HFMA2", "HMUL2", "HADD2",
    "HMMA", "HGMMA", "QGMMA", "IMMA", "DMMA", "MUFU", "FRND", "F2F", "F2I", "I2F", "FMNMX", "FCHK",
    "SHFL", "REDUX", "CREDUX", "ATOM", "ATOMG", "ATOMS", "RED", "REDG", "BAR",
)  # fmt: skip
_PTX_NUMERICS = ("fma", "mul", "add", "sub", "mad", "div", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos",
                 "tanh", "min", "max", "cvt", "shfl", "redux", "atom", "red", "bar", "barrier")  # fmt: skip

# Arithmetic that only carries a value: immediates through HFMA2 (sm_80 and later), x + -0, -0*0 + x.
_MOVES = (
    (re.compile(r"^HFMA2(?:\.\w+)* \w+, -RZ, RZ, [^R]"), "MOV.HFMA2"),
    (re.compile(r"^FADD(?:\.FTZ)? \w+, (?:-RZ, \S+|\S+, -RZ)$"), "MOV.FADD"),
    (re.compile(r"^FFMA(?:\.FTZ)? \w+, (?:-RZ, RZ|RZ, -RZ), \S+$"), "MOV.FFMA"),
    (re.compile(r"^DADD \w+, (?:-RZ, \S+|\S+, -RZ)$"), "MOV.DADD"),
)


def opcode_name(instruction: str) -> str:
    """The name that an instruction is counted under: base opcode and the modifiers worth telling apart.

    `HFMA2.MMA R0, -RZ, RZ, 0, 0` is a move, not arithmetic, and is counted as `MOV.HFMA2`.
    """
    bare = _SASS_PREDICATE.sub("", instruction)
    for pattern, name in _MOVES:
        if pattern.match(bare):
            return name
    opcode = bare.split(" ", 1)[0]
    base, *modifiers = opcode.split(".")
    if base in _WHOLE:
        return opcode
    told = _TOLD_APART.get(base, ())
    return ".".join([base, *(m for m in modifiers if m in told)])


def sass_counts(text: str) -> dict[str, Counter[str]]:
    """Opcode counts of each function of nvdisasm's text, device functions inside a section included."""
    return {
        name: Counter(opcode_name(line) for line in body if not line.endswith(":"))
        for name, body in _functions(text).items()
    }


_PTX_NAN = re.compile(r"\b0(?:[fF][7fF][fF]|[dD][7fF][fF]{2})[0-9a-fA-F]*\b|\b21[34]\d{7}\b")


def nan_literals(ptx: str | None, sass: str) -> tuple[str, ...]:
    """The NaNs that PTX spells out, where SASS prints a NaN: nvdisasm writes all payloads as `+QNAN`."""
    if ptx is None or not re.search(r"\b[QS]NAN\b", sass):
        return ()
    words = {word.lower() for word in _PTX_NAN.findall(ptx_clean(ptx))}
    return tuple(
        sorted(word for word in words if word.startswith("0") or 0x7F800000 < int(word) < 0x7FFFFFFF)
    )


# --- Code and its differences ------------------------------------------------------------------


def code_of(ptx: str | None, sass: str | None) -> Code:
    """Digests and counts of generated code. `sass` is what `nvdisasm FILE` prints, data sections included.

    A text that is None leaves its digests None: unknown, never equal to anything.
    """
    from reprodb import parts  # which builds on this module

    own = parts.ptx_parts(ptx) if ptx is not None else {}
    sass_own = parts.sass_digests(sass, own) if sass is not None else {}
    by_ptx = ptx_counts(ptx) if ptx is not None else {}
    by_sass = sass_counts(sass) if sass is not None else {}
    normal = normalise_sass(sass) if sass is not None else ""
    return Code(
        ptx=content_key("reprodb.ptx/1", normalise_ptx(ptx)) if ptx is not None else None,
        sass=content_key("reprodb.sass/1", normal, *nan_literals(ptx, normal)) if sass is not None else None,
        constants=content_key("reprodb.constants/1", constants(sass)) if sass is not None else None,
        counts=tuple(
            FunctionCounts(
                name,
                tuple(sorted(by_ptx.get(name, Counter()).items())),
                tuple(sorted(by_sass.get(name, Counter()).items())),
                own[name].digest if name in own else None,
                sass_own.get(name),
            )
            for name in sorted(by_ptx.keys() | by_sass.keys())
        ),
    )


def _changed(
    before: tuple[tuple[str, int], ...], after: tuple[tuple[str, int], ...], numerics: tuple[str, ...]
) -> Rows:
    old, new = dict(before), dict(after)
    rank = {name: place for place, name in enumerate(numerics)}
    names = [name for name in old.keys() | new.keys() if old.get(name, 0) != new.get(name, 0)]
    names.sort(key=lambda name: (rank.get(name.split(".", 1)[0], len(rank)), name))
    return tuple((name, old.get(name, 0), new.get(name, 0)) for name in names)


def code_delta(before: Code, after: Code) -> tuple[CodeDelta, ...]:
    """The functions whose opcode counts differ, numerics first in each; empty where all counts agree.

    Where one side has no SASS (or no PTX) at all, its counts are unknown and are not compared.
    """
    old = {c.function: c for c in before.counts}
    new = {c.function: c for c in after.counts}
    sass = before.sass is not None and after.sass is not None
    ptx = before.ptx is not None and after.ptx is not None
    deltas = []
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name, FunctionCounts(name)), new.get(name, FunctionCounts(name))
        delta = CodeDelta(
            name,
            _changed(a.sass, b.sass, _NUMERICS) if sass else (),
            _changed(a.ptx, b.ptx, _PTX_NUMERICS) if ptx else (),
        )
        if delta.sass or delta.ptx:
            deltas.append(delta)
    return tuple(deltas)


def launched(function: str, entries: Iterable[str]) -> bool:
    """Whether a function of the code is one of these `__global__` names.

    A mangled C++ name holds the name with its length before it.
    """
    return any(function == entry or f"{len(entry)}{entry}" in function for entry in entries)


def contractions_undone(delta: CodeDelta) -> int | None:
    """How many fused multiply-adds of a function came apart into a multiply and an add each.

    Negative where they were fused. None where the SASS counts do not say exactly that: each FFMA (or DFMA)
    fewer with one multiply and one add more. Unrolled copies count each.
    """
    total = 0
    for fused, product, total_add in (("FFMA", "FMUL", "FADD"), ("DFMA", "DMUL", "DADD")):
        gained = {
            base: sum(b - a for name, a, b in delta.sass if name.split(".", 1)[0] == base)
            for base in (fused, product, total_add)
        }
        if not any(gained.values()):
            continue
        if not -gained[fused] == gained[product] == gained[total_add]:
            return None
        total += gained[product]
    return total or None


def step_phrase(before: FunctionCounts, after: FunctionCounts) -> str | None:
    """What the contraction of one element step lost or gained: `FFMA 1 fewer, FMUL and FADD 1 more each`.

    The compiler lays a loop's step out several times; the number of copies is what divides both the loads
    from global memory and the fused operations that came apart (or were fused). None where contraction did
    not move, or the loads did.
    """
    delta = CodeDelta(before.function, _changed(before.sass, after.sass, _NUMERICS), ())
    undone = contractions_undone(delta)
    loads, loads_after = (
        sum(n for name, n in counts.sass if name.split(".", 1)[0] == "LDG") for counts in (before, after)
    )
    if undone is None or loads != loads_after:
        return None
    copies = gcd(undone, loads)
    by_change: dict[int, list[str]] = {}
    for base in ("FFMA", "FMUL", "FADD", "DFMA", "DMUL", "DADD"):
        change = sum(b - a for name, a, b in delta.sass if name.split(".", 1)[0] == base)
        if change:
            by_change.setdefault(change // copies, []).append(base)
    parts = [
        f"{' and '.join(names)} {abs(n)} {'more' if n > 0 else 'fewer'}{' each' * (len(names) > 1)}"
        for n, names in by_change.items()
    ]
    laid_out = f", which is laid out {copies} times" if copies > 1 else ""
    return f"per element step{laid_out}: {', '.join(parts)}"


def delta_phrase(delta: CodeDelta, limit: int = 4) -> str:
    """One line: `FFMA 1 → 0, FMUL 0 → 1, FADD 9 → 10: a multiply-add came apart`."""
    rows = delta.sass or delta.ptx
    shown = ", ".join(f"{name} {a} → {b}" for name, a, b in rows[:limit])
    if len(rows) > limit:
        shown += f" and {len(rows) - limit} more"
    undone = contractions_undone(delta)
    if undone is None:
        return shown
    fused = f"{abs(undone)} multiply-adds" if abs(undone) != 1 else "1 multiply-add"
    return f"{shown}: {fused} {'came apart' if undone > 0 else 'were fused' if undone < -1 else 'was fused'}"


def all_numerics(delta: CodeDelta) -> Rows:
    """The rows of a delta that do arithmetic, communicate or synchronise; addressing and moves left out."""
    known = frozenset(chain(_NUMERICS, _PTX_NUMERICS))
    return tuple(row for row in chain(delta.sass, delta.ptx) if row[0].split(".", 1)[0] in known)
