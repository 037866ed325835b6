"""`reprodb nightly`: build, run, record, compare each row with its reference, render, exit."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
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
    JunitOption,
    KernelOption,
    LabelOption,
    LedgerOption,
    PolicyOption,
    ProfileOption,
    ProfilesFileOption,
    QuietOption,
    RepetitionsOption,
    RequireOption,
    StoreOption,
    SuiteOption,
    TagOption,
    TimeoutOption,
    TimingsOption,
)
from reprodb.cli.run import (
    CaseOption,
    KeepOption,
    NoCompileOption,
    OrdersOption,
    ResumeOption,
    SeedOption,
    StressOption,
)

if TYPE_CHECKING:
    from reprodb.cli.flow import RecordedRun
    from reprodb.domain import Run
    from reprodb.findings import Diff
    from reprodb.ledger import Ledger
    from reprodb.policy import Policy
    from reprodb.store.store import Store


def register(app: typer.Typer) -> None:
    app.command("nightly")(nightly)


def nightly(
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
    policy: PolicyOption = None,
    ledger: LedgerOption = None,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the report is written.")] = Path(
        "reports"
    ),
    junit: JunitOption = None,
    timings: TimingsOption = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    log_file: LogFileOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the suite and compare every row with its reference: the blessed bits, else the last accepted ones.

    Exit 0 clean (churn included), 1 bits changed or missing, 3 determinism lost or accuracy outside,
    4 no answer.
    """
    from reprodb.cli import judging
    from reprodb.cli.flow import RunOptions, head_start, open_database, record_run, utc_now
    from reprodb.cli.reports import check_reports
    from reprodb.cli.resume import going_on
    from reprodb.cli.timings import Timed
    from reprodb.stress import chosen

    check_reports(out)
    rules, blessings = judging.policy_at(policy), judging.ledger_at(ledger)
    options = RunOptions(
        suite=suite,
        profiles_file=profiles_file,
        kernels=tuple(kernel or ()),
        tags=tuple(tag or ()),
        profiles=tuple(profile or ()),
        cases=tuple(case or ()),
        require=(*(require or ()), *rules.profiles),
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
        kind="nightly",
        policy=rules.text(),
    )
    options = going_on(options, context, db)
    log = journal(LogOptions(log_format, log_level, log_file), quiet=quiet or as_json)
    with log as book, ExitStack() as opened:
        watch = Timed(book.listener)
        with watch as said:
            ahead = opened.enter_context(head_start(options, said))
            said.stage("database")
            database = opened.enter_context(open_database(options, db))
            for note in database.notes:
                said.said(note)
            ready_to_judge()
            recorded = record_run(options, database, said, ahead=ahead)
        everything = not (options.kernels or options.tags or options.cases)
        watch.stage("compare")
        diff = judge_night(
            database,
            recorded,
            rules,
            blessings,
            utc_now(),
            everything=everything,
            profiles_file=profiles_file,
        )
        book.verdict(diff)
        watch.stage("report")
        # The verdict first: a report that cannot be written must not cost it.
        judging.show_diff(diff, as_json=as_json, quiet=quiet)
        page = write_report(database, diff, recorded, out)
        if junit is not None:
            judging.write_junit(diff, junit)
        judging.write_github(diff, recorded.suite, report=page)
        typer.echo(f"report: {page}", err=True)
        if timings:
            typer.echo("\n".join(watch.lines()), err=True)
    raise typer.Exit(diff.exit_code)


def ready_to_judge() -> None:
    """Load what comparing and reporting need while the device is being opened, when nobody waits for it."""
    import reprodb.cli.pages
    import reprodb.render.terminal
    import reprodb.review  # noqa: F401 -- loaded now, so that the end need not
    from reprodb.render import html

    html.prepare()


def judge_night(
    database: Store,
    recorded: RecordedRun,
    policy: Policy,
    ledger: Ledger,
    now: datetime,
    *,
    everything: bool = False,
    profiles_file: Path | None = None,
) -> Diff:
    """Compare a recorded run with its references, accept what is quiet, and finish the run's record.

    `everything` says that the run covers what the suite runs: a reference whose kernel or case is gone
    is then `missing`. A kernel that the suite has and does not run by default is not.
    """
    from reprodb.cli.judging import earlier_results, load_references
    from reprodb.compare import Side
    from reprodb.gate import idle_rules
    from reprodb.review import acceptable, located, review_night

    run, results = recorded.run, recorded.results
    run_id = run.id
    assert run_id is not None  # noqa: S101 -- it is recorded
    references = load_references(database, run, results, ledger, now, everything=everything, before=run_id)
    built = {(result.profile, result.arch, result.condition) for result in results}
    left_out = {kernel.name for kernel in recorded.suite.kernels} - {result.kernel.name for result in results}
    diff = review_night(
        Side(run, results),
        references,
        database.pattern,
        policy,
        now=now,
        planned=lambda row: everything and row[2:] in built and row[0] not in left_out,
        earlier=earlier_results(database, run),
        ledger=ledger,
    )
    diff = located(diff, recorded.suite.root, profiles_file)
    diff = replace(diff, notes=(*diff.notes, *_before(database, run, policy)))
    if everything:
        names = {kernel.name for kernel in recorded.suite.kernels}
        diff = replace(diff, notes=(*diff.notes, *idle_rules(policy, diff, names)))
    if not any(c.fatal and not c.ok for c in run.canaries):
        database.accept(acceptable(diff.comparisons, policy))
    database.finish(run_id, diff.exit_code, now, canaries=run.canaries)
    return diff


def _before(database: Store, run: Run, policy: Policy) -> tuple[str, ...]:
    """What is to say of the time before this night: that others should have been there."""
    from reprodb import nights

    there = [other for other in database.runs() if nights.place_of(other) == nights.place_of(run)]
    starts = [other.started_at for other in there if other.kind == "nightly"]
    return tuple(
        f"{gap}: see whether the schedule was disabled or the runner away"
        for gap in nights.gaps(starts, policy.every)
        if gap.until == run.started_at
    )


def write_report(database: Store, diff: Diff, recorded: RecordedRun, out: Path) -> Path:
    """The page of the run, in the folder for reports; returns its path."""
    from reprodb.cli.pages import single
    from reprodb.render.html import report
    from reprodb.site import write_whole

    page = out / f"run-{recorded.run.id}.html"
    text = report(
        diff.candidate,
        recorded.results,
        diff,
        matrix=diff.matrix,
        sources=single(database, diff.candidate),
    )
    write_whole(page, text)
    return page
