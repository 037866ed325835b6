"""The log of a run: plain lines or JSON, from a level on, to standard error or a file; no credentials."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from reprodb.cli.progress import Both, Listener, Silent, listener
from reprodb.domain import Artifact, Result, Status

if TYPE_CHECKING:
    from reprodb.campaign import Plan, PlannedBuild
    from reprodb.findings import Diff

SCHEMA = "reprodb.log/1"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """What is logged at least: `debug` also artifacts, `info` every result, `warning` what went wrong."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Plain lines, or one JSON object a line.")
]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="What is logged at least.")]
LogFileOption = Annotated[
    Path | None,
    typer.Option("--log-file", metavar="FILE", help="Append the log to a file; progress stays as it is."),
]


@dataclass(frozen=True, slots=True)
class LogOptions:
    format: LogFormat = LogFormat.TEXT
    level: LogLevel = LogLevel.INFO
    file: Path | None = None


def redacted(text: str) -> str:
    """A text without the passwords of the URLs in it."""
    from reprodb.store.location import redact

    return _URL.sub(lambda found: redact(found[0]), text)


class JsonLog(Silent):
    """One JSON object a line: `time`, `level`, `event`, and what the event is about."""

    def __init__(self, stream: IO[str], level: LogLevel, now: Callable[[], datetime]) -> None:
        self._stream = stream
        self._least = list(LogLevel).index(level)
        self._now = now

    def event(self, name: str, level: LogLevel = LogLevel.INFO, **fields: object) -> None:
        if list(LogLevel).index(level) < self._least:
            return
        time = self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps(_clean({"time": time, "level": level.value, "event": name, **fields}))
        print(line, file=self._stream, flush=True)

    def said(self, sentence: str) -> None:
        self.event("message", text=sentence)

    def stage(self, name: str) -> None:
        self.event("stage", LogLevel.DEBUG, stage=name)

    def planned(self, plan: Plan) -> None:
        self.event("plan", suite=plan.suite.name, builds=len(plan.builds), results=len(plan.rows))

    def built(self, build: PlannedBuild, artifact: Artifact) -> None:
        ok = artifact.build.status is Status.OK
        self.event(
            "artifact",
            LogLevel.DEBUG if ok else LogLevel.WARNING,
            kernel=build.kernel.name,
            profile=build.profile.name,
            arch=build.arch,
            toolchain=build.toolchain.label,
            status=artifact.build.status.value,
            cached=artifact.cached,
            artifact=artifact.build.key,
        )

    def finished(self, result: Result) -> None:
        ok = result.status is Status.OK
        self.event("result", LogLevel.INFO if ok else LogLevel.WARNING, **result_fields(result))


def result_fields(result: Result) -> dict[str, Any]:
    """What a line says of a result."""
    from reprodb.digest import hex64
    from reprodb.render.json import row_record

    return {
        **row_record(result),
        "lane": result.lane.value,
        "status": result.status.value,
        "repetitions": result.repetitions,
        "outputs": {
            output.name: {
                "role": output.role.value,
                "distinct": output.distinct,
                "first_bits": output.first_bits,
                "run_hash": hex64(output.run_hash),
                "sha256": output.sha256,
            }
            for output in result.outputs
        },
        "accuracy": result.accuracy.verdict.value,
        "seconds": round(result.seconds, 6),
        "error": result.error.partition("\n")[0],
    }


def _clean(value: Any) -> Any:
    """Every text of a record without credentials."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: _clean(part) for key, part in value.items()}
    return value


class Journal:
    """The log of one command. `listener` hears of the run; `verdict` and errors are said at the end."""

    def __init__(self, heard: Listener, structured: JsonLog | None) -> None:
        self.listener = heard
        self._structured = structured

    def verdict(self, diff: Diff) -> None:
        if self._structured is not None:
            level = LogLevel.INFO if diff.exit_code == 0 else LogLevel.ERROR
            run = diff.candidate
            self._structured.event(
                "verdict",
                level,
                run=run.id,
                uid=run.uid,
                exit_code=diff.exit_code,
                verdict=diff.headline,
                reasons="; ".join(diff.reasons),
            )

    def ended(self, run: int | None, exit_code: int, reason: str) -> None:
        if self._structured is not None:
            level = LogLevel.INFO if exit_code == 0 else LogLevel.ERROR
            self._structured.event("verdict", level, run=run, exit_code=exit_code, verdict=reason)

    def failed(self, problem: str) -> None:
        if self._structured is not None:
            self._structured.event("error", LogLevel.ERROR, text=problem)


@contextmanager
def journal(
    options: LogOptions, *, quiet: bool, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Iterator[Journal]:
    """The log as the options ask for it. An error that ends the command is its last line.

    Raises StoreError where the file cannot be opened.
    """
    from reprodb.errors import ReprodbError, StoreError

    with ExitStack() as stack:
        if options.file is None:
            heard, structured = _on(sys.stderr, options, quiet=quiet, now=now)
        else:
            try:
                options.file.parent.mkdir(parents=True, exist_ok=True)
                stream = stack.enter_context(options.file.open("a", encoding="utf-8"))
            except OSError as error:
                raise StoreError(f"the log {options.file} cannot be written: {error.strerror}") from None
            written, structured = _on(stream, options, quiet=False, now=now)
            heard = Both(listener(quiet=quiet), written)
        book = Journal(heard, structured)
        try:
            yield book
        except ReprodbError as error:
            book.failed(error.problem)
            raise
        except KeyboardInterrupt:
            book.failed("interrupted")
            raise


def _on(
    stream: IO[str], options: LogOptions, *, quiet: bool, now: Callable[[], datetime]
) -> tuple[Listener, JsonLog | None]:
    if options.format is LogFormat.JSON:
        structured = JsonLog(stream, options.level, now)
        return structured, structured
    silent = quiet or options.level is LogLevel.ERROR
    problems = options.level is LogLevel.WARNING
    return listener(
        quiet=silent, problems=problems, verbose=options.level is LogLevel.DEBUG, stream=stream
    ), None
