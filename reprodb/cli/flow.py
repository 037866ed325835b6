"""The flow that `run` and `nightly` share: plan, canaries, build, execute, record."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from reprodb.cli.progress import Listener
from reprodb.domain import (
    CanaryOutcome,
    Kernel,
    Lane,
    LeftOut,
    Profile,
    Request,
    Result,
    Run,
    Suite,
    left_out_words,
)
from reprodb.errors import ExecutionError, ReprodbError, ToolchainError, UsageError

if TYPE_CHECKING:
    from reprodb.artifacts import ArtifactStore
    from reprodb.campaign import Building, Made, Plan, Progress
    from reprodb.executors.base import Platform
    from reprodb.executors.choice import Where
    from reprodb.executors.pool import Pool
    from reprodb.store.store import Store

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run is asked for, as the command line's options say it."""

    suite: Path | None = None
    profiles_file: Path | None = None
    kernels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    repetitions: int = 100
    device: str = "auto"
    store: Path | None = None
    label: str | None = None
    timeout: float = 60.0
    jobs: int | None = None
    arch: str | None = None
    no_compile: bool = False
    seed: int | None = None
    resume: str | None = None
    keep: bool = False
    stress: tuple[str, ...] = ()
    orders: bool = True  # measure the order fingerprints that manifests ask for
    kind: str = "run"
    policy: str = ""
    again: tuple[str, str] = ("", "")  # the command that goes on: its words before and after `--resume N`

    @property
    def request(self) -> Request:
        """What of it a run keeps, so that who resumes it need not say it again."""
        return Request(**{field.name: getattr(self, field.name) for field in fields(Request)})


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A finished run as the database has it, patterns without their data, and how it was made."""

    run: Run
    results: tuple[Result, ...]
    suite: Suite
    sentence: str  # which lane, and why


def utc_now() -> datetime:
    return datetime.now(UTC)


def record_run(
    options: RunOptions,
    database: Store,
    listener: Listener,
    *,
    now: Clock = utc_now,
    ahead: HeadStart | None = None,
) -> RecordedRun:
    """Carry out a run and record it; finished but for its exit code, which the caller sets with `finish`.

    A nightly is not finished either: whoever judges it finishes it. A run that is interrupted keeps its
    recorded results and stays incomplete; the KeyboardInterrupt says so. `ahead` is what was begun for these
    options already. Raises ReprodbError where nothing can be planned or executed.
    """
    listener.stage("device")
    with opened_bench(options, listener, ahead) as bench:
        listener.stage("plan")
        plan = bench.ahead.plan if bench.ahead else make_plan(options, bench)
        for skipped in plan.skipped:
            listener.said(f"skipped {skipped.profile}: {skipped.reason}; {skipped.remedy}")
        for text, remedy in left_out_words(plan.left_out):
            listener.said(f"{text}; {remedy}")
        for name, why in _not_stressed(options, bench.where).items():
            listener.said(f"stress {name} is left out: {why}")
        if options.resume is None:
            run = _new_run(options, plan, bench, now)
        else:
            run = _resumed(options.resume, options, database, plan, bench)
            if run.request is None:
                listener.said(f"run {run.id} does not know what it was asked for: these options hold")
        listener.stage("canaries")
        canaries = run_canaries(plan, bench)
        for canary in canaries:
            if not canary.ok:
                listener.said(f"canary {canary.name}: {canary.sentence}")
        listener.stage("results")
        run_id = _record(plan, replace(run, canaries=canaries), bench, database, listener)
        bench.pool.release()
        if options.kind == "nightly":
            # Not finished before it is judged: one that is killed on the way is incomplete, and is resumed.
            made = replace(database.run(run_id), canaries=canaries, finished_at=now())
        else:
            database.finish(run_id, None, now(), canaries=canaries)
            made = database.run(run_id)
    results = in_order(plan, database.results(run_id))
    return RecordedRun(made, results, plan.suite, bench.where.sentence)


def in_order(plan: Plan, results: Iterable[Result]) -> tuple[Result, ...]:
    """Results in the order of the plan, whichever came first: pages and tables do not follow the clock."""
    places = {row: place for place, row in enumerate(plan.rows)}
    return tuple(sorted(results, key=lambda result: places.get(result.row, len(places))))


@dataclass(frozen=True, slots=True)
class HeadStart:
    """What needs no database: the plan, and a worker that opens the device while compilers are at work."""

    where: Where
    pool: Pool
    plan: Plan
    canaries: Building | None
    building: Building | None


@contextmanager
def head_start(options: RunOptions, listener: Listener) -> Iterator[HeadStart]:
    """Begin what takes long. Raises what the options make impossible, before anything is written.

    The compilers begin where nothing is recorded yet: what a resumed run lacks, its database says. A limit to
    their number holds for the canaries' and the plan's together, so that these then come one after the other.
    """
    from reprodb.artifacts import DEFAULT_ROOT, ArtifactStore
    from reprodb.campaign import begin_building
    from reprodb.executors.choice import resolve_device

    store = ArtifactStore(options.store or DEFAULT_ROOT, listener.said)
    where = resolve_device(options.device)
    with _pool(where, options, store) as pool, ExitStack() as stack:
        pool.begin()
        plan = _plan(options, store, where)
        if not plan.builds:
            raise _nothing(plan, where.lane)

        def begun(some: Plan | None, *, wanted: bool = True) -> Building | None:
            if some is None or not wanted or options.resume is not None or options.no_compile:
                return None
            building = begin_building(some, pool, store, jobs=options.jobs)
            stack.callback(building.close)
            return building

        canaries = begun(_canaries(plan))
        yield HeadStart(where, pool, plan, canaries, begun(plan, wanted=options.jobs is None))


@dataclass(frozen=True, slots=True)
class Bench:
    """An opened device with the artifact store beside it: what plans are carried out on."""

    options: RunOptions
    store: ArtifactStore
    where: Where
    pool: Pool
    platform: Platform
    ahead: HeadStart | None = None  # what was begun for it

    def results(
        self, plan: Plan, seed: str, progress: Progress | None = None, building: Building | None = None
    ) -> Generator[Made, None, None]:
        """The plan's results as they come. Close the generator to stop the compilers."""
        from reprodb.campaign import Progress, carry_out

        return carry_out(
            plan,
            self.pool,
            self.where.lane,
            self.store,
            seed=seed,
            jobs=self.options.jobs,
            no_compile=self.options.no_compile,
            progress=progress or Progress(),
            building=building,
        )


