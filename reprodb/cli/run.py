"""`reprodb run`: build, execute and record, without comparing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from reprodb.cli.log import (
    LogFileOption,
    LogFormat,
    LogFormatOption,
    LogLevel,
    LogLevelOption,
    LogOptions,
    journal,
)
from reprodb.cli.options import (
    ArchOption,
    DatabaseOption,
    DeviceOption,
    JobsOption,
    JsonOption,
    KernelOption,
    LabelOption,
    ProfileOption,
    ProfilesFileOption,
    QuietOption,
    RepetitionsOption,
    RequireOption,
    StoreOption,
    SuiteOption,
    TagOption,
    TimeoutOption,
)
from reprodb.errors import Exit

if TYPE_CHECKING:
    from reprodb.domain import CanaryOutcome, Result

CaseOption = Annotated[
    list[str] | None, typer.Option("--case", metavar="NAME", help="Only these cases (repeatable, globs).")
]
NoCompileOption = Annotated[
    bool, typer.Option("--no-compile", help="Run what is in the artifact store; compile nothing.")
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="N", min=0, help="Fix the model's arrival orders; by default each run has its own."
    ),
]
ResumeOption = Annotated[
    str | None, typer.Option("--resume", metavar="RUN", help="Go on with an interrupted run.")
]
StressOption = Annotated[
    str | None,
    typer.Option(
        "--stress",
        metavar="[NAME,…]",
        help="Run again under conditions: quick (the option alone), all, poison-00, poison-ff, offset, "
        "contention, fresh, other-device.",
    ),
]
OrdersOption = Annotated[
    bool, typer.Option("--orders/--no-orders", help="Measure the order fingerprints that manifests ask for.")
]
KeepOption = Annotated[bool, typer.Option("--keep", help="Store patterns above 16 MiB whole.")]


def register(app: typer.Typer) -> None:
    app.command("run")(run)


def run(
    context: typer.Context,
    *,
    suite: SuiteOption = None,
    kernel: KernelOption = None,
    tag: TagOption = None,
    case: CaseOption = None,
    profile: ProfileOption = None,
    profiles_file: ProfilesFileOption = None,
    require: RequireOption = None,
    repetitions: RepetitionsOption = 100,
    device: DeviceOption = "auto",
    db: DatabaseOption = None,
    store: StoreOption = None,
    label: LabelOption = None,
    timeout: TimeoutOption = 60.0,
    jobs: JobsOption = None,
    arch: ArchOption = None,
    no_compile: NoCompileOption = False,
    seed: SeedOption = None,
    resume: ResumeOption = None,
    keep: KeepOption = False,
    stress: StressOption = None,
    orders: OrdersOption = True,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    log_file: LogFileOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Build and execute kernels under profiles and record their bits. `nightly` also compares and reports.

    Exit 3 where a guaranteed kernel shows more than one pattern or others than its serial kernel, or a
    result is inaccurate, 4 where a result is missing or a canary failed.
    """
    from reprodb.cli.flow import RunOptions, head_start, open_database, record_run, utc_now
    from reprodb.cli.resume import going_on
    from reprodb.stress import chosen

    options = RunOptions(
        suite=suite,
        profiles_file=profiles_file,
        kernels=tuple(kernel or ()),
        tags=tuple(tag or ()),
        profiles=tuple(profile or ()),
        cases=tuple(case or ()),
        require=tuple(require or ()),
        repetitions=repetitions,
        device=device,
        store=store,
        label=label,
        timeout=timeout,
        jobs=jobs,
        arch=arch,
        no_compile=no_compile,
        seed=seed,
        resume=resume,
        keep=keep,
        stress=chosen(stress),
        orders=orders,
    )
    options = going_on(options, context, db)
    log = journal(LogOptions(log_format, log_level, log_file), quiet=quiet)
    with log as book, ExitStack() as opened:
        with book.listener as said:
            ahead = opened.enter_context(head_start(options, said))
            database = opened.enter_context(open_database(options, db))
            for note in database.notes:
                said.said(note)
            recorded = record_run(options, database, said, ahead=ahead)
        code, reason = verdict(recorded.results, recorded.run.canaries)
        database.finish(recorded.run.id or 0, int(code), utc_now())
        book.ended(recorded.run.id, int(code), reason)
        if as_json:
            from reprodb.render.json import dumps, show

            typer.echo(dumps(show(database.run(recorded.run.id or 0), recorded.results)), nl=False)
        else:
            lane = recorded.run.lane
            absent = len(recorded.run.left_out)
            reason += f"; {absent} kernel{'s' * (absent != 1)} left out" if absent else ""
            typer.echo(f"run {recorded.run.id}: {len(recorded.results)} results, {lane}; {reason}")
    raise typer.Exit(int(code))


def verdict(results: Iterable[Result], canaries: Iterable[CanaryOutcome]) -> tuple[Exit, str]:
    """The exit code of a run that is compared with nothing, and its reason in words."""
    from reprodb.dependence import broken_under
    from reprodb.domain import Accuracy, Status
    from reprodb.invariance import unlike_serial

    failed = [canary for canary in canaries if canary.fatal and not canary.ok]
    if failed:
        names = ", ".join(canary.name for canary in failed)
        return Exit.NO_ANSWER, f"invalid: canary {names} failed"
    found = list(results)
    lost = [r for r in found if any(o.determinism.guaranteed and o.distinct > 1 for o in r.outputs)]
    depends = {id(result): result for result, _ in broken_under(found)}
    lost += [result for result in depends.values() if result not in lost]
    lost += [result for result in found if result not in lost and unlike_serial(result, found)]
    outside = [r for r in found if r.accuracy.verdict is Accuracy.OUTSIDE]
    absent = [r for r in found if r.status is not Status.OK]
    if lost or outside:
        words = [f"{len(lost)} lost determinism"] * bool(lost)
        words += dict.fromkeys(f"{r.kernel.name} depends on {r.condition}" for r in depends.values())
        words += [f"{len(outside)} inaccurate"] * bool(outside)
        return Exit.UNTRUSTWORTHY, ", ".join(words)
    if absent:
        return Exit.NO_ANSWER, f"{len(absent)} without a result"
    return Exit.CLEAN, "all executed"
