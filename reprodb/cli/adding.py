"""`reprodb kernels add NAME FILE.cu`: a kernel's folder with a first manifest, checked and tried."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.options import SuiteOption, own_profiles
from reprodb.domain import Status
from reprodb.errors import ReprodbError, UsageError

if TYPE_CHECKING:
    from reprodb.starting.signatures import Signature

TRIAL_REPETITIONS = 3


def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The kernel's name, and its folder's.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE.cu", help="Its source; copied unless it lies in the suite.")
    ],
    *,
    entry: Annotated[
        list[str] | None,
        typer.Option("--entry", metavar="NAME", help="Only these functions, in this order (repeatable)."),
    ] = None,
    suite: SuiteOption = None,
    force: Annotated[
        bool, typer.Option("--force", "--yes", "-y", help="Replace files that say something else.")
    ] = False,
    trial: Annotated[
        bool, typer.Option("--try/--no-try", help="Build it and execute it on the model, three times.")
    ] = True,
) -> None:
    """Make a kernel of a CUDA source: its stages, arguments and a first guess at its buffers.

    The manifest is valid, or nothing is left behind. What was guessed stands in it as a comment.
    """
    from reprodb.starting.guesses import guess, manifest
    from reprodb.starting.places import NewFile, State, write_files
    from reprodb.starting.signatures import without_comments
    from reprodb.suite import load_suite, source_files
    from reprodb.suite.sources import MOST_BYTES, PLAIN_PATH_FORM, is_plain_path
    from reprodb.suite.tables import NAME_FORM, is_name

    root = suite or Path("kernels")
    if not is_name(name):
        raise UsageError(f"{name!r} is no name of a kernel", allowed=NAME_FORM)
    if not root.is_dir():
        raise UsageError(
            f"there is no suite {root}", remedy="reprodb init makes one; or name it with --suite"
        )
    text = _source(file, MOST_BYTES)
    signatures = _chosen(text, str(file), entry or [])
    inside = file.resolve().is_relative_to(root.resolve())
    recorded = file.resolve().relative_to(root.resolve()).as_posix() if inside else file.name
    if not is_plain_path(recorded):
        raise UsageError(f"source file {recorded!r} has an unfit name", allowed=PLAIN_PATH_FORM)
    place = os.path.relpath(file.resolve(), root.resolve() / name) if inside else file.name
    guessed = guess(name, Path(place).as_posix(), without_comments(text), signatures)
    folder = root / name
    new = not folder.exists()
    files = [NewFile(f"{name}/kernel.toml", manifest(guessed))]
    if not inside:
        files.append(NewFile(f"{name}/{file.name}", text))
    ask = _say_yes if force else _asked if sys.stdin is not None and sys.stdin.isatty() else None
    before = {f.path: _bytes(root / f.path) for f in files}
    done = write_files(root, files, ask)
    try:
        loaded = load_suite(root)
        kernel = next(k for k in loaded.kernels if k.manifest == f"{name}/kernel.toml")
        source_files(loaded, kernel)  # what it includes lies in the suite
    except ReprodbError:
        _undo(root, before, folder if new else None)
        raise
    for path, state in done:
        typer.echo(f"{root / path}: {state.value}")
    if any(state is State.KEPT for _, state in done):
        return
    for stage, signature in zip(kernel.stages, signatures, strict=True):
        passed = ", ".join(
            f"{p.name}: {a.name}" for p, a in zip(signature.parameters, stage.args, strict=True)
        )
        typer.echo(f"{stage.entry}({passed})")
    for line in (*guessed.check, *_left_behind(text, file, folder)):
        typer.echo(f"check: {line}")
    if trial:
        typer.echo(_tried(root, name))


def _source(file: Path, most: int) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(most + 1)
        if len(data) > most:
            raise UsageError(f"{file} is larger than {most >> 20} MiB")
        return data.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", remedy="name a CUDA source") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text", allowed="a CUDA source") from None


def _left_behind(text: str, file: Path, folder: Path) -> Iterator[str]:
    """The includes that lie beside the file and not beside its copy in the suite."""
    from reprodb.suite.sources import is_file, quoted_includes

    for name in quoted_includes(text):
        if is_file(file.parent / name) and not is_file(folder / name):
            yield f"{file.name} includes {name}, which is not in the suite yet: copy it into {folder}"


def _chosen(text: str, file: str, entries: list[str]) -> tuple[Signature, ...]:
    from reprodb.starting.signatures import read_signatures
    from reprodb.suite.tables import suggest

    found = read_signatures(text, file)
    if not entries:
        return found
    by_name = {signature.entry: signature for signature in found}
    for name in entries:
        if name not in by_name:
            raise UsageError(
                f"{file} has no function {name!r}", allowed=", ".join(by_name), remedy=suggest(name, by_name)
            )
    return tuple(by_name[name] for name in entries)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _undo(root: Path, before: dict[str, bytes | None], new: Path | None) -> None:
    """The files as they were."""
    for path, data in before.items():
        if data is None:
            (root / path).unlink(missing_ok=True)
        else:
            (root / path).write_bytes(data)
    if new is not None:
        shutil.rmtree(new, ignore_errors=True)


def _tried(root: Path, name: str) -> str:
    """How building and executing it under the first profile went, in a line: a hint, and no answer."""
    from reprodb.cli.flow import RunOptions, make_plan, opened_bench
    from reprodb.cli.progress import Silent, describe

    with tempfile.TemporaryDirectory(prefix="reprodb-trial-") as scratch:
        options = RunOptions(
            suite=root,
            profiles_file=own_profiles(None),
            kernels=(name,),
            device="model",
            repetitions=TRIAL_REPETITIONS,
            jobs=1,
            store=Path(scratch),
        )
        try:
            with opened_bench(options, Silent()) as bench:
                plan = make_plan(options, bench)
                results = [made for made, _ in bench.results(replace(plan, builds=plan.builds[:1]), "trial")]
        except ReprodbError as error:
            return f"not tried: {error.problem.splitlines()[0]}"
    ends = [f"tried on the model: {describe(result)}" for result in results]
    if any(result.status is not Status.OK for result in results):
        ends.append(f"mend {root / name / 'kernel.toml'} (docs/suites.md says what each key is)")
    return "\n".join(ends)


def _say_yes(question: str) -> bool:
    return True


def _asked(question: str) -> bool:
    return typer.confirm(question, default=False)
