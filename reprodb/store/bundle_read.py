"""Reading a bundle from anywhere: everything in it is checked before anything of it is used."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

from reprodb import codec, digest
from reprodb.domain import Artifact, Output, Result
from reprodb.errors import ReprodbError, StoreError
from reprodb.store import bundle_format as form
from reprodb.store.patterns import PAGE, page_digests
from reprodb.store.write import check_result, check_run, text_of

T = TypeVar("T")
_END = struct.Struct("<4s4H2LH")  # the record at the end of a zip file
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """A result of a bundle with what else is to be stored with it."""

    result: Result
    artifact: Artifact | None
    accepted: bool
    line: form.ResultLine


@dataclass(frozen=True, slots=True)
class BundledRun:
    head: form.RunLine
    rows: tuple[Row, ...]


class Bundle:
    """A bundle that passed every check. It stays open, for large patterns are read when they are stored."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError that names the bundle and what is wrong with it."""
        self.path = path
        self._open = ExitStack()
        try:
            self._zip = self._open_zip()
            self._verify()
        except StoreError:
            self._open.close()
            raise
        except ReprodbError as error:  # a label that nobody may give here either
            self._open.close()
            raise self._bad(f"is refused: {error.problem}") from None
        except _HARMLESS as error:
            self._open.close()
            raise self._bad(f"cannot be read: {type(error).__name__}: {error}"[:300]) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def _bad(self, problem: str) -> StoreError:
        return StoreError(
            f"bundle {self.path} {problem}",
            remedy="nothing was imported; get the bundle again",
        )

    # --- The archive ---------------------------------------------------------------------------

    def _open_zip(self) -> zipfile.ZipFile:
        """The archive, its directory checked before the library reads it."""
        try:
            # A pipe or device would block or never end: ask what it is before opening it for good.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise StoreError(f"bundle {self.path} cannot be opened: {error.strerror}") from None
        kind = os.fstat(descriptor)
        if not stat.S_ISREG(kind.st_mode):
            os.close(descriptor)
            raise self._bad("is not a file")
        file: IO[bytes] = self._open.enter_context(os.fdopen(descriptor, "rb"))
        size = kind.st_size
        if size > form.LARGEST_FILE:
            raise self._bad(f"has {size} bytes, more than {form.LARGEST_FILE}")
        if size < _END.size:
            raise self._bad("is not a bundle, or truncated")
        file.seek(size - _END.size)
        sign, disk, start_disk, here, entries, length, offset, comment = _END.unpack(file.read(_END.size))
        if sign != b"PK\5\6":
            raise self._bad("is not a bundle, or truncated")
        if disk or start_disk or comment or here != entries or offset + length + _END.size != size:
            raise self._bad("is not laid out as a bundle")
        if entries > form.MOST_MEMBERS:
            raise self._bad(f"has {entries} members, more than {form.MOST_MEMBERS}")
        file.seek(0)
        return self._open.enter_context(zipfile.ZipFile(file))

    def _verify(self) -> None:
        infos = self._zip.infolist()
        names = [info.filename for info in infos]
        if not names or names[0] != form.MANIFEST or len(set(names)) != len(names):
            raise self._bad("has no manifest in front, or a name twice")
        for info in infos:
            if not form.NAME.fullmatch(info.filename) or info.orig_filename != info.filename:
                raise self._bad(f"has a member {info.filename[:80]!r}, which no bundle has")
            plain = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if not plain or info.flag_bits & 0x1 or info.extra or info.comment:
                raise self._bad(f"has {info.filename} packed as no bundle is")
            lines = info.filename.endswith((".json", ".jsonl"))
            if info.file_size > (form.LARGEST_LINES if lines else form.LARGEST_MEMBER):
                raise self._bad(f"has {info.filename} of {info.file_size} bytes, which is too much")
        packed = sum(info.compress_size for info in infos)
        total = sum(info.file_size for info in infos)
        texts = sum(info.file_size for info in infos if info.filename.startswith("texts/"))
        allowed = min(form.LARGEST_TOTAL, max(form.FREE_TOTAL, packed * form.LARGEST_RATIO))
        if total > allowed or texts > form.LARGEST_TEXTS:
            raise self._bad(f"would unpack to {total} bytes, which is too much for {packed}")

        self._sizes = {info.filename: info.file_size for info in infos}
        manifest = self._manifest()
        for name, member in manifest.members.items():
            self._check_member(name, member)
        self._content(manifest)

    def _manifest(self) -> form.Manifest:
        text = self._bytes(form.MANIFEST).decode()
        schema = json.loads(text)["schema"]
        if schema != form.SCHEMA:
            raise self._bad(f"has the format {schema!r}; this reprodb reads {form.SCHEMA}")
        manifest = self._line(form.Manifest, text, form.MANIFEST)
        if {form.MANIFEST, *manifest.members} != self._sizes.keys():
            raise self._bad("has other members than its manifest says")
        runs = [f"runs/{uid}.jsonl" for uid in manifest.runs]
        if sorted(runs) != sorted(name for name in self._sizes if name.startswith("runs/")):
            raise self._bad("has other runs than its manifest says")
        return manifest

    def _check_member(self, name: str, member: form.Member) -> None:
        if member.size != self._sizes[name]:
            raise self._bad(f"has {name} of another size than its manifest says")
        found = hashlib.sha256()
        size = 0
        for chunk in self.chunks(name):
            found.update(chunk)
            size += len(chunk)
        if size != member.size or found.hexdigest() != member.sha256:
            raise self._bad(f"has {name} damaged: its SHA-256 is not that of its manifest")
        folder, _, rest = name.partition("/")
        if folder in ("texts", "large") and rest != member.sha256:
            raise self._bad(f"has {name} under the name of other bytes")

    def chunks(self, name: str) -> Iterator[bytes]:
        """A member's bytes, never more than its directory entry says."""
        with self._zip.open(name) as member:
            while chunk := member.read(_CHUNK):
                yield chunk

    def _bytes(self, name: str) -> bytes:
        return b"".join(self.chunks(name))

    def large(self, sha256: str) -> bytes:
        """A large pattern's bytes."""
        return self._bytes(f"large/{sha256}")

    # --- What it says --------------------------------------------------------------------------

    def _line(self, kind: type[T], text: str, name: str) -> T:
        """The value of a line, which must be written as this reprodb writes it: no second spelling."""
        value = codec.loads(kind, text)
        if codec.dumps(value) != text:
            raise self._bad(f"has a line in {name} that is not in canonical form")
        return value

    def _lines(self, kind: type[T], name: str) -> list[T]:
        if name not in self._sizes:
            return []
        return [self._line(kind, text, name) for text in self._texts(name)]

    def _texts(self, name: str) -> list[str]:
        text = self._bytes(name).decode()
        if text and not text.endswith("\n"):
            raise self._bad(f"has {name} truncated")
        return text.split("\n")[:-1]

    def _content(self, manifest: form.Manifest) -> None:
        """Everything decoded, every reference followed, every digest and hash recomputed."""
        cases = self._keyed(self._lines(form.CaseLine, form.CASES), form.CASES)
        builds = self._keyed(self._lines(form.BuildLine, form.BUILDS), form.BUILDS)
        lines = self._lines(form.PatternLine, form.PATTERNS)
        self.patterns = {line.sha256: line for line in lines}
        if list(self.patterns) != sorted(self.patterns) or len(self.patterns) != len(lines):
            raise self._bad(f"has {form.PATTERNS} out of order")
        self.data: dict[str, bytes] = {}
        self._words: dict[str, bytes | None] = {}
        for line in lines:
            self._check_pattern(line)

        texts = {d for line in builds.values() for d in (line.ptx, line.sass) if d is not None}
        kept = {f"large/{line.sha256}" for line in lines if line.kept and line.data is None}
        named = {f"texts/{d}" for d in texts} | kept
        if named != {name for name in self._sizes if name.startswith(("texts/", "large/"))}:
            raise self._bad("has texts or patterns that nothing refers to, or lacks some")
        decoded = {d: text_of(self._bytes(f"texts/{d}")) for d in texts}
        artifacts = {
            key: Artifact(
                line.build,
                ptx=None if line.ptx is None else decoded[line.ptx],
                sass=None if line.sass is None else decoded[line.sass],
            )
            for key, line in builds.items()
        }
        for case in cases.values():
            if len(case.kernel.cases) != 1:
                raise self._bad("has a kernel with more or fewer than its one case")

        used: set[str] = set()
        self.runs: dict[str, BundledRun] = {}
        for uid in manifest.runs:
            run = self._run(uid, cases, builds, artifacts)
            self.runs[uid] = run
            for row in run.rows:
                used.update((row.line.case, *([row.line.build] if row.line.build else [])))
                used.update(p.sha256 for output in row.result.outputs for p in output.patterns)
        if used != {*cases, *builds, *self.patterns}:
            raise self._bad("has cases, builds or patterns that no result refers to")

    def _keyed(self, lines: Iterable[T], name: str) -> dict[str, T]:
        """Lines by the digest of what they say, in the order of their digests."""
        keyed = {line.key: line for line in lines}  # type: ignore[attr-defined]
        if list(keyed) != sorted(keyed):
            raise self._bad(f"has {name} out of order")
        return keyed

    def _check_pattern(self, line: form.PatternLine) -> None:
        """A pattern's bytes against its digest, size and pages."""
        problem = self._bad(f"has pattern {line.sha256[:80]} damaged")
        if line.size <= PAGE:
            if line.data is None or not line.kept or line.pages:
                raise problem
            data = base64.b64decode(line.data, validate=True)
            if base64.b64encode(data).decode() != line.data:
                raise problem
            if len(data) != line.size or digest.sha256(data) != line.sha256:
                raise problem
            self.data[line.sha256] = data
            self._words[line.sha256] = _word(data)
            return
        if line.data is not None or len(line.pages) != -(-line.size // PAGE) or not _hex(*line.pages):
            raise problem
        self._words[line.sha256] = None
        if line.kept:
            data = self.large(line.sha256)
            # The member's SHA-256 was checked against its name.
            if len(data) != line.size or page_digests(data) != bytes.fromhex("".join(line.pages)):
                raise problem
            self._words[line.sha256] = _word(data)
        elif not _hex(line.sha256):
            raise problem

    def _run(
        self,
        uid: str,
        cases: dict[str, form.CaseLine],
        builds: dict[str, form.BuildLine],
        artifacts: dict[str, Artifact],
    ) -> BundledRun:
        name = f"runs/{uid}.jsonl"
        first, *others = self._texts(name)
        head = self._line(form.RunLine, first, name)
        run = head.run
        if run.uid != uid:
            raise self._bad(f"has run {run.uid[:80]!r} under the name {uid}")
        form.check_head(head)
        check_run(run)
        rows = []
        for text in others:
            line = self._line(form.ResultLine, text, name)
            try:
                case = cases[line.case]
                build = None if line.build is None else builds[line.build]
                result = form.result_of(line, run, case, build)
                check_result(run, result)
                for output in result.outputs:
                    self._check_output(output)
            except (KeyError, ValueError, StoreError) as error:
                problem = error.problem if isinstance(error, StoreError) else str(error)
                raise self._bad(f"has a result of run {uid} that is damaged: {problem}") from None
            rows.append(Row(result, artifacts[line.build] if line.build else None, line.accepted, line))
        order = [row.result.row for row in rows]
        if order != sorted(set(order)):
            raise self._bad(f"has the results of run {uid} out of order, or one twice")
        return BundledRun(head, tuple(rows))

    def _check_output(self, output: Output) -> None:
        """An output's patterns against its type and shape, and its hash against its patterns."""
        expected = form.pattern_bytes(output)
        words = []
        for pattern in output.patterns:
            if self.patterns[pattern.sha256].size != expected:
                raise ValueError(f"output {output.name} has a pattern that is not of {expected} bytes")
            words.append(self._words[pattern.sha256])
        whole = [word for word in words if word is not None]
        if len(whole) == len(words) and digest.run_hash(whole, output.sequence) != output.run_hash:
            raise ValueError(f"the run hash of output {output.name} is not that of its patterns")
        if output.first_bits is not None:
            data = self.data.get(output.patterns[0].sha256, b"")
            if output.first_bits != "0x" + data[::-1].hex():
                raise ValueError(f"the first bits of output {output.name} are not those of its pattern")


def _word(data: bytes) -> bytes:
    """What a pattern feeds to the run hash."""
    return data if len(data) <= digest.WORD_BYTES else digest.fnv1a64(data).to_bytes(8, "little")


def _hex(*digests: str) -> bool:
    return all(len(d) == 64 and set(d) <= set("0123456789abcdef") for d in digests)


def _harmless() -> tuple[type[BaseException], ...]:
    """What a damaged or hostile file makes the libraries raise: said in one sentence, without a traceback."""
    from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError

    return (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
        EOFError,
        RuntimeError,  # zipfile has kinds of it for what it cannot do
        struct.error,
        zlib.error,
        zipfile.BadZipFile,
        OSError,
        BaseValidationError,
        StructureHandlerNotFoundError,
    )


_HARMLESS = _harmless()
