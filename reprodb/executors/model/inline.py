"""One flat body an entry: device functions are put in where they are called, parameters become locals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from reprodb.errors import ExecutionError, UnsupportedError
from reprodb.executors.model import passing
from reprodb.executors.model.ptx import (
    Args,
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
    Statement,
    Sym,
    Variable,
    Vec,
)

DEPTH = 32  # calls within calls; more is taken for recursion
MOST_CALLS = 1 << 14  # calls put in, of one entry


@dataclass(frozen=True, slots=True)
class Flat:
    """An entry without calls. `variables` has its shared and local ones; `params` are the kernel's."""

    name: str
    params: tuple[Variable, ...]
    registers: dict[str, str]
    variables: dict[str, Variable]
    tables: dict[str, tuple[str, ...]]
    body: tuple[Statement, ...]
    line: int


def flatten(module: Module, entry: str) -> Flat:
    """The entry with every call put in. Indirect, recursive and external calls are refused."""
    function = module.function(entry)
    if function is None or not function.entry:
        names = ", ".join(f.name for f in module.functions if f.entry and f.body is not None)
        raise ExecutionError(
            f"entry {entry!r} is not in the PTX",
            allowed=names or "no entry at all",
            remedy='declare it extern "C" __global__, under the name that the manifest gives',
        )
    flattener = _Flattener(module)
    body = tuple(flattener.expand(function, "", {}, None, 0))
    body, held = passing.in_registers(body, flattener.passed)
    return Flat(
        entry,
        function.params,
        flattener.registers | {passing.register(name): kind for name, kind in held.items()},
        {name: v for name, v in flattener.variables.items() if name not in held},
        flattener.tables,
        body,
        function.line,
    )


class _Flattener:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.registers: dict[str, str] = {}
        self.variables: dict[str, Variable] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.passed: list[str] = []  # the variables that calls pass arguments and results in
        self.calls = 0

    def expand(
        self, function: Function, suffix: str, actual: dict[str, str], after: str | None, depth: int
    ) -> Iterator[Statement]:
        """The statements of one function, names of its own ending in `suffix`.

        `actual` maps its formal parameters to the caller's variables; `after` is the label to return to,
        None for the entry.
        """
        labels = {s.name for s in function.body or () if isinstance(s, Label)}
        names = dict(actual)
        for variable in function.variables:
            own = variable.name if variable.space == "shared" else variable.name + suffix
            names[variable.name] = own
            space = "shared" if variable.space == "shared" else "local"
            self.variables[own] = replace(variable, name=own, space=space)
            if variable.space == "param":
                self.passed.append(own)
        for register, kind in function.registers.items():
            self.registers[register + suffix] = kind
        for label in labels | set(function.tables):
            names[label] = label + suffix
        for table, targets in function.tables.items():
            self.tables[table + suffix] = tuple(t + suffix for t in targets)

        def rename(name: str) -> str:
            return name + suffix if name in function.registers else names.get(name, name)

        kernel_params = {p.name for p in function.params} if after is None else set()
        for statement in function.body or ():
            if isinstance(statement, Label):
                yield Label(rename(statement.name), statement.line)
                continue
            moved = _rename(statement, rename)
            if moved.base == "call":
                yield from self.call(function, moved, depth)
            elif after is not None and moved.base == "ret":
                yield replace(moved, opcode="bra", operands=(Sym(after),))
            else:
                yield _param_to_local(moved, kernel_params, called=after is not None)

    def call(self, function: Function, call: Instruction, depth: int) -> Iterator[Statement]:
        if not call.operands or self.calls >= MOST_CALLS:
            raise _refused(call, "calls nothing, or far too often", "execute this kernel on a GPU")
        groups = [o for o in call.operands if isinstance(o, Args)]
        names = [o for o in call.operands if isinstance(o, Sym)]
        target = call.operands[1] if isinstance(call.operands[0], Args) else call.operands[0]
        if not isinstance(target, Sym) or not names:
            raise _refused(call, "calls through a function pointer", "make the callee known at compile time")
        callee = self.module.function(target.name)
        if callee is None:
            raise _refused(
                call,
                f"calls {target.name}, which has no body in this PTX",
                "leave device-side printf, assert, malloc and library calls out of a modelled kernel",
            )
        if depth == DEPTH:
            raise _refused(call, f"calls {target.name} recursively", "write the recursion as a loop")
        has_result = isinstance(call.operands[0], Args)
        results = groups[0].items if has_result else ()
        arguments = groups[-1].items if len(groups) > has_result else ()
        actual = {}
        for formal, given in zip(callee.params + callee.returns, (*arguments, *results), strict=False):
            if not isinstance(given, Sym):
                raise _refused(call, "passes something that is no parameter variable", "recompile the kernel")
            actual[formal.name] = given.name
        self.calls += 1
        suffix = f"~{self.calls}"
        after = f"{function.name}{suffix}"
        if call.guard is not None:
            skip = Guard(call.guard.register, not call.guard.negated)
            yield Instruction("bra", (Sym(after),), call.line, skip, call.source)
        yield from self.expand(callee, suffix, actual, after, depth + 1)
        yield Label(after, call.line)


def _refused(call: Instruction, what: str, remedy: str) -> UnsupportedError:
    return UnsupportedError(f"call at {call.where} {what}; the model cannot", remedy=remedy)


def _param_to_local(ins: Instruction, kernel_params: set[str], *, called: bool) -> Instruction:
    """Accesses to the parameters of device functions are accesses to local memory after inlining."""
    if ins.base not in ("ld", "st") or "param" not in ins.parts:
        return ins
    address = next((o for o in ins.operands if isinstance(o, Mem)), None)
    if address is None:
        return ins  # which lowering then refuses
    local = address.base.name not in kernel_params if isinstance(address.base, Sym) else called
    if not local:
        return ins
    opcode = ins.opcode.replace(".param::func", ".local").replace(".param", ".local")
    return replace(ins, opcode=opcode)


def _rename(ins: Instruction, rename: Callable[[str], str]) -> Instruction:
    def operand(o: Operand) -> Operand:
        match o:
            case Reg(name):
                return Reg(rename(name))
            case Sym(name):
                return Sym(rename(name))
            case Mem(base, offset, extra):
                moved = operand(base)
                assert isinstance(moved, Reg | Sym | Int)  # noqa: S101 -- a base stays what it is
                return Mem(moved, offset, extra)
            case Vec(items):
                return Vec(tuple(map(operand, items)))
            case Args(items):
                return Args(tuple(map(operand, items)))
            case Pair(first, second):
                return Pair(operand(first), operand(second))
            case Not(Reg(name)):
                return Not(Reg(rename(name)))
            case _:
                return o

    guard = ins.guard and Guard(rename(ins.guard.register), ins.guard.negated)
    return replace(ins, operands=tuple(map(operand, ins.operands)), guard=guard)
