"""What pages fetch from a database: patterns, code texts, the past of each row, its claim card."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reprodb.claims import Claim
    from reprodb.domain import Result, Run, Scope
    from reprodb.render.sources import Sources
    from reprodb.render.timeline import Moment
    from reprodb.store.store import Store


class Archive:
    """A database as pages read it: each kernel's history once, however many pages and findings ask."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._histories: dict[tuple[str, str, str], tuple[tuple[Run, Result], ...]] = {}
        self._pasts: dict[tuple[str, str, str], dict[Scope, tuple[Moment, ...]]] = {}
        self._runs: tuple[Run, ...] | None = None

    def sources(self, run: Run) -> Sources:
        """What a page of `run` may ask for, as things stood then: later runs are not on it."""
        from reprodb.claims import claim
        from reprodb.domain import scope_of
        from reprodb.render.sources import Sources

        def past(result: Result) -> tuple[Moment, ...]:
            found = self._moments(run, result).get(scope_of(run, result), ())
            return tuple(moment for moment in found if moment.run.started_at <= run.started_at)

        def card(result: Result) -> Claim:
            key = result.build.key if result.build else ""
            served = result.kernel.composition
            serial = served.serial if served is not None else None
            beside = self._store.results(run.id, kernel=serial) if serial and run.id is not None else ()
            return claim(run, result, self._until(run, result), self._store.code_texts(key)[1], beside)

        return Sources(
            fetch=self._store.pattern,
            code_texts=self._store.code_texts,
            past=past,
            claims=card,
            nights=self._nights(run),
        )

    def _history(self, run: Run, result: Result) -> tuple[tuple[Run, Result], ...]:
        key = _key(run, result)
        if key not in self._histories:
            self._histories[key] = self._store.history(key[1], case=key[2], suite=key[0])
        return self._histories[key]

    def _until(self, run: Run, result: Result) -> tuple[tuple[Run, Result], ...]:
        """The results of its kernel and case up to that run, newest first."""
        return tuple(pair for pair in self._history(run, result) if pair[0].started_at <= run.started_at)

    def _moments(self, run: Run, result: Result) -> dict[Scope, tuple[Moment, ...]]:
        """The moments of its kernel and case by scope, newest first: each knows only what was before it."""
        from reprodb.domain import scope_of
        from reprodb.render.timeline import moments

        key = _key(run, result)
        if key not in self._pasts:
            scopes: dict[Scope, list[Moment]] = {}
            for moment in moments(self._history(run, result)):
                scopes.setdefault(scope_of(moment.run, moment.result), []).append(moment)
            self._pasts[key] = {scope: tuple(found) for scope, found in scopes.items()}
        return self._pasts[key]

    def _nights(self, run: Run) -> tuple[Run, ...]:
        from reprodb.render.strip import place_of

        if self._runs is None:
            self._runs = self._store.runs()
        return tuple(
            night
            for night in self._runs
            if night.kind == "nightly"
            and place_of(night) == place_of(run)
            and night.started_at <= run.started_at
        )


def _key(run: Run, result: Result) -> tuple[str, str, str]:
    return (run.suite, result.kernel.name, result.case.name)


def single(store: Store, run: Run) -> Sources:
    """The sources of a single page: a file by itself, which links to no other."""
    return Archive(store).sources(run)
