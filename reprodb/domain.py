"""The nouns: frozen values that each step takes and returns. No I/O and no heavy imports here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def later(default: T) -> T:
    """A field that came after records of its class were written: left out of the record at its default.

    Digests of records are keys in databases and bundles. What was written before the field was there must
    read, and write, as it did (see `codec`).
    """
    return field(default=default, metadata={"later": True})


class Lane(StrEnum):
    """Where bits come from: a GPU ran code, a CPU executed PTX, a program ran on the CPU. Never mixed."""

    MEASURED = "measured"
    MODELLED = "modelled"
    HOST = "host"


class Determinism(StrEnum):
    """The guarantee a kernel or buffer declares, in CUB's words."""

    NOT_GUARANTEED = "not_guaranteed"
    RUN_TO_RUN = "run_to_run"
    GPU_TO_GPU = "gpu_to_gpu"

    @property
    def guaranteed(self) -> bool:
        return self is not Determinism.NOT_GUARANTEED


class Role(StrEnum):
    """What a buffer is for: judged, judged as an intermediate, or neither recorded nor judged."""

    RESULT = "result"
    WITNESS = "witness"
    SCRATCH = "scratch"


class Status(StrEnum):
    """How a result ended. Everything but `ok` is the verdict `no_result`."""

    OK = "ok"
    BUILD_FAILED = "build_failed"
    LAUNCH_FAILED = "launch_failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    UNSUPPORTED = "unsupported"


class Accuracy(StrEnum):
    """The column beside the bits: within the case's tolerance of its high-precision reference or not."""

    OK = "ok"
    OUTSIDE = "outside"
    UNKNOWN = "unknown"


class CodeOrigin(StrEnum):
    """What was executed: the recorded cubin, PTX that the driver compiled or the model took, or a program."""

    CUBIN = "cubin"
    JIT = "jit"
    PTX = "ptx"
    LIBRARY = "library"
    PROGRAM = "program"


# Bytes of one element. A struct's size is declared by its buffer.
DTYPE_BYTES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
}

# How the note of a result begins whose input hides every order of the sum (see `friendly`).
FRIENDLY = "this input cannot show a difference"

Pairs = tuple[tuple[str, str], ...]
Dim3 = tuple[int, int, int]


# --- The suite ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct element; `offset` in bytes from the start of the element."""

    name: str
    dtype: str
    offset: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """A device buffer of `shape` elements, sizes resolved for its case.

    `dtype` is a key of DTYPE_BYTES, or `struct` with `fields` and `itemsize`. `init` is `poison`
    (0xA5 bytes, refilled before each repetition), `zero`, or `copy:NAME` to start as a copy of input NAME.
    `determinism` is the buffer's own guarantee where it differs from the kernel's.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role
    init: str = "poison"
    determinism: Determinism | None = None
    fields: tuple[Field, ...] = ()
    itemsize: int = 0

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def element_bytes(self) -> int:
        return self.itemsize if self.fields else DTYPE_BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of the device allocation, padding of structs included."""
        return self.elements * self.element_bytes

    def pack(self, raw: bytes) -> bytes:
        """The pattern of the raw device bytes: a struct's declared fields alone, padding left out."""
        if not self.fields:
            return raw
        step = self.itemsize
        spans = [(f.offset, f.offset + DTYPE_BYTES[f.dtype]) for f in self.fields]
        return b"".join(
            raw[start + lo : start + hi] for start in range(0, len(raw), step) for lo, hi in spans
        )


