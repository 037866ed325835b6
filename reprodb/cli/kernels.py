"""`reprodb kernels`: what a suite holds; `kernels add` is in reprodb.cli.adding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from reprodb.cli.options import JsonOption, KernelOption, SuiteOption, TagOption

if TYPE_CHECKING:
    from reprodb.domain import Buffer, Case, Composition, Kernel, Suite

SCHEMA = "reprodb.kernels/1"


def kernels(
    context: typer.Context,
    suite: SuiteOption = None,
    kernel: KernelOption = None,
    tag: TagOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the kernels of a suite: their cases, declared determinism, shapes and outputs; or add one."""
    if context.invoked_subcommand is not None:
        return
    from reprodb.suite import bundled_suite, load_suite, select_kernels

    loaded = load_suite(suite or bundled_suite())
    chosen = select_kernels(loaded, kernel or ("*",), tag or ())
    if as_json:
        from reprodb.render.json import dumps

        typer.echo(dumps(document(loaded, chosen)), nl=False)
    else:
        for line in listing(loaded, chosen):
            typer.echo(line)


def register(app: typer.Typer) -> None:
    from reprodb.cli.adding import add

    group = typer.Typer(invoke_without_command=True, context_settings=app.info.context_settings)
    group.callback()(kernels)
    group.command("add")(add)
    app.add_typer(group, name="kernels")


def document(suite: Suite, chosen: tuple[Kernel, ...]) -> dict[str, Any]:
    """The JSON document, schema `reprodb.kernels/1`: everything the manifests say, sizes resolved."""
    return {
        "schema": SCHEMA,
        "suite": suite.name,
        "root": str(suite.root),
        "kernels": [_kernel_record(k) for k in chosen],
    }


def _kernel_record(kernel: Kernel) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "operation": kernel.operation,
        "determinism": kernel.determinism.value,
        "batch_invariant": kernel.batch_invariant,
        "kind": kernel.program.kind if kernel.program else "cuda",
        "fingerprint": kernel.fingerprint is not None,
        "accumulator": kernel.accumulator,
        "order": kernel.order,
        "tags": list(kernel.tags),
        "teaches": kernel.teaches,
        "no_reference": kernel.no_reference,
        "atomics": kernel.atomics,
        "sm_count": kernel.sm_count,
        "manifest": kernel.manifest,
        "source": kernel.source,
        "defines": dict(kernel.defines),
        "shape_defines": list(kernel.shape_defines),
        "stages": [
            {
                "entry": s.entry,
                "grid": list(s.grid),
                "per_batch": list(s.per_batch),
                "block": list(s.block),
                "shared": s.shared,
                "args": [a.name for a in s.args],
            }
            for s in kernel.stages
        ],
        "composition": _composition_record(kernel.composition) if kernel.composition else None,
        "cases": [_case_record(kernel, c) for c in kernel.cases],
    }


def _composition_record(composition: Composition) -> dict[str, Any]:
    return {
        "rows": list(composition.rows),
        "requests": composition.requests,
        "probes": composition.probes,
        "strangers": composition.strangers,
        "batches": list(composition.batches),
        "seed": composition.seed,
        "serial": composition.serial,
    }


def _case_record(kernel: Kernel, case: Case) -> dict[str, Any]:
    from reprodb.render.json import number

    return {
        "case": case.name,
        "n": case.n,
        "inputs": {
            i.name: {
                "pattern": i.pattern,
                "n": i.n,
                "dtype": i.dtype,
                "params": {key: number(value) for key, value in i.params},
            }
            for i in case.inputs
        },
        "outputs": {b.name: _buffer_record(kernel, b) for b in case.recorded},
        "reference": case.reference,
        "rel_tol": case.rel_tol,
        "expected": dict(case.expected),
    }


def _buffer_record(kernel: Kernel, buffer: Buffer) -> dict[str, Any]:
    return {
        "role": buffer.role.value,
        "dtype": buffer.dtype,
        "shape": list(buffer.shape),
        "determinism": (buffer.determinism or kernel.determinism).value,
    }


def listing(suite: Suite, chosen: tuple[Kernel, ...]) -> list[str]:
    """The lines that people read: one a kernel and case, columns aligned."""
    header = ("kernel", "case", "contract", "grid x block", "outputs", "operation", "tags", "teaches")
    rows = [
        (
            kernel.name,
            case.name,
            contract(kernel),
            shape(kernel),
            ", ".join(f"{b.name}[{','.join(map(str, b.shape))}]" for b in case.recorded),
            kernel.operation,
            " ".join(kernel.tags),
            kernel.teaches,
        )
        for kernel in chosen
        for case in kernel.cases
    ]
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    table = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in (header, *rows)]  # fmt: skip
    return [f"suite {suite.name}: {len(chosen)} of {len(suite.kernels)} kernels", *table]


def contract(kernel: Kernel) -> str:
    """What a kernel promises: `run_to_run`, `gpu_to_gpu, batch_invariant`, `run_to_run, device_derived`."""
    words = [kernel.determinism.value]
    words += ["batch_invariant"] * kernel.batch_invariant
    words += ["device_derived"] * (kernel.sm_count is not None)
    return ", ".join(words)


def shape(kernel: Kernel) -> str:
    """Each stage's grid and block: `1024x256, 1x256`."""
    return ", ".join(f"{'*'.join(s.dims)}x{_dims(s.block)}" for s in kernel.stages)


def catalogue(chosen: tuple[Kernel, ...]) -> list[str]:
    """The same as a table in Markdown, a line a kernel, for a page that lists a suite."""
    rows = [
        (f"`{k.name}`", contract(k), ", ".join(c.name for c in k.cases), shape(k) or "–", k.teaches)
        for k in chosen
    ]
    head = ("kernel", "contract", "input", "shape", "teaches")
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]


def _dims(dims: tuple[int, int, int]) -> str:
    """`1024`, or `8*4` for more than one dimension."""
    used = max((i for i in range(3) if dims[i] != 1), default=0)
    return "*".join(map(str, dims[: used + 1]))
