"""What `--resume` takes from a run's record, and the command that goes on with an interrupted one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reprodb.errors import UsageError

if TYPE_CHECKING:
    import typer

    from reprodb.cli.flow import RunOptions
    from reprodb.domain import Request

# A field of Request, and the parameter of `run` and `nightly` that asks for it.
ASKED = MappingProxyType(
    {
        "repetitions": "repetitions",
        "kernels": "kernel",
        "tags": "tag",
        "cases": "case",
        "profiles": "profile",
        "arch": "arch",
        "stress": "stress",
        "orders": "orders",
        "keep": "keep",
    }
)
# What the run has as well: these are not said again.
_RECORDED = frozenset({*ASKED.values(), "resume", "label", "seed"})


def going_on(options: RunOptions, context: typer.Context, url: str | None) -> RunOptions:
    """The options with what the run to be resumed was asked for, and with the words that would go on with it.

    Raises UsageError where the command line asks for something else than the run was asked for.
    """
    from reprodb.cli.flow import incomplete_run
    from reprodb.store import open_store

    options = replace(options, again=(context.command_path, shlex.join(_words(context))))
    if options.resume is None:
        return options
    with open_store(url) as database:
        run = incomplete_run(options.resume, database)
    if run.request is None:
        return options
    for field, name in ASKED.items():
        was, now = getattr(run.request, field), getattr(options, field)
        if _given(context, name) and not _same(was, now):
            raise UsageError(
                f"run {run.id} was asked for {said(field, was)}, this command asks for {said(field, now)}",
                remedy=f"leave {_option(field)} out, or start a new run",
            )
    return as_asked(options, run.request)


def as_asked(options: RunOptions, request: Request) -> RunOptions:
    return replace(options, **{field: getattr(request, field) for field in ASKED})


def said(field: str, value: Any) -> str:
    """A field of a request as the option that asks for it."""
    option = _option(field)
    if field == "orders":
        return "--orders" if value else "--no-orders"
    if value is True:
        return option
    if not value:
        return f"no {option}"
    if field == "stress":
        return f"{option} {','.join(value)}"
    values = value if isinstance(value, tuple) else (value,)
    return " ".join(f"{option} {shlex.quote(str(each))}" for each in values)


def _option(field: str) -> str:
    return f"--{ASKED[field]}"


def _same(one: Any, other: Any) -> bool:
    """The order in which names are given chooses nothing."""
    return set(one) == set(other) if isinstance(one, tuple) else bool(one == other)


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _words(context: typer.Context) -> Iterator[str]:
    """The options that were given and that no run records: where things are, and how answers are told."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in _RECORDED or not _given(context, name):
            continue
        value = context.params[name]
        if isinstance(value, bool):
            yield (parameter.opts if value else parameter.secondary_opts)[0]
            continue
        for each in value if isinstance(value, list | tuple) else (value,):
            yield from (parameter.opts[0], str(getattr(each, "value", each)))