def _not_stressed(options: RunOptions, where: Where) -> Mapping[str, str]:
    """The conditions asked for that cannot be made here, with the reason."""
    from reprodb.environment import twins
    from reprodb.stress import TWIN, left_out

    device = where.device
    alone = TWIN in options.stress and device is not None and not twins(device)
    return left_out(options.stress, where.lane, alone=alone)


def runs_on(kernel: Kernel, lane: Lane) -> bool:
    """Whether a kernel runs on this lane: programs run on a GPU or on the CPU, never on the model."""
    if kernel.program is None:
        return lane is not Lane.HOST
    return lane is (Lane.MEASURED if kernel.program.device == "gpu" else Lane.HOST)


def make_plan(options: RunOptions, bench: Bench) -> Plan:
    """The plan for these options on that bench. With `no_compile` the store's toolchains count as found.

    Kernels that do not run on the bench's lane are left out unless they are named; of these, those that run
    under none of the profiles asked for. The plan says which, and why.
    """
    return _plan(options, bench.store, bench.where)


def open_database(options: RunOptions, url: str | None) -> Store:
    """The database to record in, made where it is missing and no run of it is to be resumed.

    Open it inside a head start: what planning refuses must be refused before a database is made.
    """
    from reprodb.store import check_label, open_store

    if options.label is not None:
        check_label(options.label)
    return open_store(url, write=True, create=options.resume is None)


def _plan(options: RunOptions, store: ArtifactStore, where: Where) -> Plan:
    from reprodb.campaign import plan
    from reprodb.profiles import bundled_profiles, check_required, load_profiles, select
    from reprodb.programs import OWN_PROFILES
    from reprodb.suite import bundled_suite, load_suite, select_kernels
    from reprodb.toolchains import catalog

    device = where.device
    suite = load_suite(options.suite or bundled_suite(), device.sm_count if device else None)
    profiles = load_profiles(options.profiles_file or bundled_profiles())
    selected = select({**profiles, **OWN_PROFILES}, options.profiles)
    check_required({**profiles, **OWN_PROFILES}, selected, options.require)
    found = store.toolchains() if options.no_compile else catalog.find()
    if options.no_compile and not found:
        raise ToolchainError(
            f"nothing is in the artifact store {store.root}",
            remedy="reprodb build, or name another folder with --store",
        )
    kernels = select_kernels(suite, options.kernels, options.tags)
    left_out = _left_out(kernels, tuple(selected), where.lane, named=bool(options.kernels))
    absent = {each.kernel for each in left_out}
    kernels = tuple(k for k in kernels if k.name not in absent)
    made = plan(
        suite,
        kernels,
        selected,
        found,
        arch=options.arch,
        native=device.arch if device else None,
        repetitions=options.repetitions,
        require=options.require,
        cases=options.cases,
        stress=[name for name in options.stress if name not in _not_stressed(options, where)],
        store=store.root if options.no_compile else None,
    )
    builds = (replace(build, here=runs_on(build.kernel, where.lane)) for build in made.builds)
    made = replace(made, builds=tuple(builds))
    if not options.orders:
        bare = (replace(build, kernel=replace(build.kernel, fingerprint=None)) for build in made.builds)
        made = replace(made, builds=tuple(bare))
    return replace(made, left_out=left_out)