class ArgKind(StrEnum):
    INPUT = "input"
    SIZE = "size"
    BUFFER = "buffer"
    SCALAR = "scalar"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Arg:
    """One kernel argument. A size or BATCH is an unsigned 64-bit count, a scalar its bytes."""

    kind: ArgKind
    name: str
    dtype: str = ""
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class Stage:
    """One `__global__` launch with a constant block; `shared` is dynamic shared memory in bytes.

    `grid` is constant too, but for the dimensions that `per_batch` marks: these are multiplied by BATCH.
    """

    entry: str
    grid: Dim3
    block: Dim3
    args: tuple[Arg, ...]
    shared: int = 0
    per_batch: tuple[bool, bool, bool] = later((False, False, False))

    @property
    def dims(self) -> tuple[str, ...]:
        """The grid in words, without trailing ones: `16` and `BATCH`, `2*BATCH` where it is multiplied."""
        used = max((i for i in range(3) if self.grid[i] != 1 or self.per_batch[i]), default=0)
        told = (
            f"{size}*BATCH" if scaled and size > 1 else "BATCH" if scaled else str(size)
            for size, scaled in zip(self.grid, self.per_batch, strict=True)
        )
        return tuple(told)[: used + 1]

    def at(self, batch: int) -> Stage:
        """The launch of a batch of so many requests."""
        x, y, z = (
            size * batch if scaled else size for size, scaled in zip(self.grid, self.per_batch, strict=True)
        )
        return replace(self, grid=(x, y, z))


