"""Outcomes of experiments, kept in files of a cache folder: what an interrupted search knows already."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reprodb import codec
from reprodb.executors.task import Outcome


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
        file = self._file(key)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=".part-", dir=file.parent)
            part = Path(name)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as out:
                    out.write(codec.dumps(outcome))
                part.replace(file)
            finally:
                part.unlink(missing_ok=True)

    def _file(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"
