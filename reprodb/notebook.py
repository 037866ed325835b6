"""Outcomes of experiments, kept in files of a cache folder: what an interrupted search knows already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reprodb import codec
from reprodb.executors.task import Outcome
from reprodb.files import keep_file


@dataclass(frozen=True, slots=True)
class FileNotebook:
    """One file a key below `folder`. What cannot be read is absent; what cannot be written is not kept.

    Without `reading` nothing is found and everything is written anew.
    """

    folder: Path
    reading: bool = True

    def get(self, key: str) -> Outcome | None:
        if not self.reading:
            return None
        try:
            return codec.loads(Outcome, self._file(key).read_text(encoding="utf-8"))
        except Exception:  # absent, cut off, or of another version of reprodb
            return None

    def put(self, key: str, outcome: Outcome) -> None:
        keep_file(self._file(key), codec.dumps(outcome).encode())

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"
