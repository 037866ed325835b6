"""Small runs and results for tests: everything has a plain default, a test names what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from reprodb.bits import hex_bits
from reprodb.digest import run_hash, sha256
from reprodb.domain import (
    DTYPE_BYTES,
    Accuracy,
    Arg,
    ArgKind,
    Buffer,
    Build,
    Case,
    Code,
    CodeOrigin,
    Determinism,
    Device,
    Environment,
    Field,
    Input,
    Judgement,
    Kernel,
    Lane,
    Output,
    Pairs,
    Pattern,
    Profile,
    Result,
    Role,
    Run,
    Stage,
    Status,
    Toolchain,
)

H200 = Device("NVIDIA H200", "GPU-11111111-2222-3333-4444-555555555555", "9.0", 132, 150_000_000_000)
T4 = Device("Tesla T4", "GPU-66666666-7777-8888-9999-000000000000", "7.5", 40, 16_000_000_000)
NVRTC_12 = Toolchain("nvrtc", "12.6.85", "/opt/nvrtc12", "wheel")
NVRTC_13 = Toolchain("nvrtc", "13.5.37", "/opt/nvrtc13", "wheel")
STARTED = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

TREE_TOTAL = "0x4b25426d"  # the published total of sum_squares_tree
ATOMIC_TOTAL = "0x4b25426e"  # the published first total of the atomic kernels


def word(text: str) -> bytes:
    """`0x4b25426d` as its bytes, little endian."""
    return bytes.fromhex(text.removeprefix("0x"))[::-1]


def floats(*values: float) -> bytes:
    return np.array(values, dtype="<f4").tobytes()


def make_output(
    repetitions: Sequence[bytes | str],
    *,
    name: str = "total",
    role: Role = Role.RESULT,
    dtype: str = "float32",
    determinism: Determinism = Determinism.RUN_TO_RUN,
    fields: tuple[Field, ...] = (),
    keep: bool = True,
) -> Output:
    """An output from the pattern of every repetition, bytes or hex; `keep` leaves the data in."""
    data = [word(r) if isinstance(r, str) else r for r in repetitions]
    distinct = list(dict.fromkeys(data))
    sequence = tuple(distinct.index(d) for d in data)
    size = sum(DTYPE_BYTES[f.dtype] for f in fields) if fields else DTYPE_BYTES[dtype]
    elements = len(data[0]) // size
    return Output(
        name=name,
        role=role,
        dtype=dtype,
        shape=(elements,),
        determinism=determinism,
        patterns=tuple(
            Pattern(sha256(d), data.count(d), data.index(d), d if keep else None) for d in distinct
        ),
        sequence=sequence,
        run_hash=run_hash(distinct, sequence),
        fields=fields,
        first_bits=hex_bits(data[0]) if elements == 1 and not fields else None,
    )


def make_kernel(
    name: str = "sum_squares_tree",
    *,
    determinism: Determinism = Determinism.RUN_TO_RUN,
    case: str = "ramp1000-4194915",
    grid: int = 1024,
    block: int = 256,
    order: str | None = None,
    entry: str = "sumSquaresPartials",
    buffers: tuple[Buffer, ...] = (Buffer("total", "float32", (1,), Role.RESULT),),
    batch_invariant: bool = False,
) -> Kernel:
    inputs = (Input("x", "ramp1000", 4194915),)
    return Kernel(
        name=name,
        source="../_lib/sum_squares.cu",
        operation="sum of x*x + 0.25",
        determinism=determinism,
        accumulator="float32",
        defines=(("BLOCKS", str(grid)), ("THREADS", str(block))),
        shape_defines=("BLOCKS", "THREADS"),
        stages=(Stage(entry, (grid, 1, 1), (block, 1, 1), (Arg(ArgKind.INPUT, "x"),)),),
        cases=(Case(case, 4194915, inputs, buffers),),
        order=order,
        batch_invariant=batch_invariant,
    )


def make_build(
    *,
    profile: Profile | None = None,
    toolchain: Toolchain = NVRTC_13,
    arch: str = "sm_90",
    defines: Pairs = (("BLOCKS", "1024"), ("THREADS", "256")),
    sources: Pairs = (("_lib/sum_squares.cu", "aa" * 32),),
    code: Code | None = None,
    status: Status = Status.OK,
) -> Build:
    profile = profile or Profile("default", "nvrtc", ">=13,<14")
    options = (f"-arch={arch}", *(() if profile.fmad else ("-fmad=false",)), *profile.extra)
    return Build(
        key="0" * 64,
        profile=profile,
        toolchain=toolchain,
        arch=arch,
        options=options,
        defines=defines,
        sources=sources,
        status=status,
        code=code or Code("ptx-1", "sass-1", "constants-1"),
    )


def make_result(
    repetitions: Sequence[bytes | str] = (TREE_TOTAL,) * 100,
    *,
    outputs: tuple[Output, ...] | None = None,
    kernel: str | Kernel = "sum_squares_tree",
    determinism: Determinism = Determinism.RUN_TO_RUN,
    case: str = "ramp1000-4194915",
    profile: str = "default",
    arch: str = "sm_90",
    lane: Lane = Lane.MODELLED,
    status: Status = Status.OK,
    accuracy: Accuracy = Accuracy.OK,
    max_rel_err: float | None = 1.739e-09,
    build: Build | None = None,
    input_digest: str = "11" * 32,
    condition: str = "plain",
    error: str = "",
    origin: CodeOrigin | None = None,
) -> Result:
    """A result; failed ones (`status` not ok) have no outputs."""
    if isinstance(kernel, str):
        kernel = make_kernel(kernel, determinism=determinism, case=case)
    if status is not Status.OK:
        outputs = ()
    elif outputs is None:
        outputs = (make_output(repetitions, determinism=kernel.determinism),)
    if build is None:
        build = make_build(profile=Profile(profile, "nvrtc", ">=13,<14"), arch=arch)
    return Result(
        kernel=kernel,
        case=kernel.cases[0],
        profile=profile,
        arch=arch,
        lane=lane,
        status=status,
        repetitions=len(outputs[0].sequence) if outputs else len(repetitions),
        outputs=outputs,
        accuracy=Judgement(accuracy, max_rel_err),
        build=build,
        origin=origin or (CodeOrigin.PTX if lane is Lane.MODELLED else CodeOrigin.CUBIN),
        input_digest=input_digest,
        condition=condition,
        error=error,
    )


def make_environment(device: Device | None = None, **changes: object) -> Environment:
    base = Environment(
        host="runner-1",
        os="Linux 6.1",
        python="3.11.2",
        cpu="x86-64",
        reprodb="0.1.0",
        device=device,
        driver="580.159.04" if device else None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def make_run(
    number: int | None = 1,
    *,
    lane: Lane = Lane.MODELLED,
    device: Device | None = None,
    environment: Environment | None = None,
    suite: str = "reprodb",
    kind: str = "run",
) -> Run:
    """A finished run. A device makes it measured."""
    if device is not None:
        lane = Lane.MEASURED
    return Run(
        uid=f"run-{number}",
        suite=suite,
        lane=lane,
        environment=environment or make_environment(device),
        started_at=STARTED,
        finished_at=STARTED,
        kind=kind,
        id=number,
    )


def store_of(*results: Result | None) -> dict[str, bytes]:
    """SHA-256 → bytes of every pattern that the results carry: `store_of(a, b).__getitem__` fetches."""
    return {
        pattern.sha256: pattern.data
        for result in results
        if result is not None
        for output in result.outputs
        for pattern in output.patterns
        if pattern.data is not None
    }
