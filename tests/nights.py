"""A folder with a database, a ledger and a policy, in which nights are recorded rather than executed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from reprodb.cli.flow import RecordedRun
from reprodb.cli.nightly import judge_night
from reprodb.domain import CanaryOutcome, Environment, Kernel, Result, Run, Suite
from reprodb.findings import Comparison, Diff, Verdict
from reprodb.ledger import Ledger, load_ledger
from reprodb.policy import parse_policy
from reprodb.store import open_store
from tests.builders import STARTED, make_environment
from tests.command import Said, reprodb


class Nights:
    """One night a day, each judged and accepted as `reprodb nightly` does it."""

    def __init__(self, folder: Path, policy: str = "") -> None:
        self.folder = folder
        self.database = folder / "reprodb.db"
        self.path = folder / "reprodb.lock"
        self.policy = policy
        self.count = 0
        self.last: Diff | None = None  # what a test keeps of the newest night

    @property
    def ledger(self) -> Ledger:
        return load_ledger(self.path)

    def night(
        self,
        *results: Result,
        environment: Environment | None = None,
        canaries: tuple[CanaryOutcome, ...] = (),
        finish: bool = True,
        at: datetime | None = None,
        kernels: tuple[Kernel, ...] = (),
    ) -> Diff:
        """One night of the whole suite, or of `kernels`; cut off where `finish` is false."""
        self.count += 1
        started = at or STARTED + timedelta(days=self.count)
        run = Run(
            f"{self.count:032x}"[::-1],
            "reprodb",
            results[0].lane,
            environment or make_environment(),
            started,
            kind="nightly",
            canaries=canaries,
        )
        with open_store(str(self.database), write=True) as store:
            run_id = store.begin(run)
            store.record_many(run_id, [(result, None) for result in results])
            if not finish:
                return Diff(None, run, ())
            done = started + timedelta(minutes=1)
            store.finish(run_id, None, done, canaries=canaries)
            suite = Suite("reprodb", self.folder, kernels)
            recorded = RecordedRun(store.run(run_id), store.results(run_id), suite, "")
            now = max(datetime.now(UTC), done)
            return judge_night(store, recorded, parse_policy(self.policy), self.ledger, now, everything=True)

    def call(self, *args: object) -> Said:
        return reprodb(*args, "--db", self.database, folder=self.folder)


def verdicts(diff: Diff) -> dict[str, Verdict]:
    return {c.kernel: c.verdict for c in diff.comparisons}


def row(diff: Diff, kernel: str = "sum_squares_tree") -> Comparison:
    return next(c for c in diff.comparisons if c.kernel == kernel)
