"""Runs a kernel that is a command: a process a repetition, outputs read from the files it writes."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reprodb import placeholders
from reprodb.domain import Artifact, Buffer, Case, CodeOrigin, Kernel, Lane, Pairs, Program, Samples
from reprodb.errors import ExecutionError
from reprodb.executors import offspring
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import Executor, collect
from reprodb.executors.task import Prepared
from reprodb.patterns import storage
from reprodb.stress import NO_PRESSURE
from reprodb.toolchains.process import Runner, run_in_group

# What a program sees of the environment: enough to find the driver, and what a run records that steers CUDA.
_KEPT = frozenset({"PATH", "LANG", "TZ", "LD_LIBRARY_PATH"})
_KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "CUBLAS_")
# More than the header of any .npy file of plain elements takes.
_NPY_HEADER = 64 << 10
# The pool ends a task that runs too long; this is longer than any limit there.
_NEVER = 7 * 24 * 3600.0


class CommandExecutor:
    """`device` is the lane's executor; `prepared` has the program's files and the folder of its build."""

    def __init__(
        self,
        device: Executor,
        prepared: Prepared,
        *,
        arrays: Arrays | None = None,
        runner: Runner = run_in_group,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.lane: Lane = device.lane
        self.pressure = NO_PRESSURE
        self._device = device
        self._prepared = prepared
        self._arrays = arrays or Arrays()
        self._run = runner
        self._environ = environ

    def libraries(self) -> Pairs:
        return self._device.libraries()

    def execute(
        self, artifact: Artifact, kernel: Kernel, case: Case, repetitions: int, *, seed: int = 0
    ) -> Samples:
        """Every repetition in a process of its own, or all in one where the command takes {repetitions}."""
        program = kernel.program
        assert program is not None  # noqa: S101 -- it is why this executor was chosen
        at_once = any(place == "repetitions" for place, _ in placeholders.used(program.run))
        raws: dict[str, list[bytes]] = {b.name: [] for b in case.recorded}
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="reprodb-run-") as name:
            folder = Path(name)
            values = self._values(kernel, program, case, folder) | {"repetitions": str(repetitions)}
            count = repetitions if at_once else 1
            given = _stamps(folder / "in")
            for _ in range(1 if at_once else repetitions):
                self._once(program, values, folder)
                if changed := sorted(given.items() ^ _stamps(folder / "in").items()):
                    raise ExecutionError(
                        f"the command changed its input {changed[0][0]}", remedy="work on a copy of it"
                    )
                for buffer in case.recorded:
                    file = folder / "out" / dict(program.outputs)[buffer.name]
                    raws[buffer.name] += _read(file, buffer, count)
        outputs = tuple(collect(buffer, raws[buffer.name]) for buffer in case.recorded)
        return Samples(outputs, CodeOrigin.PROGRAM, time.perf_counter() - started)

    def _values(
        self, kernel: Kernel, program: Program, case: Case, folder: Path
    ) -> dict[str, str | tuple[str, ...]]:
        """The run's placeholders; the inputs it names are written, its sources laid out."""
        place = Path(self._prepared.place)
        root = place / "src" if program.build else folder / "src"
        if not program.build:
            for file in self._prepared.files:
                target = root / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(file.text, "utf-8")
        values: dict[str, str | tuple[str, ...]] = {
            "source": str(root / kernel.source),
            "folder": str((root / kernel.source).parent),
            "out": str(place / "out"),
            "python": sys.executable,
            "n": str(case.n),
        }
        values |= {f"define:{name}": value for name, value in kernel.defines}
        values |= {f"output:{name}": str(folder / "out" / file) for name, file in program.outputs}
        wanted = set(placeholders.used(program.run))
        (folder / "in").mkdir()
        for declared in case.inputs:
            array = self._arrays.get(declared)
            raw, npy = folder / "in" / f"{declared.name}.bin", folder / "in" / f"{declared.name}.npy"
            if ("input", declared.name) in wanted:
                array.tofile(raw)
            if ("npy", declared.name) in wanted:
                np.save(npy, array, allow_pickle=False)
            values |= {f"input:{declared.name}": str(raw), f"npy:{declared.name}": str(npy)}
        return values

    def _once(self, program: Program, values: placeholders.Values, folder: Path) -> None:
        out, scraps = folder / "out", folder / "tmp"
        for path in (out, scraps):
            path.mkdir(exist_ok=True)
        for _, file in program.outputs:  # an output of the repetition before must not stand for this one's
            (out / file).parent.mkdir(parents=True, exist_ok=True)
            (out / file).unlink(missing_ok=True)
        words = placeholders.filled(program.run, values)
        before = offspring.descendants(os.getpid())
        try:
            ended = self._run(words, scraps, self._environment(scraps), _NEVER)
        finally:  # what it left running would go on beside the next repetition
            offspring.end_all(but=before)
        if not ended.ok:
            raise ExecutionError(f"{Path(words[0]).name}: {ended.reason}", detail=ended.log)

    def _environment(self, scraps: Path) -> dict[str, str]:
        kept = {k: v for k, v in self._environ.items() if k in _KEPT or k.startswith(_KEPT_PREFIXES)}
        platform: Any = getattr(self._device, "platform", None)
        found = platform().device if platform is not None and self.lane is Lane.MEASURED else None
        chosen = {"CUDA_VISIBLE_DEVICES": found.uuid} if found is not None else {}
        return {**kept, **chosen, "HOME": str(scraps), "TMPDIR": str(scraps), "LC_ALL": "C"}


def _stamps(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What tells a written file from an untouched one, by name: inode, size and time of the last write."""
    entries = ((entry.name, entry.lstat()) for entry in folder.iterdir())
    return {name: (found.st_ino, found.st_size, found.st_mtime_ns) for name, found in entries}


def _read(path: Path, buffer: Buffer, count: int) -> list[bytes]:
    """The bytes of `count` repetitions of a buffer, from a raw or a .npy file."""
    wanted = buffer.nbytes * count
    try:
        if path.suffix == ".npy":
            if path.stat().st_size > wanted + _NPY_HEADER:  # before it is read: it may be of any size
                raise ExecutionError(
                    f"{path.name} has {path.stat().st_size} bytes; {buffer.name} takes {wanted}"
                )
            array = np.load(path, allow_pickle=False)
            if buffer.fields or array.dtype != storage(buffer.dtype):
                raise ExecutionError(f"{path.name} holds {array.dtype}, and {buffer.name} is {buffer.dtype}")
            data = np.ascontiguousarray(array).tobytes()
            size = len(data)
        else:
            size = path.stat().st_size
            data = path.read_bytes() if size == wanted else b""
    except FileNotFoundError:
        raise ExecutionError(
            f"the command wrote no {path.name}", remedy=f"write {buffer.name} to {{output:{buffer.name}}}"
        ) from None
    except (OSError, ValueError) as error:
        raise ExecutionError(f"{path.name} cannot be read: {error}") from error
    if size != wanted:
        raise ExecutionError(
            f"{path.name} has {size} bytes; {count} × {buffer.name} takes {wanted}",
            remedy="with {repetitions} in run, write one copy of the output after the other",
        )
    one = buffer.nbytes
    return [data[place * one : (place + 1) * one] for place in range(count)]
