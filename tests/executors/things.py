"""Small kernels and artifacts for tests of executing."""

from reprodb.domain import (
    Arg,
    ArgKind,
    Artifact,
    Buffer,
    Build,
    Case,
    Determinism,
    Input,
    Kernel,
    Profile,
    Role,
    Stage,
    Status,
    Toolchain,
)

TOOLCHAIN = Toolchain("nvrtc", "13.5.37", "libnvrtc.so.13", "wheel", ("sm_90",))
PROFILE = Profile("default", "nvrtc", ">=13,<14")
TOTAL = Buffer("total", "float32", (1,), Role.RESULT)


def a_case(buffers: tuple[Buffer, ...] = (TOTAL,), n: int = 4) -> Case:
    return Case("ones-4", n, (Input("x", "ones", n),), buffers)


def a_kernel(operation: str = "sum", case: Case | None = None, name: str = "sum") -> Kernel:
    arguments = (Arg(ArgKind.INPUT, "x"), Arg(ArgKind.SIZE, "n"), Arg(ArgKind.BUFFER, "total"))
    return Kernel(
        name=name,
        source="sum.cu",
        operation=operation,
        determinism=Determinism.RUN_TO_RUN,
        accumulator="float32",
        defines=(),
        shape_defines=(),
        stages=(Stage("sum", (1, 1, 1), (32, 1, 1), arguments),),
        cases=(case or a_case(),),
    )


def an_artifact(
    arch: str = "sm_90", ptx: str | None = ".version 9.0", cubin: bytes | None = b"cubin"
) -> Artifact:
    build = Build("key", PROFILE, TOOLCHAIN, arch, (), (), (), Status.OK)
    return Artifact(build, ptx, cubin)
