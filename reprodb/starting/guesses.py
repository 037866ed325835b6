"""A first manifest for a source: stages, buffers and a case, guessed from signatures and the text. Pure.

A guess is a start. What a signature cannot say (how long a buffer is, what a scalar stands for) is read off
the way the body uses it, and each such reading is told as something to check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reprodb import tomltext
from reprodb.errors import UsageError
from reprodb.starting.signatures import Parameter, Signature
from reprodb.suite.tables import LONGEST_TEXT

BLOCKS, THREADS, ELEMENTS = 64, 128, 4096
_COUNTS = re.compile(r"(n|num|count|size|len|length|elements|total|n_?elements|num_?elements)", re.IGNORECASE)
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class GuessedBuffer:
    name: str
    dtype: str
    size: str  # as the manifest says it
    role: str
    zero: bool = False
    open_order: bool = False  # float atomics add to it


@dataclass(frozen=True, slots=True)
class Guess:
    """A manifest to be. `check` are sentences about what was guessed and may be wrong."""

    name: str
    source: str
    stages: tuple[tuple[str, str, str, tuple[str, ...]], ...]  # entry, grid, block, arguments as TOML
    buffers: tuple[GuessedBuffer, ...]
    inputs: tuple[Parameter, ...]
    defines: tuple[tuple[str, int], ...]
    accumulator: str
    check: tuple[str, ...]
    shared: tuple[str, ...] = ()

    @property
    def guaranteed(self) -> bool:
        return not any(buffer.open_order for buffer in self.buffers if buffer.role == "result")


def guess(name: str, source: str, text: str, signatures: Sequence[Signature]) -> Guess:
    """The first guess. `source` is the path that the manifest will name, `text` the source, comments out.

    Raises UsageError where no function leaves anything behind, or a pointer is called n.
    """
    reader = _Reader(text, signatures)
    reader.read()
    buffers = tuple(reader.finished())
    entries = ", ".join(signature.entry for signature in signatures)
    if not buffers:
        raise UsageError(
            f"{source}: {entries} leaves nothing behind",
            allowed="a pointer that is not const: what is written there is recorded",
        )
    if "n" in reader.buffers or "n" in reader.inputs:
        raise UsageError(
            f"{source}: {entries} has a pointer called n, which is the size of a case",
            remedy="call it otherwise",
        )
    accumulators = [b.dtype for b in buffers if b.role == "result"]
    return Guess(
        name,
        source,
        tuple(reader.stages),
        buffers,
        tuple(reader.inputs.values()),
        reader.used_defines(),
        accumulators[-1] if accumulators else "float32",
        tuple(dict.fromkeys(reader.check)),
        tuple(reader.shared),
    )


class _Reader:
    """Goes through the stages in order, remembering which names are inputs and which buffers."""

    def __init__(self, text: str, signatures: Sequence[Signature]) -> None:
        self.text = text
        self.signatures = signatures
        self.inputs: dict[str, Parameter] = {}
        self.buffers: dict[str, GuessedBuffer] = {}
        self.stages: list[tuple[str, str, str, tuple[str, ...]]] = []
        self.shared: list[str] = []
        self.defines: dict[str, int] = {}
        self.check: list[str] = []
        self.written_last: list[str] = []
        self.read_later: set[str] = set()

    def read(self) -> None:
        threads = self._shape("THREADS", THREADS)
        blocks = self._shape("BLOCKS", BLOCKS)
        self.blocks, self.threads = blocks, threads
        if len(self.signatures) > 1:
            names = ", ".join(s.entry for s in self.signatures)
            self.check.append(f"{names} are stages of one kernel, in this order; --entry picks others")
        for signature in self.signatures:
            own = str(signature.threads) if signature.threads else threads
            grid = blocks if "blockIdx" in signature.body or "gridDim" in signature.body else "1"
            written: list[str] = []
            counted = any(_is_count(p) for p in signature.parameters)
            arguments = tuple(self._argument(p, signature, written, counted) for p in signature.parameters)
            self.stages.append((signature.entry, grid, own, arguments))
            self.written_last = written or self.written_last
            dynamic = re.search(r"extern\s+__shared__\s+([\w ]+?)\s+\w+\s*\[\s*\]", signature.body)
            self.shared.append(f"{own} * 8" if dynamic else "")
            if dynamic:
                self.check.append(f"{signature.entry} has dynamic shared memory: {own} * 8 bytes is a guess")

    def _shape(self, name: str, value: int) -> str:
        """A launch size: the source's own #define as a number, else a define of the manifest."""
        own = re.search(rf"^\s*#\s*define\s+{name}\s+\(?\s*([0-9]{{1,6}})\s*\)?\s*$", self.text, re.MULTILINE)
        if own:
            return own[1]
        self.defines[name] = value
        return name

    def used_defines(self) -> tuple[tuple[str, int], ...]:
        """The defines that a launch shape, a size or the source names."""
        sizes = [size for _, grid, block, _ in self.stages for size in (grid, block)]
        words = {
            word
            for text in (*sizes, *self.shared, *(b.size for b in self.buffers.values()), self.text)
            for word in re.findall(r"\w+", text)
        }
        return tuple(sorted(item for item in self.defines.items() if item[0] in words))

    def _argument(self, parameter: Parameter, signature: Signature, written: list[str], counted: bool) -> str:
        """The argument as TOML; what it is becomes known on the way."""
        name = parameter.name
        if not parameter.pointer:
            return self._scalar(parameter, signature)
        if name in self.buffers:
            if parameter.constant:
                self.read_later.add(name)
            else:
                self._write(parameter, signature, counted)
                written.append(name)
            return tomltext.string(name)
        if parameter.constant:
            before = [b for b in self.written_last if self.buffers[b].dtype == parameter.dtype]
            if name not in self.inputs and before:
                # Another name for what the stage before wrote.
                self.read_later.add(before[-1])
                self.check.append(f"{signature.entry} reads {before[-1]} as {name}")
                return tomltext.string(before[-1])
            self.inputs.setdefault(name, parameter)
            return tomltext.string(name)
        if name in self.inputs:
            self.check.append(f"{signature.entry} takes the input {name} without const: it must not write it")
            return tomltext.string(name)
        self._write(parameter, signature, counted)
        written.append(name)
        return tomltext.string(name)

    def _scalar(self, parameter: Parameter, signature: Signature) -> str:
        if _is_count(parameter):
            if parameter.dtype == "uint64":
                return '"n"'
            value: object = ELEMENTS
            self.check.append(
                f"{signature.entry}: {parameter.name} has 32 bits or a sign, and is {ELEMENTS} always"
            )
        else:
            value = 1.0 if parameter.dtype in _FLOATS else 1
            self.check.append(f"{signature.entry}: {parameter.name} = {value} is a guess")
        named = tomltext.string(parameter.name)
        return f'{{ value = {value}, dtype = "{parameter.dtype}", name = {named} }}'

    def _write(self, parameter: Parameter, signature: Signature, counted: bool) -> None:
        name, body = parameter.name, signature.body
        atomic = re.search(rf"\batomic\w+\s*\(\s*&?\s*\(?\s*{re.escape(name)}\b", body) is not None
        size = self._size(name, signature, counted)
        before = self.buffers.get(name)
        found = GuessedBuffer(
            name, parameter.dtype, size, "witness", atomic, atomic and parameter.dtype in _FLOATS
        )
        if before is not None:
            zero, opened = before.zero or found.zero, before.open_order or found.open_order
            found = replace(found, size=_larger(before.size, size), zero=zero, open_order=opened)
        self.buffers[name] = found

    def _size(self, name: str, signature: Signature, counted: bool) -> str:
        """How long a buffer is, by the indexes with which the body reaches it."""
        body = signature.body
        indexes = {" ".join(i.split()) for i in re.findall(rf"\b{re.escape(name)}\s*\[([^\]]*)\]", body)}
        if re.search(
            rf"(?:\*\s*{re.escape(name)}\b\s*[+\-*/]?=|\batomic\w+\s*\(\s*{re.escape(name)}\s*,)", body
        ):
            indexes.add("0")
        sizes = {self._index(index, body, counted) for index in indexes}
        if not indexes or "" in sizes:
            self.check.append(f"the size of {name} is a guess: nothing in {signature.entry} says it plainly")
        known = sorted(sizes - {""}, key=_rank)
        return known[-1] if known and "" not in sizes else self._most(counted)

    def _index(self, index: str, body: str, counted: bool) -> str:
        if re.fullmatch(r"[0-9]{1,6}", index):
            return str(int(index) + 1)
        meaning = index
        if re.fullmatch(r"\w+", index):
            start = re.search(rf"\b{index}\s*=\s*([^;]+);", body)
            meaning = start[1] if start else index
        block, thread = "blockIdx" in meaning, "threadIdx" in meaning
        if block and thread:
            return self._most(counted)
        if block:
            return self.blocks if re.fullmatch(r"\s*blockIdx\s*\.\s*x\s*", meaning) else ""
        if thread:
            return self.threads if re.fullmatch(r"\s*threadIdx\s*\.\s*x\s*", meaning) else ""
        return ""

    def _most(self, counted: bool) -> str:
        return "n" if counted else f"{self.blocks} * {self.threads}"

    def finished(self) -> Iterator[GuessedBuffer]:
        """Buffers with their roles: what the last stage leaves and nobody reads is the result."""
        last = [b for b in self.written_last if b not in self.read_later] or self.written_last
        for name, buffer in self.buffers.items():
            yield replace(buffer, role="result") if name in last or len(self.buffers) == 1 else buffer


