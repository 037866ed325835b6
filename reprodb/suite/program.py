"""Kernels of `kind = "python"` and `kind = "command"`: what their manifests say in place of stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reprodb import placeholders
from reprodb.domain import Input, Program, Role
from reprodb.suite.buffers import BufferPlan
from reprodb.suite.sources import PLAIN_PATH_FORM, is_file, is_plain_path, resolve_inside
from reprodb.suite.tables import IDENTIFIER_FORM, Problem, Table, is_identifier, shown, suggest

CUDA, PYTHON, COMMAND = "cuda", "python", "command"

# The keys of [kernel] that a kind must and may have beside those of all.
NEEDED = {CUDA: ("source",), PYTHON: ("callable",), COMMAND: ("source", "run")}
ALLOWED: dict[str, tuple[str, ...]] = {
    CUDA: (),
    PYTHON: ("needs",),
    COMMAND: ("build", "files", "outputs", "cubins", "device", "needs", "profiles"),
}
MOST_WORDS = 200
_CALLABLE = f"FILE.py:FUNCTION, the function {IDENTIFIER_FORM}"


def kind_of(data: Mapping[str, Any]) -> str:
    """The kind of a manifest's kernel; `cuda` where it says none, or one that there is not."""
    kernel = data.get("kernel")
    kind = kernel.get("kind", CUDA) if isinstance(kernel, dict) else CUDA
    return kind if isinstance(kind, str) and kind in NEEDED else CUDA


def source_of(root: Path, manifest: str, head: Table, kind: str) -> str:
    """The source's path in the suite: of a python kernel the module that its callable lies in."""
    if "kind" in head.data:
        head.choice("kind", NEEDED)
    key = "callable" if kind == PYTHON else "source"
    text = head.text(key)
    if kind == PYTHON and ":" not in text:
        raise head.wrong(key, _CALLABLE)
    return _inside(root, manifest, head, key, text.rpartition(":")[0] if kind == PYTHON else text)


def _inside(root: Path, manifest: str, head: Table, key: str, text: str) -> str:
    path = resolve_inside(root, (root / manifest).parent, text)
    if path is None:
        raise head.wrong(key, f"a file under {root}", "copy the file into the suite")
    if not is_file(path):
        raise head.wrong(key, "an existing file, named from the manifest's folder")
    shown_path = path.relative_to(root.resolve()).as_posix()
    if not is_plain_path(shown_path):
        raise head.wrong(key, PLAIN_PATH_FORM)
    return shown_path


def read_program(
    root: Path, head: Table, kind: str, inputs: Mapping[str, Input], plans: Sequence[BufferPlan]
) -> Program | None:
    """The program of a [kernel] table, None where reprodb compiles and launches the kernel itself."""
    if kind == CUDA:
        return None
    manifest = head.where.partition(":")[0]
    for plan in plans:
        if plan.role is Role.SCRATCH or plan.init != "poison":
            raise Problem(plan.where, f"buffer {plan.name!r}", "results and witnesses without an init")
    if kind == PYTHON:
        function = head.text("callable").rpartition(":")[2]
        if not is_identifier(function):
            raise head.wrong("callable", _CALLABLE)
        return Program(PYTHON, function=function, needs=_modules(head))
    recorded = [plan.name for plan in plans]
    run = _words(head, "run", head.data.get("run"))
    build = _commands(head)
    numbers = head.table("defines")
    for command in build:
        _check(head, "build", command, placeholders.BUILD, {"define": numbers})
    known = {"input": inputs, "npy": inputs, "output": recorded, "define": numbers}
    _check(head, "run", run, placeholders.RUN, known)
    if not any(place == "output" for place, _ in placeholders.used(run)):
        raise head.wrong("run", "a command that is told where to write: {output:BUFFER}")
    return Program(
        COMMAND,
        device=head.choice("device", ("gpu", "cpu")) if "device" in head.data else "gpu",
        files=tuple(_inside(root, manifest, head, "files", text) for text in head.texts("files")),
        build=build,
        run=run,
        outputs=_outputs(head, recorded),
        cubins=tuple(_file(head, "cubins", text) for text in head.texts("cubins")),
        needs=_modules(head),
        profiles=head.texts("profiles"),
    )


def _modules(head: Table) -> tuple[str, ...]:
    names = head.texts("needs")
    if not all(all(map(is_identifier, name.split("."))) for name in names):
        raise head.wrong("needs", "names of Python modules")
    return names


def _commands(head: Table) -> tuple[tuple[str, ...], ...]:
    """`build`: a list of words, or several of them."""
    value = head.data.get("build", [])
    if isinstance(value, list) and value and all(isinstance(each, list) for each in value):
        return tuple(_words(head, "build", each) for each in value)
    return (_words(head, "build", value),) if value else ()


def _words(head: Table, key: str, value: object) -> tuple[str, ...]:
    words = value if isinstance(value, list) else []
    if not 0 < len(words) <= MOST_WORDS or not all(
        isinstance(w, str) and w and w.isprintable() for w in words
    ):
        raise head.wrong(key, "a command as a list of words: ['{nvcc}', '-o', '{out}/sum', '{source}']")
    return tuple(words)


def _check(
    head: Table, key: str, words: Iterable[str], allowed: Sequence[str], known: Mapping[str, Iterable[str]]
) -> None:
    """Refuse a placeholder that there is not, or one of a name that there is not."""
    for place, name in placeholders.used(words):
        if place not in allowed or (place in placeholders.NAMED) != bool(name):
            forms = ", ".join(f"{{{p}:NAME}}" if p in placeholders.NAMED else f"{{{p}}}" for p in allowed)
            text = f"{{{place}:{name}}}" if name else f"{{{place}}}"
            raise Problem(head.where, f"{key} uses {text}", forms, suggest(place, allowed))
        if name and name not in known.get(place, ()):
            names = ", ".join(known.get(place, ())) or "none is declared"
            near = suggest(name, known.get(place, ()))
            raise Problem(head.where, f"{key} uses {{{place}:{name}}}", names, near)


def _outputs(head: Table, recorded: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The file of every recorded buffer, BUFFER.bin where none is named."""
    given = head.table("outputs")
    for name in given:
        if name not in recorded:
            raise Problem(head.where, f"outputs names {name!r}", ", ".join(recorded), suggest(name, recorded))
    found = tuple((name, _file(head, "outputs", given.get(name, f"{name}.bin"))) for name in recorded)
    if len({file for _, file in found}) < len(found):
        raise head.wrong("outputs", "a file of its own for every buffer")
    return found


def _file(head: Table, key: str, name: object) -> str:
    if not isinstance(name, str) or not is_plain_path(name):
        raise Problem(head.where, f"{key} = {shown(name)}", PLAIN_PATH_FORM)
    return name
