"""The bundle's format, version 1: members, the lines in them, and sizes beyond which nothing is read.

docs/bundles.md describes it for other programs.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, replace
from datetime import timedelta

from reprodb import codec
from reprodb.digest import hex64
from reprodb.domain import (
    DTYPE_BYTES,
    Accuracy,
    Build,
    CodeOrigin,
    Fingerprint,
    Judgement,
    Kernel,
    Output,
    Pattern,
    Result,
    Run,
    Status,
    later,
)
from reprodb.store import sequences
from reprodb.store.types import microseconds
from reprodb.store.write import Layout, build_key, case_key

SCHEMA = "reprodb.bundle/1"
MANIFEST = "manifest.json"
CASES, BUILDS, PATTERNS = "cases.jsonl", "builds.jsonl", "patterns.jsonl"
NAME = re.compile(
    r"manifest\.json|(?:cases|builds|patterns)\.jsonl|runs/[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.jsonl"
    r"|(?:texts|large)/[0-9a-f]{64}"
)

# Sizes in bytes. A bundle that needs more is refused by reader and writer alike.
LARGEST_FILE = 4 << 30  # no zip64
MOST_MEMBERS = 60_000
LARGEST_MEMBER = 2 << 30
LARGEST_LINES = 256 << 20  # a member of lines is in memory whole
LARGEST_TEXTS = 512 << 20  # all code texts together
LARGEST_TOTAL = 8 << 30
MOST_EXTENTS = 32  # of one shape, as arrays of NumPy have had at most
# What inflates to more than a gigabyte must have at least a two-hundredth of it in the file.
FREE_TOTAL = 1 << 30
LARGEST_RATIO = 200


@dataclass(frozen=True, slots=True)
class Member:
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The first member: every other one by name."""

    schema: str
    runs: tuple[str, ...]
    members: dict[str, Member]


@dataclass(frozen=True, slots=True)
class CaseLine:
    kernel: Kernel  # with one case
    input_digest: str

    @property
    def key(self) -> str:
        return case_key(codec.dumps(self.kernel), self.input_digest)


@dataclass(frozen=True, slots=True)
class BuildLine:
    build: Build
    ptx: str | None  # the SHA-256 that names its text under texts/
    sass: str | None

    @property
    def key(self) -> str:
        return build_key(codec.dumps(self.build), self.ptx, self.sass)


@dataclass(frozen=True, slots=True)
class PatternLine:
    """`data` is base64 of a pattern up to 64 KiB. A larger one has `pages`, and if `kept` a member large/…"""

    sha256: str
    size: int
    data: str | None
    pages: tuple[str, ...]
    kept: bool


@dataclass(frozen=True, slots=True)
class RunLine:
    """The first line of a run's member. `position` orders the runs of all databases."""

    run: Run
    position: int


@dataclass(frozen=True, slots=True)
class OutputLine:
    layout: Layout
    patterns: tuple[str, ...]  # SHA-256, in order of first appearance
    sequence: str | None  # base64 of sequences.narrow
    run_hash: str
    first_bits: str | None


@dataclass(frozen=True, slots=True)
class ResultLine:
    """One result. Floats that may not be finite are text, as Python writes them, so that JSON stays JSON."""

    case: str
    build: str | None
    profile: str
    arch: str
    condition: str
    status: Status
    repetitions: int
    origin: CodeOrigin | None
    accuracy: Accuracy
    max_rel_err: str | None
    reference: str | None
    accuracy_note: str
    error: str
    notes: tuple[str, ...]
    seconds: float
    outputs: tuple[OutputLine, ...]
    accepted: bool
    batches: tuple[int, ...] = later(())
    fingerprint: Fingerprint | None = later(None)


def result_line(result: Result, case: str, build: str | None, *, accepted: bool) -> ResultLine:
    """The line of a result whose case and build have these keys."""
    judged = result.accuracy
    return ResultLine(
        case=case,
        build=build,
        profile=result.profile,
        arch=result.arch,
        condition=result.condition,
        status=result.status,
        repetitions=result.repetitions,
        origin=result.origin,
        accuracy=judged.verdict,
        max_rel_err=None if judged.max_rel_err is None else repr(float(judged.max_rel_err)),
        reference=None if judged.reference is None else repr(float(judged.reference)),
        accuracy_note=judged.note,
        error=result.error,
        notes=result.notes,
        seconds=float(result.seconds),
        outputs=tuple(_output_line(output) for output in result.outputs),
        accepted=accepted,
        batches=result.batches,
        fingerprint=result.fingerprint,
    )


