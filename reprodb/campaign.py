"""Plan a run and carry it out: builds stream into executions, results come as they are made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from reprodb.digest import content_key
from reprodb.domain import (
    Artifact,
    Build,
    BuildRequest,
    Case,
    Fingerprint,
    Kernel,
    Lane,
    LeftOut,
    Pairs,
    Profile,
    Result,
    SkippedProfile,
    Status,
    Suite,
    Toolchain,
)
from reprodb.errors import ReprodbError, ToolchainError, UsageError
from reprodb.executors.task import UNPREPARED, Outcome, Prepared, Task
from reprodb.orders import Orders, OrderTaker
from reprodb.stress import PLAIN, STRESSES, TWIN, conditions

if TYPE_CHECKING:
    from reprodb.artifacts import ArtifactStore
    from reprodb.executors.pool import Pool

# What is kept of a compiler's log in a result's error; the build has the whole log.
_ERROR_CHARACTERS = 4_000
# How long a cancelled run waits for its compilers.
_LAST_BUILD_SECONDS = 5.0

Row = tuple[str, str, str, str, str]  # as Result.row
Made = tuple[Result, Artifact | None]


@dataclass(frozen=True, slots=True)
class PlannedBuild:
    """One kernel under one profile, with the cases that its artifact is executed on."""

    kernel: Kernel
    cases: tuple[Case, ...]
    profile: Profile
    toolchain: Toolchain
    arch: str
    condition: str = PLAIN
    here: bool = True  # it runs on this lane; a program that does not is not built for it either

    def row(self, case: Case) -> Row:
        return (self.kernel.name, case.name, self.profile.name, self.arch, self.condition)

    @property
    def ordered(self) -> bool:
        """Whether the order of the sum is measured too: once, and under no stress."""
        return self.kernel.fingerprint is not None and self.condition == PLAIN


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will do, before anything compiles. `skipped` are profiles without a toolchain."""

    suite: Suite
    builds: tuple[PlannedBuild, ...]
    skipped: tuple[SkippedProfile, ...]
    repetitions: int
    left_out: tuple[LeftOut, ...] = ()  # kernels that cannot run here
    every_pair: bool = False  # probe arrival orders with as many pairs as fixed ones

    @property
    def rows(self) -> tuple[Row, ...]:
        """The results that the run will have, one each."""
        return tuple(build.row(case) for build in self.builds for case in build.cases)

    def without(self, done: frozenset[Row] | set[Row]) -> Plan:
        """The plan of what is left when some rows are there already."""
        builds = []
        for build in self.builds:
            cases = tuple(case for case in build.cases if build.row(case) not in done)
            if cases:
                builds.append(replace(build, cases=cases))
        return replace(self, builds=tuple(builds))


def plan(
    suite: Suite,
    kernels: Sequence[Kernel],
    profiles: Sequence[Profile],
    found: Iterable[Toolchain],
    *,
    arch: str | None = None,
    native: str | None = None,
    repetitions: int = 100,
    require: Sequence[str] = (),
    cases: Sequence[str] = (),
    store: Path | None = None,
    stress: Sequence[str] = (),
) -> Plan:
    """Match profiles with toolchains and list what is to be built and executed.

    `store` says that `found` are the toolchains of the artifacts there, because nothing is to be compiled.

    `arch` overrides every profile's architecture; `native` is the GPU's, sm_90 where there is none. `require`
    names profiles that must have a toolchain. `cases` are globs over case names. `stress` are conditions
    beside the plain one. Raises UsageError for names that do not exist and ToolchainError where a required
    profile, or every profile, has no toolchain.
    """
    from reprodb.profiles import architecture, check_arch
    from reprodb.programs import HOST_ARCH, OWN_PROFILES, own_toolchain, runs_under
    from reprodb.toolchains.catalog import install_command, match

    _check_names("required profile", require, [profile.name for profile in profiles])
    _check_names("case", cases, [case.name for kernel in kernels for case in kernel.cases])
    toolchains = tuple(found)
    chosen = [(kernel, tuple(c for c in kernel.cases if _chosen(c.name, cases))) for kernel in kernels]
    chosen = [(kernel, those) for kernel, those in chosen if those]
    builds: list[PlannedBuild] = []
    skipped: list[SkippedProfile] = []
    compiling = [profile for profile in profiles if profile.name not in OWN_PROFILES]
    for profile in compiling:
        toolchain = match(profile, toolchains)
        if toolchain is None:
            wanted = f"{profile.compiler} {profile.toolkit}"
            reason, remedy = f"no {wanted} is installed", install_command(profile)
            if store is not None:
                reason = f"{store} has nothing that {wanted} built"
                remedy = f"reprodb build --profile {profile.name} --store {store}"
            skipped.append(SkippedProfile(profile.name, reason, remedy))
            continue
        target = check_arch(arch) if arch else architecture(profile, native)
        builds += [
            PlannedBuild(kernel, those, profile, toolchain, target)
            for kernel, those in chosen
            if kernel.program is None or runs_under(kernel.program, profile)
        ]
    for profile in (profile for profile in profiles if profile.name in OWN_PROFILES):
        for kernel, those in chosen:
            if kernel.program is not None and runs_under(kernel.program, profile):
                target = HOST_ARCH if kernel.program.device == "cpu" else arch or native or "sm_90"
                builds.append(PlannedBuild(kernel, those, profile, own_toolchain(profile), target))
    builds += [
        replace(build, condition=condition)
        for build in tuple(builds)
        for condition in conditions(build.kernel, stress)
    ]
    own_alone = bool(builds) and not any(build.kernel.program is None for build in builds)
    everything = bool(compiling) and len(skipped) == len(compiling) and not own_alone
    _check_skipped(skipped, require, everything=everything)
    return Plan(suite, tuple(builds), tuple(skipped), repetitions)