def _left_out(
    kernels: Sequence[Kernel], profiles: Sequence[Profile], lane: Lane, *, named: bool
) -> tuple[LeftOut, ...]:
    """The kernels that cannot run. What is named and runs on another lane is a result that says so.

    Without names the profiles choose: kernels that have none of them were not asked for.
    """
    from reprodb.programs import lacking, profiles_of, runs_under

    found = []
    for kernel in kernels:
        program = kernel.program
        if program is not None and not any(runs_under(program, profile) for profile in profiles):
            if named:
                reason = f"of other profiles than --profile names ({profiles_of(program)})"
                remedy = "name such a profile too, or leave --profile out"
                if not runs_on(kernel, lane):
                    where, device = _elsewhere(kernel)
                    reason, remedy = f"{where} and {reason}", f"{device}, and {remedy}"
                found.append(LeftOut(kernel.name, reason, remedy))
        elif not named and not runs_on(kernel, lane):
            found.append(LeftOut(kernel.name, *_elsewhere(kernel)))
    if named:
        return tuple(found)
    here = [kernel for kernel in kernels if runs_on(kernel, lane)]
    found += [LeftOut(name, why, "install it, or name other kernels") for name, why in lacking(here).items()]
    return tuple(found)


def _elsewhere(kernel: Kernel) -> tuple[str, str]:
    """Why a kernel runs on another lane, and what runs it."""
    if kernel.program is None:
        return "for a GPU or the model", "--device gpu or --device model"
    if kernel.program.device == "gpu":
        return "for a GPU alone", "--device gpu"
    return "for the CPU alone", "--device cpu"


@contextmanager
def opened_bench(options: RunOptions, listener: Listener, ahead: HeadStart | None = None) -> Iterator[Bench]:
    """A started pool on the device that the options ask for, that of `ahead` where it was begun.

    A GPU that `auto` chose and that then cannot be opened gives way to the model, and the sentence says so.
    """
    from reprodb.artifacts import DEFAULT_ROOT, ArtifactStore
    from reprodb.executors.choice import resolve_device, without_gpu

    store = ArtifactStore(options.store or DEFAULT_ROOT, listener.said)
    where = ahead.where if ahead else resolve_device(options.device)
    with ExitStack() as stack:
        pool = ahead.pool if ahead else stack.enter_context(_pool(where, options, store))
        try:
            platform = pool.start()
        except ExecutionError as error:
            if options.device != "auto" or where.device is None:
                raise
            where = without_gpu(error.problem.splitlines()[0])
            for building in (ahead.canaries, ahead.building) if ahead else ():
                if building is not None:
                    building.close()
            ahead = None
            pool = stack.enter_context(_pool(where, options, store))
            platform = pool.start()
        listener.said(where.sentence)
        yield Bench(options, store, where, pool, platform, ahead)


def _pool(where: Where, options: RunOptions, store: ArtifactStore) -> Pool:
    from reprodb.campaign import cores
    from reprodb.executors.base import ExecutorOptions
    from reprodb.executors.pool import Limits, Pool
    from reprodb.limits import machine_memory

    index = where.device.index if where.device else 0
    workers = 1 if where.device else options.jobs or cores()
    # No kernel on the model needs more than the machine has; CUDA reserves far more than it uses.
    memory = machine_memory() if where.executor == "model" else None
    return Pool(
        ExecutorOptions(where.executor, index, store.root.absolute() / "model", memory),
        workers=workers,
        limits=Limits(options.timeout),
    )


def _canaries(plan: Plan) -> Plan | None:
    """The canaries under the plan's first toolchain and architecture; None where it compiles nothing."""
    from reprodb.canaries import plan_canaries

    compiled = [build for build in plan.builds if build.kernel.program is None]
    return plan_canaries(compiled[0].toolchain, compiled[0].arch) if compiled else None


