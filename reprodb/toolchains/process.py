"""Run a tool: an argument list, a cleaned environment, a time limit, a bounded log. Never a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

# Kept of a tool's output: its beginning and its end, where compilers say what is wrong.
LOG_BYTES = 64 * 1024

# Variables that tools are given. Everything else stays behind.
ALLOWED_VARIABLES = ("PATH", "HOME", "TMPDIR")

# Variables that change what a compiler does. They never reach one; a run records which were set.
STEERING_VARIABLES = (
    "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "NVCC_OUTPUT_DIR", "NVRTC_PREPEND_FLAGS",
    "NVRTC_APPEND_FLAGS", "NVRTC_DISABLE_CONCURRENT_NVVM", "NVRTC_DISABLE_PCH", "NVRTC_PCH_HEAP_SIZE",
    # nvcc.profile appends to these, so that the environment's value would come first.
    "INCLUDES", "SYSTEM_INCLUDES", "LIBRARIES", "CUDAFE_FLAGS", "PTXAS_FLAGS", "OPENCC_FLAGS",
    "CICC_PATH", "NVVMIR_LIBRARY_DIR", "CUDA_INC_PATH", "CUDA_LIB_PATH",
    # The host compiler's own.
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "SOURCE_DATE_EPOCH",
    "CCC_OVERRIDE_OPTIONS", "LD_LIBRARY_PATH", "LD_PRELOAD",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finished:
    """How a tool ended. `code` is negative for a signal; `log` is standard output and error together."""

    code: int
    log: str
    timed_out: bool = False
    started: bool = True

    @property
    def ok(self) -> bool:
        return self.code == 0 and self.started and not self.timed_out

    @property
    def reason(self) -> str:
        """Why it failed, in words: `exit code 1`, `killed by SIGSEGV`, `ran past its time limit`."""
        if not self.started:
            return "could not be started"
        if self.timed_out:
            return "ran past its time limit and was stopped"
        return f"killed by {signal_name(-self.code)}" if self.code < 0 else f"exit code {self.code}"


class Runner(Protocol):
    """The seam where tests stand in for a tool. Standard output goes to the file `output` if named."""

    def __call__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        seconds: float,
        output: Path | None = None,
    ) -> Finished: ...


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def clean_environment(environ: Mapping[str, str], folder: Path | None = None) -> dict[str, str]:
    """What a tool gets of `environ`, with messages in English, a fixed date, and `folder` for its scraps."""
    kept = {name: environ[name] for name in ALLOWED_VARIABLES if name in environ}
    kept |= {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    if folder is not None:
        kept["TMPDIR"] = str(folder)
    return kept


def dropped_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of `environ` that steer compilers and are kept from them, sorted."""
    return tuple(sorted(name for name in STEERING_VARIABLES if environ.get(name)))


def clip(text: str, limit: int = LOG_BYTES) -> str:
    """A log's beginning and end where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters left out …]\n{text[-half:]}"


def read_log(file: IO[bytes], limit: int = LOG_BYTES) -> str:
    """A log file as text, its middle left out where it is longer than `limit` bytes."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= limit:
        return file.read().decode(errors="replace")
    head = file.read(limit // 2)
    file.seek(size - limit // 2)
    tail = file.read(limit // 2)
    left_out = f"\n[… {size - limit:,} bytes left out …]\n".encode()
    return (head + left_out + tail).decode(errors="replace")


def run(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    output: Path | None = None,
) -> Finished:
    """Run a tool in a process group of its own and end the whole group at the time limit.

    Output goes to a file, so that a tool which prints megabytes neither blocks nor fills memory.
    """
    return _run(arguments, folder, environment, seconds, output, own_group=True)


def run_in_group(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    output: Path | None = None,
) -> Finished:
    """The same inside the caller's process group: whoever ends that group ends the tool and its children.

    For build workers, whose group the pool ends at the time limit.
    """
    return _run(arguments, folder, environment, seconds, output, own_group=False)


def _run(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    output: Path | None,
    *,
    own_group: bool,
) -> Finished:
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile())
        out = stack.enter_context(output.open("wb")) if output else log
        try:
            process = subprocess.Popen(
                list(arguments), cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL,
                stdout=out, stderr=log, start_new_session=own_group,
            )  # fmt: skip
        except OSError as error:
            return Finished(127, f"{arguments[0]}: {error.strerror or error}", started=False)
        timed_out = False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            if own_group:
                end_group(process)
            else:
                process.kill()
                process.wait()
        return Finished(process.returncode, read_log(log), timed_out)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a group, with all its children, and reap it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def python_child(module: str, *arguments: str) -> list[str]:
    """Arguments that run `reprodb.MODULE.main()` in a fresh interpreter, wherever reprodb was imported from.

    `-P` keeps the working folder out of the module search, so that no file in a suite shadows the library.
    """
    root = Path(__file__).resolve().parents[2]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); from {module} import main; main()"
    return [sys.executable, "-P", "-c", code, *arguments]
