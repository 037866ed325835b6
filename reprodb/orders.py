"""Order fingerprints kept beside the artifacts: what has the same code, shape and size is probed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reprodb import codec
from reprodb.digest import content_key
from reprodb.domain import Artifact, Fingerprint, Kernel, Lane, Status
from reprodb.executors.task import UNPREPARED, Outcome, Prepared, Task
from reprodb.files import keep_file
from reprodb.ordering import misfit

if TYPE_CHECKING:
    from reprodb.executors.base import Platform
    from reprodb.executors.pool import Pool

Row = tuple[str, str, str, str, str]  # as Result.row


def order_key(artifact: Artifact, kernel: Kernel, platform: Platform, seed: int) -> str:
    """What decides the order: code, launches, sizes and, on a GPU, its model and driver.

    `kernel` has the one case at hand. The arrival order of kernels that guarantee none follows the seed too.
    """
    code, case = artifact.build.code, kernel.cases[0]
    parts = [platform.lane.value, artifact.build.key]
    if code is not None and code.ptx and platform.lane is Lane.MODELLED:
        parts[1] = code.ptx
    elif code is not None and code.sass and code.constants and platform.device is not None:
        parts[1] = f"{code.sass} {code.constants} {platform.device.name} {platform.driver}"
    parts += [f"{name} {version}" for name, version in platform.libraries]
    parts += [codec.dumps(stage) for stage in kernel.stages]
    # The pattern of the case's own inputs has no say: they are replaced.
    inputs = tuple(replace(i, pattern="probe", params=()) for i in case.inputs)
    parts += [codec.dumps(replace(case, name="", inputs=inputs)), codec.dumps(kernel.fingerprint)]
    parts += [kernel.accumulator, "" if kernel.determinism.guaranteed else str(seed)]
    return content_key("reprodb.order.cache/1", *parts)


class Orders:
    """Fingerprints by key, a small file each. What cannot be read or written is probed again."""

    def __init__(self, root: Path) -> None:
        self._root = root / "orders"

    def get(self, key: str) -> Fingerprint | None:
        try:
            return codec.loads(Fingerprint, self._path(key).read_text("utf-8"))
        except Exception:  # whatever a damaged file makes a converter raise: it is no answer
            return None

    def put(self, key: str, found: Fingerprint) -> None:
        keep_file(self._path(key), codec.dumps(found).encode())

    def _path(self, key: str) -> Path:
        return self._root / f"{key}.json"


class OrderTaker:
    """The fingerprints of a run's rows, each distinct one taken once, by a task of its own in the pool.

    `campaign` is the run's seed: the arrival orders that are probed are the same for all profiles. With
    `every_pair` they are asked about as many pairs as fixed orders are.
    """

    def __init__(self, pool: Pool, kept: Orders, campaign: str, *, every_pair: bool = False) -> None:
        self._pool = pool
        self._kept = kept
        self._campaign = campaign
        self._every_pair = every_pair
        self._known: dict[str, Fingerprint] = {}
        self._waiting: dict[str, list[Row]] = {}
        self._asked: dict[int, tuple[str, bool]] = {}  # ticket → key, and whether it may be kept

    def ask(
        self,
        row: Row,
        kernel: Kernel,
        artifact: Artifact | str,
        tickets: Iterator[int],
        prepared: Prepared = UNPREPARED,
    ) -> Fingerprint | None:
        """The fingerprint of a row, None where a task was sent for it. `kernel` has the one case at hand."""
        if problem := misfit(kernel):
            return Fingerprint(reason=problem)
        if isinstance(artifact, str) or artifact.build.status is not Status.OK:
            log = artifact if isinstance(artifact, str) else artifact.build.log
            return Fingerprint(reason=f"the build that probes it failed: {_first_line(log)}")
        seed = int(content_key("reprodb.order.seed/1", self._campaign, kernel.name, row[1])[:16], 16)
        key = order_key(artifact, kernel, self._pool.start(), seed)
        found = self._known.get(key) or (self._kept.get(key) if kernel.program is None else None)
        if found is None and key in self._waiting:
            self._waiting[key].append(row)
        elif found is None:
            ticket = next(tickets)
            self._waiting[key] = [row]
            # A library may be another one tomorrow, under the same name and files.
            self._asked[ticket] = (key, kernel.determinism.guaranteed and kernel.program is None)
            task = Task(
                artifact, kernel, 1, seed, probing=True, every_pair=self._every_pair, prepared=prepared
            )
            self._pool.submit(ticket, task)
        return found

    def answered(self, ticket: int, outcome: Outcome) -> Iterator[tuple[Row, Fingerprint]]:
        """The rows that an outcome answers."""
        key, fixed = self._asked.pop(ticket)
        found = outcome.fingerprint
        if found is None:
            found = Fingerprint(reason=f"{outcome.status.replace('_', ' ')}: {_first_line(outcome.error)}")
        elif fixed:
            self._kept.put(key, found)
        self._known[key] = found
        for row in self._waiting.pop(key):
            yield row, found


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")[:200]