def run_canaries(plan: Plan, bench: Bench) -> tuple[CanaryOutcome, ...]:
    """The canaries' outcomes."""
    from reprodb.canaries import not_run, outcomes

    planned = bench.ahead.canaries.plan if bench.ahead and bench.ahead.canaries else _canaries(plan)
    if planned is None:  # no compiler has a part in this run
        return not_run("no kernel is compiled")[:1]
    building = bench.ahead.canaries if bench.ahead else None
    try:
        with closing(bench.results(planned, "canaries", building=building)) as made:
            return outcomes([result for result, _ in made])
    except ToolchainError as error:  # a store that was filled without them
        return not_run(error.problem)


def _new_run(options: RunOptions, plan: Plan, bench: Bench, now: Clock) -> Run:
    from reprodb.environment import host_environment

    return Run(
        uid=uuid4().hex,
        suite=plan.suite.name,
        lane=bench.where.lane,
        environment=host_environment(bench.platform),
        started_at=now(),
        label=options.label,
        skipped=plan.skipped,
        policy=options.policy,
        kind=options.kind,
        seed=options.seed,
        left_out=plan.left_out,
        not_stressed=tuple(_not_stressed(options, bench.where).items()),
        request=options.request,
    )


def incomplete_run(ref: str, database: Store) -> Run:
    """The run that `--resume` names. Raises UsageError where there is nothing to go on with."""
    run_id = database.resolve(ref).run_id
    if run_id is None:
        raise UsageError(f"run {ref!r} cannot be resumed", allowed="the number of an incomplete run")
    run = database.run(run_id)
    if run.complete:
        raise UsageError(f"run {run_id} is complete", allowed="the number of an incomplete run")
    return run


def _resumed(ref: str, options: RunOptions, database: Store, plan: Plan, bench: Bench) -> Run:
    """The incomplete run to go on with. Raises UsageError where its rows would not be of one making."""
    run = incomplete_run(ref, database)
    now_on, was_on = bench.platform.device, run.environment.device
    before = (run.suite, run.lane.value, was_on.uuid if was_on else "")
    here = (plan.suite.name, bench.where.lane.value, now_on.uuid if now_on else "")
    if before != here:
        was, would_be = (" ".join(part for part in parts if part) for parts in (before, here))
        raise UsageError(f"run {run.id} is of {was}; this would be {would_be}", remedy="start a new run")
    if options.seed not in (None, run.seed):
        raise UsageError(f"run {run.id} has another seed", remedy="leave --seed out")
    return run


def _record(plan: Plan, run: Run, bench: Bench, database: Store, listener: Listener) -> int:
    """Record results as they come; the number of the run, which begins with its first result."""
    from reprodb.campaign import Progress

    run_id = run.id
    left = plan if run_id is None else plan.without(database.completed_rows(run_id))
    listener.planned(left)
    seed = run.uid if run.seed is None else str(run.seed)
    done = len(plan.rows) - len(left.rows)
    building = bench.ahead.building if bench.ahead else None
    with closing(bench.results(left, seed, Progress(listener.built), building)) as made:
        try:
            for result, artifact in made:
                if run_id is None:
                    run_id = database.begin(run)
                database.record(run_id, result, artifact, keep=bench.options.keep)
                done += 1
                listener.finished(result)
        except KeyboardInterrupt:
            if run_id is None:
                raise KeyboardInterrupt("no result was recorded") from None
            kept = f"run {run_id} keeps {done} of {len(plan.rows)} results and is incomplete"
            before, after = bench.options.again
            words = " ".join(word for word in (before, f"--resume {run_id}", after) if word)
            raise KeyboardInterrupt(f"{kept}; go on with {words}") from None
    if run_id is None:
        raise _nothing(plan, bench.where.lane)
    return run_id


def _nothing(plan: Plan, lane: Lane) -> ReprodbError:
    """Why a plan is empty: kernels that cannot run here, or options that choose none."""
    if plan.left_out:
        told = left_out_words(plan.left_out)
        return ReprodbError(
            f"nothing is left to run: {'; '.join(text for text, _ in told)}",
            remedy="\n        ".join(dict.fromkeys(remedy for _, remedy in told)),
        )
    places = {"--device gpu": Lane.MEASURED, "--device model": Lane.MODELLED, "--device cpu": Lane.HOST}
    elsewhere = []
    for device, other in places.items():
        names = [k.name for k in plan.suite.kernels if runs_on(k, other) and not runs_on(k, lane)]
        if names:
            more = f" and {len(names) - 5} more" * (len(names) > 5)
            elsewhere.append(f"{device} runs {', '.join(names[:5])}{more}")
    return UsageError("nothing to run: no kernel and case is selected", remedy="; ".join(elsewhere))