def _is_count(parameter: Parameter) -> bool:
    whole = parameter.dtype in ("int32", "uint32", "int64", "uint64")
    return whole and not parameter.pointer and _COUNTS.fullmatch(parameter.name) is not None


def _rank(size: str) -> tuple[int, int]:
    """Sizes from small to large, as far as a look tells."""
    if size.isdigit():
        return (0, int(size))
    return ({"BLOCKS": 1, "THREADS": 1}.get(size, 2), 0)


def _larger(one: str, other: str) -> str:
    return max((one, other), key=_rank)


# --- The text ----------------------------------------------------------------------------------


def _operation(guess: Guess) -> str:
    """The stages' names in order, as many as fit into the line that a manifest allows."""
    names = [stage[0] for stage in guess.stages]
    said = " then ".join(names)
    return said if len(said) <= LONGEST_TEXT else f"{' then '.join(names[:3])[:300]} and more"


def manifest(guess: Guess) -> str:
    """The `kernel.toml` of a guess."""
    one = len(guess.inputs) == 1 and not any(b.name == "x" for b in guess.buffers)
    renamed = {guess.inputs[0].name: "x"} if one else {}
    determinism = "run_to_run" if guess.guaranteed else "not_guaranteed"
    lines = [f"# A first guess at {guess.source}, made by `reprodb kernels add`. Look at:"]
    lines += [f"# - {line}" for line in guess.check]
    lines += [
        "# - operation, and determinism: what the kernel claims, and is held to",
        "# - the case: a size and an input that mean something; a reference with a tolerance",
        "[kernel]",
        f"name = {tomltext.string(guess.name)}",
        f"source = {tomltext.string(guess.source)}",
        f"operation = {tomltext.string(_operation(guess))}",
        f'determinism = "{determinism}"',
        f'accumulator = "{guess.accumulator}"',
    ]
    if guess.defines:
        pairs = ", ".join(f"{name} = {value}" for name, value in guess.defines)
        lines.append(f"defines = {{ {pairs} }}")
    for buffer in guess.buffers:
        lines += ["", "[[buffer]]", f"name = {tomltext.string(buffer.name)}", f'dtype = "{buffer.dtype}"',
                  f"size = {_size(buffer.size)}", f'role = "{buffer.role}"']  # fmt: skip
        if buffer.zero:
            lines.append('init = "zero"  # atomics add to it')
        if not guess.guaranteed and not buffer.open_order and buffer.role == "witness":
            lines.append('determinism = "run_to_run"  # nothing arrives in an open order here')
    for (entry, grid, block, arguments), shared in zip(guess.stages, guess.shared, strict=True):
        named = ", ".join(_renamed(argument, renamed) for argument in arguments)
        lines += ["", "[[stage]]", f"entry = {tomltext.string(entry)}"]
        shape = {"grid": grid, "block": block, "shared": shared}
        lines += [f"{key} = {_size(size)}" for key, size in shape.items() if size]
        lines.append(f"args = [{named}]")
    lines += ["", "[[case]]", *_inputs(guess, one), f"n = {ELEMENTS}"]
    return "\n".join(lines) + "\n"


def _size(size: str) -> str:
    return size if size.isdigit() else tomltext.string(size)


def _renamed(argument: str, renamed: dict[str, str]) -> str:
    for old, new in renamed.items():
        if argument == tomltext.string(old):
            return tomltext.string(new)
    return argument


def _inputs(guess: Guess, one: bool) -> list[str]:
    if not guess.inputs:
        taken = {buffer.name for buffer in guess.buffers}
        free = next(
            name for name in ("x", *(f"unused{i}" for i in range(len(taken) + 1))) if name not in taken
        )
        return [f'inputs = {{ {free} = "ones" }}  # nothing reads it']
    tables = [_pattern(parameter, seed) for seed, parameter in enumerate(guess.inputs, 1)]
    if one:
        return [f"input = {tables[0]}"]
    pairs = ", ".join(f"{p.name} = {table}" for p, table in zip(guess.inputs, tables, strict=True))
    return [f"inputs = {{ {pairs} }}"]


def _pattern(parameter: Parameter, seed: int) -> str:
    kind = "normal" if parameter.dtype in _FLOATS else "integers"
    dtype = "" if parameter.dtype == "float32" else f', dtype = "{parameter.dtype}"'
    return f'{{ pattern = "{kind}", seed = {seed}{dtype} }}'