def _chosen(name: str, globs: Sequence[str]) -> bool:
    return not globs or _any_match(name, globs)


def _any_match(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _check_names(kind: str, globs: Sequence[str], known: Sequence[str]) -> None:
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            near = get_close_matches(glob, known, n=3, cutoff=0.5)
            raise UsageError(
                f"no {kind} matches {glob!r}",
                allowed=", ".join(dict.fromkeys(known)),
                remedy=f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else "",
            )


def _check_skipped(skipped: Sequence[SkippedProfile], require: Sequence[str], *, everything: bool) -> None:
    lacking = [s for s in skipped if everything or _any_match(s.profile, require)]
    if lacking:
        which = "no profile has a toolchain" if everything else "a required profile has no toolchain"
        raise ToolchainError(
            f"{which}: " + "; ".join(f"{s.profile} ({s.reason})" for s in lacking),
            remedy="\n        ".join(dict.fromkeys(s.remedy for s in lacking)),
        )


def result_seed(campaign: str, row: Row) -> int:
    """The seed of one result's arrival orders: its own for every row, so that profiles see other orders."""
    return int(content_key("reprodb.seed/1", campaign, *row)[:16], 16)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Callbacks of a run, called in the caller's thread. `building` hears of artifacts as they come."""

    building: Callable[[PlannedBuild, Artifact], None] = lambda build, artifact: None


def carry_out(
    planned: Plan,
    pool: Pool,
    lane: Lane,
    store: ArtifactStore,
    *,
    seed: str,
    jobs: int | None = None,
    no_compile: bool = False,
    progress: Progress = Progress(),
    building: Building | None = None,
) -> Generator[Made, None, None]:
    """Build and execute a plan; one result a planned row, with its artifact, as they come.

    Compilers run beside executions. A failed build, launch, crash or timeout is a result with status and
    error; which results come, and their bits, do not depend on timing or on `jobs`. `seed` is the campaign's
    (see `result_seed`). With `no_compile` a missing artifact raises ToolchainError before any result.
    `building` is what `begin_building` started for this very plan; it is started here where it is left out.
    Closing the iteration stops the compilers; the pool is the caller's to close.
    """
    begun = building or begin_building(planned, pool, store, jobs=jobs, no_compile=no_compile)
    orders = OrderTaker(pool, Orders(store.root), seed, every_pair=planned.every_pair)
    try:
        for build, problem in begun.refused:
            for case in build.cases:
                yield _Row(build, case, lane, planned.repetitions).failed_build(problem), None
        yield from _execute(planned, begun, pool, lane, orders, seed=seed, progress=progress)
    finally:
        begun.close()


def begin_building(
    planned: Plan, pool: Pool, store: ArtifactStore, *, jobs: int | None = None, no_compile: bool = False
) -> Building:
    """Start to make a plan's artifacts, whether or not anything can be executed yet. Close it in the end."""
    building = Building(planned, pool, store, jobs, no_compile)
    building.start()
    return building


def _request(suite: Suite, build: PlannedBuild) -> BuildRequest | str:
    """The build's request, or why there is none."""
    from reprodb.build import options_of, request

    try:
        wanted = request(suite, build.kernel, build.profile, build.toolchain, build.arch)
        options_of(wanted)
    except ReprodbError as error:
        return str(error)
    return wanted


@dataclass(frozen=True, slots=True)
class _Built:
    """What became of one request: an artifact, or why a store has none for probing."""

    build: PlannedBuild
    artifact: Artifact | str
    probing: bool
    prepared: Prepared = UNPREPARED

    @property
    def order(self) -> bool:
        """Whether the order is probed with this artifact."""
        probe = self.build.kernel.fingerprint if self.build.ordered else None
        apart = probe is not None and bool(probe.defines) and self.build.kernel.program is None
        return probe is not None and self.probing is apart


class Building(threading.Thread):
    """Makes a plan's artifacts in a thread of its own and wakes the pool for every one of them."""

    def __init__(
        self, planned: Plan, pool: Pool, store: ArtifactStore, jobs: int | None, no_compile: bool
    ) -> None:
        from reprodb.build import probing

        super().__init__(daemon=True, name="reprodb-build")
        self.plan = planned
        self._store = store
        self._pool = pool
        self._jobs = jobs
        self._no_compile = no_compile
        self._programs: list[PlannedBuild] = []
        self._requests: list[BuildRequest] = []
        self._probes: list[BuildRequest] = []
        self._planned: dict[int, PlannedBuild] = {}
        self.refused: list[tuple[PlannedBuild, str]] = []  # builds that cannot be asked for, and why
        for build in planned.builds:
            if build.kernel.program is not None:
                self._programs.append(build)
                continue
            request = _request(planned.suite, build)
            if isinstance(request, str):
                self.refused.append((build, request))
                continue
            probe = probing(request, build.kernel) if build.ordered else None
            for wanted, kind in ((request, self._requests), (probe, self._probes)):
                if wanted is not None:
                    kind.append(wanted)
                    self._planned[id(wanted)] = build
        # A row is done once it is executed and, where its kernel asks, its order is taken.
        builds = [*(self._planned[id(request)] for request in self._requests), *self._programs]
        self.parts = sum(len(b.cases) * (2 if b.ordered else 1) for b in builds)
        self._stopped = threading.Event()
        self._made: SimpleQueue[_Built | BaseException] = SimpleQueue()

    def run(self) -> None:
        try:
            for build in self._programs:
                if self._stopped.is_set():
                    return
                self._prepare(build)
            if not self._no_compile:
                self._build([*self._requests, *self._probes])
                return
            self._build(self._requests)
            for probe in self._probes:  # a store that was filled without them serves all the same
                try:
                    self._build([probe])
                except ToolchainError as error:
                    self._tell(_Built(self._planned[id(probe)], error.problem, probing=True))
        except BaseException as error:
            self._tell(error)

    def _prepare(self, build: PlannedBuild) -> None:
        from reprodb.programs import prepare

        artifact, prepared = prepare(
            self.plan.suite,
            build.kernel,
            build.profile,
            build.toolchain,
            build.arch,
            self._store.root,
            compile_it=not self._no_compile,
            build_it=build.here,
        )
        self._tell(_Built(build, artifact, probing=False, prepared=prepared))

    def _build(self, requests: Sequence[BuildRequest]) -> None:
        from reprodb.build import build_each

        if not requests:
            return
        probes = {id(request) for request in self._probes}
        each = build_each(requests, self._store, self._jobs, no_compile=self._no_compile)
        with closing(each) as made:  # type: ignore[type-var]
            for request, artifact in made:
                if self._stopped.is_set():
                    return
                self._tell(_Built(self._planned[id(request)], artifact, probing=id(request) in probes))

    def _tell(self, message: _Built | BaseException) -> None:
        self._made.put(message)
        if not self._stopped.is_set():
            self._pool.wake()

    def taken(self) -> Iterator[_Built]:
        """The artifacts since the last call. Raises what the builds raised."""
        while not self._made.empty():
            message = self._made.get()
            if isinstance(message, BaseException):
                raise message
            yield message

    def close(self) -> None:
        """Stop the compilers. Closing again does nothing."""
        self._stopped.set()
        self.join(_LAST_BUILD_SECONDS)


def _execute(
    planned: Plan,
    building: Building,
    pool: Pool,
    lane: Lane,
    orders: OrderTaker,
    *,
    seed: str,
    progress: Progress,
) -> Iterator[Made]:
    """Hand artifacts to the pool as they come, and its outcomes on as results."""
    running: dict[int, tuple[_Row, Artifact]] = {}
    joint = _Joint()
    apart: list[tuple[_Row, Artifact, Task]] = []
    left = building.parts
    tickets = count()
    while left:
        for built in building.taken():
            build, artifact = built.build, built.artifact
            for case in build.cases:
                row = _Row(build, case, lane, planned.repetitions)
                if built.order:
                    found = orders.ask(build.row(case), row.kernel, artifact, tickets, built.prepared)
                    left -= found is not None
                    yield from joint.order(build.row(case), found) if found is not None else ()
                if built.probing or not isinstance(artifact, Artifact):
                    continue
                if case is build.cases[0]:
                    progress.building(build, artifact)
                if artifact.build.status is not Status.OK:
                    yield row.failed_build(artifact.build.log[:_ERROR_CHARACTERS], artifact), artifact
                    left -= 1
                    continue
                task = replace(row.task(artifact, seed), prepared=built.prepared)
                if build.condition != PLAIN and STRESSES[build.condition].apart:
                    apart.append((row, artifact, task))
                    left -= 1
                    continue
                ticket = next(tickets)
                running[ticket] = (row, artifact)
                pool.submit(ticket, task)
        for ticket, outcome in pool.poll() if left else ():
            if ticket in running:
                row, artifact = running.pop(ticket)
                left -= 1
                yield from joint.result(row.result(outcome, artifact), artifact)
                continue
            for name, found in orders.answered(ticket, outcome):
                left -= 1
                yield from joint.order(name, found)
    for row, artifact, task in apart:
        yield row.result(_alone(pool, task), artifact), artifact


def _alone(pool: Pool, task: Task) -> Outcome:
    """A task in a process of its own, on another device where its condition asks for one."""
    from reprodb.environment import twins

    device, note = None, ""
    if task.condition == TWIN:
        here = pool.start().device
        others = twins(here) if here else ()
        if not others:
            model = here.name if here else "GPU"
            return Outcome(Status.UNSUPPORTED, error=f"this machine has no other {model}")
        device, note = others[0].index, f"ran on {others[0].uuid}"
    with pool.another(device) as own:
        (outcome,) = own.run([task])
    return replace(outcome, notes=(*outcome.notes, note)) if note else outcome


class _Joint:
    """Results and the fingerprints of their order, handed on when both are there."""

    def __init__(self) -> None:
        self._results: dict[Row, Made] = {}
        self._orders: dict[Row, Fingerprint] = {}

    def result(self, result: Result, artifact: Artifact | None) -> Iterator[Made]:
        if result.kernel.fingerprint is None or result.condition != PLAIN or result.status is not Status.OK:
            yield result, artifact
        elif result.row in self._orders:
            yield replace(result, fingerprint=self._orders.pop(result.row)), artifact
        else:
            self._results[result.row] = (result, artifact)

    def order(self, row: Row, found: Fingerprint) -> Iterator[Made]:
        if row in self._results:
            result, artifact = self._results.pop(row)
            yield replace(result, fingerprint=found), artifact
        else:
            self._orders[row] = found


def _with_libraries(build: Build, libraries: Pairs) -> Build:
    """The build whose compiler is a library, once the run has said which."""
    if not libraries:
        return build
    first, *others = libraries
    return replace(build, toolchain=Toolchain(first[0], first[1], "", "loaded", (), tuple(others)))


@dataclass(frozen=True, slots=True)
class _Row:
    """One result to be."""

    build: PlannedBuild
    case: Case
    lane: Lane
    repetitions: int

    @property
    def kernel(self) -> Kernel:
        return replace(self.build.kernel, cases=(self.case,))

    def task(self, artifact: Artifact, campaign: str) -> Task:
        # The modelled orders are those of the plain row, so that nothing but the condition differs.
        seed = result_seed(campaign, (*self.build.row(self.case)[:4], PLAIN))
        return Task(artifact, self.kernel, self.repetitions, seed, condition=self.build.condition)

    def failed_build(self, error: str, artifact: Artifact | None = None) -> Result:
        return self.result(Outcome(Status.BUILD_FAILED, error=error), artifact)

    def result(self, outcome: Outcome, artifact: Artifact | None) -> Result:
        return Result(
            kernel=self.kernel,
            case=self.case,
            profile=self.build.profile.name,
            arch=self.build.arch,
            lane=self.lane,
            status=outcome.status,
            repetitions=self.repetitions,
            outputs=outcome.outputs,
            accuracy=outcome.accuracy,
            build=_with_libraries(artifact.build, outcome.libraries) if artifact else None,
            origin=outcome.origin,
            input_digest=outcome.input_digest,
            condition=self.build.condition,
            error=outcome.error,
            seconds=outcome.seconds,
            notes=outcome.notes,
            batches=outcome.batches,
        )