@dataclass(frozen=True, slots=True)
class Input:
    """A named input array: a pattern of the table in `inputs`, its parameters, element type and count."""

    name: str
    pattern: str
    n: int
    dtype: str = "float32"
    params: tuple[tuple[str, int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """A named input pattern and size for a kernel, with the buffers at their sizes for it.

    `reference` names a high-precision reference in `accuracy`; `expected` pins the bits of one-element
    outputs whose answer is known (`("total", "0x3f800000")`).
    """

    name: str
    n: int
    inputs: tuple[Input, ...]
    buffers: tuple[Buffer, ...]
    reference: str | None = None
    rel_tol: float | None = None
    expected: Pairs = ()

    @property
    def recorded(self) -> tuple[Buffer, ...]:
        """The buffers whose bits are recorded: results and witnesses."""
        return tuple(b for b in self.buffers if b.role is not Role.SCRATCH)


@dataclass(frozen=True, slots=True)
class Composition:
    """How requests are served: the probes among strangers, BATCH of them a launch.

    The first `probes` of all `requests` are served once a composition, with at least `strangers` others.
    `rows` names the input and the buffers that have a row a request: launches get their first row, and what
    is recorded are the probes' rows in the order of the requests. A repetition of a batch-invariant kernel is
    one composition, the first ones of the sizes in `batches`; another kernel's is one of every size, and what
    is recorded has one part a size. Order and strangers are in `compositions`. `serial` names the kernel that
    serves one request a launch and has the right bits.
    """

    requests: int
    probes: int
    strangers: int
    batches: tuple[int, ...]
    seed: int
    rows: tuple[str, ...]
    serial: str | None = None


@dataclass(frozen=True, slots=True)
class OrderProbe:
    """How a kernel's order of summation is measured: the input that is probed, and where the sum is read.

    `defines` are added for the probing build alone, such as one that replaces the summed expression by x.
    """

    input: str
    output: str
    element: int = 0
    defines: Pairs = ()


@dataclass(frozen=True, slots=True)
class Program:
    """How a kernel runs that reprodb neither compiles nor launches: a Python callable, or commands.

    `function` is the callable in the kernel's source. `build` are commands run once a build, `run` is run for
    every repetition; words hold placeholders (see `placeholders`). `outputs` pairs each recorded buffer with
    the file that the run writes, `cubins` are files of the build that hold its GPU code, `files` further ones
    of the suite. `device` is gpu or cpu. `needs` are Python modules without which it cannot run, `profiles`
    globs of those that a program of a compiler is for; none means all.
    """

    kind: str  # python | command
    device: str = "gpu"
    function: str = ""
    files: tuple[str, ...] = ()
    build: tuple[tuple[str, ...], ...] = ()
    run: tuple[str, ...] = ()
    outputs: Pairs = ()
    cubins: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """One reduction with a declared determinism. `source` and `manifest` are paths relative to the suite."""

    name: str
    source: str
    operation: str
    determinism: Determinism
    accumulator: str
    defines: Pairs
    shape_defines: tuple[str, ...]  # the defines that launch shapes or buffer sizes use
    stages: tuple[Stage, ...]
    cases: tuple[Case, ...]
    order: str | None = None
    tags: tuple[str, ...] = ()
    batch_invariant: bool = False
    manifest: str = ""
    # The multiprocessors that device-derived shapes were computed for; None: shapes are constants.
    sm_count: int | None = later(None)
    atomics: str = later("")  # why the float atomics of a guaranteed kernel do not move its bits
    teaches: str = later("")  # what it is in the suite for, one line
    no_reference: str = later("")  # why nothing says what its answer is
    fingerprint: OrderProbe | None = later(None)
    program: Program | None = later(None)  # None: reprodb compiles the source and launches the stages
    composition: Composition | None = later(None)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source or included file of a kernel: path relative to the suite, and its text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Suite:
    """A folder of kernels under a stable name that is part of every scope.

    `default_tags` are those of the kernels that run where neither kernels nor tags are asked for; all of them
    where it is empty.
    """

    name: str
    root: Path
    kernels: tuple[Kernel, ...]
    default_tags: tuple[str, ...] = ()


# --- Builds ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Profile:
    """A named set of build settings, `extends` already resolved. None leaves the compiler's default."""

    name: str
    compiler: str  # nvrtc | nvcc
    toolkit: str  # a version specifier: 12.6.* or >=13,<14
    fmad: bool = True
    fast_math: bool = False
    ftz: bool | None = None
    prec_div: bool | None = None
    prec_sqrt: bool | None = None
    extra: tuple[str, ...] = ()
    arch: str = "native"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """One installed compiler. `components` are the parts that are in its identity (ptxas, host compiler)."""

    compiler: str
    version: str  # exact: 12.6.85
    path: str  # the library (nvrtc) or the executable (nvcc)
    origin: str  # where it was found: wheel, cache, PATH, CUDA_HOME, /usr/local
    architectures: tuple[str, ...] = ()
    components: Pairs = ()

    @property
    def label(self) -> str:
        return f"{self.compiler} {self.version}"

    @property
    def identity(self) -> Pairs:
        """What makes two toolchains the same build tool; the place where one lies is not in it."""
        return (("compiler", self.compiler), ("version", self.version), *self.components)


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """One compilation to do: sources already read, so that a worker needs no suite folder."""

    kernel: str
    entries: tuple[str, ...]
    source: str
    files: tuple[SourceFile, ...]
    defines: Pairs
    profile: Profile
    toolchain: Toolchain
    arch: str


@dataclass(frozen=True, slots=True)
class FunctionCounts:
    """Opcode counts of one `__global__` function: `(("FFMA", 1), ("FADD", 9), …)`, sorted by name.

    `sass` counts base opcodes and the modifiers worth telling apart (`FADD.FTZ`, `MUFU.RCP`);
    `ptx` counts PTX opcodes with their types and rounding. The digests are of the function's own normalised
    code with what it calls and reads: None where there is no such text, or an older reprodb wrote it.
    """

    function: str
    ptx: tuple[tuple[str, int], ...] = ()
    sass: tuple[tuple[str, int], ...] = ()
    ptx_digest: str | None = later(None)
    sass_digest: str | None = later(None)


@dataclass(frozen=True, slots=True)
class Code:
    """What identifies generated code: digests of normalised text, and counts. Raw bytes never do."""

    ptx: str | None  # SHA-256 of normalised PTX
    sass: str | None  # SHA-256 of normalised SASS; None without a disassembler
    constants: str | None  # SHA-256 of the constant banks that the compiler filled
    counts: tuple[FunctionCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class Build:
    """What made the code of a result, whole: kept with every result."""

    key: str  # the artifact's content key
    profile: Profile
    toolchain: Toolchain
    arch: str  # sm_90
    options: tuple[str, ...]
    defines: Pairs
    sources: Pairs  # (path in the suite, SHA-256), the kernel's source first, then includes sorted
    status: Status
    log: str = ""
    code: Code | None = None

    @property
    def source_digest(self) -> str:
        from reprodb.digest import content_key

        return content_key("reprodb.sources", *(part for pair in self.sources for part in pair))


@dataclass(frozen=True, slots=True)
class Artifact:
    """What one toolchain made of one kernel under one profile. Texts are None where a step failed."""

    build: Build
    ptx: str | None = None
    cubin: bytes | None = None
    sass: str | None = None
    cached: bool = False


# --- Runs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU of a run, read from the running context (an index is only a label)."""

    name: str
    uuid: str
    compute_capability: str  # 9.0
    sm_count: int
    memory: int  # bytes
    index: int = 0

    @property
    def arch(self) -> str:
        return "sm_" + self.compute_capability.replace(".", "")


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a run happened, and what else steers bits there."""

    host: str
    os: str
    python: str
    cpu: str
    reprodb: str
    device: Device | None = None
    driver: str | None = None  # 580.159.04
    cuda_driver: str | None = None  # newest CUDA the driver speaks: 13.0
    cuda_runtime: str | None = None
    libraries: Pairs = ()  # versions of loaded libraries: cupy, llvmlite, LLVM, numpy
    variables: Pairs = ()  # set variables that steer bits
    dropped: tuple[str, ...] = ()  # variables that were set and kept from compilers


@dataclass(frozen=True, slots=True)
class OutputSamples:
    """The patterns of one buffer over the repetitions of a result.

    `patterns` are distinct, in order of first appearance; `sequence` has one index a repetition.
    """

    buffer: Buffer
    patterns: tuple[bytes, ...]
    sequence: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """What an executor returns: every recorded buffer's patterns, and how they were made."""

    outputs: tuple[OutputSamples, ...]
    origin: CodeOrigin
    seconds: float
    notes: tuple[str, ...] = ()  # e.g. "contracted as SASS: 1 FFMA in sumSquaresPartials"
    batches: tuple[int, ...] = ()  # BATCH of each composition: one a repetition, or one repetition's
    libraries: Pairs = ()  # versions of what a program called


@dataclass(frozen=True, slots=True)
class Pattern:
    """One distinct pattern of an output. `data` may be left out; fetch it by `sha256`."""

    sha256: str
    count: int
    first: int  # the repetition that showed it first
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A recorded buffer of a result."""

    name: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    determinism: Determinism  # the effective guarantee
    patterns: tuple[Pattern, ...]
    sequence: tuple[int, ...]
    run_hash: int
    fields: tuple[Field, ...] = ()
    first_bits: str | None = None  # of a one-element output: 0x4b25426d

    @property
    def distinct(self) -> int:
        return len(self.patterns)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def sha256(self) -> str:
        """SHA-256 of the first repetition's pattern."""
        return self.patterns[0].sha256


@dataclass(frozen=True, slots=True)
class Judgement:
    """Accuracy of a result against its case's reference: the largest relative error of the repetitions."""

    verdict: Accuracy
    max_rel_err: float | None = None
    reference: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """An order of summation, measured (see `ordering`).

    `pairs` are (i, j, leaves under the smallest subtree that holds both), of the first repetition; `rounds`
    has one digest a repetition; `tree` is the whole tree of few elements, `((0 1) (2 3))`. Where no order can
    be measured there are no rounds, and `reason` says why. `launches` says how often an arrival order was
    executed to see whether it differs; 0 for a fixed order.
    """

    n: int = 0
    pairs: tuple[tuple[int, int, int], ...] = ()
    rounds: tuple[str, ...] = ()
    tree: str = ""
    reason: str = ""
    launches: int = later(0)

    @property
    def digest(self) -> str | None:
        """The first repetition's; None where there is none."""
        return self.rounds[0] if self.rounds else None

    @property
    def distinct(self) -> int:
        return len(set(self.rounds))


@dataclass(frozen=True, slots=True)
class Result:
    """All that a run learned about (kernel, case, profile, architecture, condition).

    `kernel` has only the case at hand in `cases`. `build` is None where no toolchain could be found.
    """

    kernel: Kernel
    case: Case
    profile: str
    arch: str
    lane: Lane
    status: Status
    repetitions: int
    outputs: tuple[Output, ...] = ()
    accuracy: Judgement = Judgement(Accuracy.UNKNOWN)
    build: Build | None = None
    origin: CodeOrigin | None = None
    input_digest: str = ""
    condition: str = "plain"
    error: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    id: int | None = None  # the database's row, once recorded
    fingerprint: Fingerprint | None = None  # of the order, where the kernel asks for it
    batches: tuple[int, ...] = later(())  # BATCH of each composition: one a repetition, or one repetition's

    @property
    def friendly(self) -> str:
        """`this input cannot show a difference: …`; empty where it can, or where that is not known."""
        return next((note for note in self.notes if note.startswith(FRIENDLY)), "")

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        """What a result of another run is matched by."""
        return (self.kernel.name, self.case.name, self.profile, self.arch, self.condition)

    @property
    def results(self) -> tuple[Output, ...]:
        return tuple(o for o in self.outputs if o.role is Role.RESULT)

    @property
    def witnesses(self) -> tuple[Output, ...]:
        return tuple(o for o in self.outputs if o.role is Role.WITNESS)


@dataclass(frozen=True, slots=True)
class SkippedProfile:
    """A profile whose toolchain is absent, with the command that installs it."""

    profile: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A kernel that a run was asked for and cannot run, and what would run it."""

    kernel: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CanaryOutcome:
    """One canary of a run; a failed one invalidates the run."""

    name: str
    ok: bool
    sentence: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """What a run was asked for, as options say it: what decides its rows, and how each is made and kept."""

    repetitions: int
    kernels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    arch: str | None = None
    stress: tuple[str, ...] = ()
    orders: bool = True
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One invocation that recorded results. Times are UTC.

    `seed` is what the modelled arrival orders were derived from, where it was given; else it is the uid.
    """

    uid: str
    suite: str
    lane: Lane
    environment: Environment
    started_at: datetime
    label: str | None = None
    finished_at: datetime | None = None  # None: incomplete
    skipped: tuple[SkippedProfile, ...] = ()
    policy: str = ""  # the policy's text, as used
    kind: str = "run"  # run | nightly
    exit_code: int | None = None
    id: int | None = None
    seed: int | None = None
    canaries: tuple[CanaryOutcome, ...] = ()
    left_out: tuple[LeftOut, ...] = later(())
    not_stressed: Pairs = later(())  # conditions that it was asked for and could not make, with the reason
    request: Request | None = later(None)  # None: an older reprodb began it

    @property
    def complete(self) -> bool:
        return self.finished_at is not None


def left_out_words(left_out: Iterable[LeftOut]) -> tuple[tuple[str, str], ...]:
    """`2 kernels left out, for a GPU alone: one, other` and what would run them, once a reason."""
    names: dict[tuple[str, str], list[str]] = {}
    for each in left_out:
        names.setdefault((each.reason, each.remedy), []).append(each.kernel)
    return tuple(
        (f"{len(found)} kernel{'s' * (len(found) != 1)} left out, {reason}: {', '.join(found)}", remedy)
        for (reason, remedy), found in names.items()
    )


def absences(run: Run) -> tuple[tuple[str, str], ...]:
    """What a run was asked for and could not do, kernels and conditions, and what would do it."""
    stresses = tuple((f"stress {name} left out: {reason}", "") for name, reason in run.not_stressed)
    return (*left_out_words(run.left_out), *stresses)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a reference is looked up by."""

    suite: str
    kernel: str
    case: str
    profile: str
    arch: str
    lane: Lane
    gpu: str | None  # the GPU's model name; None on the model
    condition: str = "plain"


def scope_of(run: Run, result: Result) -> Scope:
    """The scope of a result of a run."""
    device = run.environment.device
    return Scope(
        run.suite,
        result.kernel.name,
        result.case.name,
        result.profile,
        result.arch,
        run.lane,
        device.name if device else None,
        result.condition,
    )