def _output_line(output: Output) -> OutputLine:
    plain = sequences.narrow(output.sequence, output.distinct)
    return OutputLine(
        layout=Layout(
            output.name, output.role, output.dtype, output.shape, output.determinism, output.fields
        ),
        patterns=tuple(pattern.sha256 for pattern in output.patterns),
        sequence=None if plain is None else base64.b64encode(plain).decode(),
        run_hash=hex64(output.run_hash),
        first_bits=output.first_bits,
    )


def result_of(line: ResultLine, run: Run, case: CaseLine, build: BuildLine | None) -> Result:
    """The result of a line, patterns without data. Raises ValueError where the line contradicts itself."""
    return Result(
        kernel=case.kernel,
        case=case.kernel.cases[0],
        profile=line.profile,
        arch=line.arch,
        lane=run.lane,
        status=line.status,
        repetitions=line.repetitions,
        outputs=tuple(_output_of(output, line.repetitions) for output in line.outputs),
        accuracy=Judgement(
            line.accuracy,
            _number(line.max_rel_err),
            _number(line.reference),
            line.accuracy_note,
        ),
        build=None if build is None else build.build,
        origin=line.origin,
        input_digest=case.input_digest,
        condition=line.condition,
        error=line.error,
        seconds=line.seconds,
        notes=line.notes,
        batches=line.batches,
        fingerprint=line.fingerprint,
    )


def _number(text: str | None) -> float | None:
    """A float as Python writes it, and no other spelling: importing again would find other text."""
    value = None if text is None else float(text)
    if value is not None and repr(value) != text:
        raise ValueError(f"{text!r} is not how {value!r} is written"[:200])
    return value


def _output_of(line: OutputLine, repetitions: int) -> Output:
    plain = None if line.sequence is None else base64.b64decode(line.sequence, validate=True)
    if plain is not None and (not plain or plain[0] not in (1, 2, 4)):
        raise ValueError("a sequence in a bundle is not compressed by itself")
    sequence = sequences.unpack(plain, repetitions)
    derived = sequences.first_and_count(sequence, len(line.patterns))
    layout = line.layout
    return Output(
        name=layout.name,
        role=layout.role,
        dtype=layout.dtype,
        shape=layout.shape,
        determinism=layout.determinism,
        patterns=tuple(
            Pattern(digest, count, first)
            for digest, (first, count) in zip(line.patterns, derived, strict=True)
        ),
        sequence=sequence,
        run_hash=int(line.run_hash, 16),
        fields=layout.fields,
        first_bits=line.first_bits,
    )


def pattern_bytes(output: Output) -> int:
    """The size that each pattern of the output has. Raises ValueError for a type that there is not."""
    dtypes = [field.dtype for field in output.fields] or [output.dtype]
    unknown = [dtype for dtype in dtypes if dtype not in DTYPE_BYTES]
    if unknown:
        raise ValueError(f"output {output.name} has the unknown type {unknown[0]!r}")
    if len(output.shape) > MOST_EXTENTS or any(extent < 0 for extent in output.shape):
        raise ValueError(f"output {output.name} has the shape {list(output.shape[:MOST_EXTENTS])}")
    return output.elements * sum(DTYPE_BYTES[dtype] for dtype in dtypes)


def check_head(line: RunLine) -> None:
    """Raises ValueError for a run that no database of ours would have written."""
    run = line.run
    if run.id is not None:
        raise ValueError("a run in a bundle has no number")
    for time in (run.started_at, run.finished_at):
        if time is not None and time.utcoffset() != timedelta(0):
            raise ValueError(f"the time {time} is not in UTC")
    if not microseconds(run.started_at) <= line.position < 1 << 62:
        raise ValueError(f"position {line.position} is out of range")
    if run.exit_code is not None and not 0 <= run.exit_code < 256:
        raise ValueError(f"exit code {run.exit_code} is out of range")


def plain_run(run: Run) -> Run:
    """The run without the number that it has in one database."""
    return replace(run, id=None)
