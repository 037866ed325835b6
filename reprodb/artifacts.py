"""The artifact store: one folder an artifact, named by its content key, written whole or not at all."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from reprodb import codec
from reprodb.digest import sha256
from reprodb.domain import Artifact, Build, BuildRequest, Status, Toolchain
from reprodb.errors import StoreError, UsageError
from reprodb.files import put_in_place

Record = dict[str, Any]

# Below the current folder, unless --store names another.
DEFAULT_ROOT = Path("builds/store")

_KEY = re.compile(r"[0-9a-f]{64}")
_RECORD = "build.json"
_SUMS = "SHA256SUMS"  # what `sha256sum -c` reads
_TEXTS = {"kernel.ptx": "ptx", "kernel.sass": "sass"}
_CUBIN = "kernel.cubin"
_FILES = (_RECORD, "kernel.ptx", _CUBIN, "kernel.sass", _SUMS)

# Limits on a packed store from elsewhere.
_MOST_BYTES = 512 * 1024 * 1024  # of one file
_MOST_TOTAL = 16 * 1024 * 1024 * 1024
_MOST_MEMBERS = 500_000


class ArtifactStore:
    """Artifacts below `root`, as `ab/abcdef…/` with `build.json`, `kernel.ptx`, `.cubin`, `.sass` and sums.

    Several processes may read and write one store. `report` hears of damaged entries, which count as absent.
    """

    def __init__(self, root: Path, report: Callable[[str], None] = lambda _: None) -> None:
        self.root = root
        self._report = report

    # --- One artifact

    def get(self, key: str) -> Artifact | None:
        """The artifact of a key with its digests verified, marked `cached`; None if absent or damaged."""
        folder = self._folder(key)
        try:
            return _read(folder, key)
        except FileNotFoundError:
            if folder.exists():
                self._report(f"artifact {key[:12]} is incomplete and counts as absent: {folder}")
        except (OSError, ValueError, KeyError) as error:
            self._report(f"artifact {key[:12]} is damaged and counts as absent ({error}): {folder}")
        return None

    def put(self, artifact: Artifact) -> None:
        """Store a successful artifact; an entry of the same key stays unless it is damaged or says less.

        Raises StoreError that names the path where the disk is full or read-only; nothing half is left.
        Raises ValueError for a failed build: failures are not stored, they are tried again.
        """
        build = artifact.build
        if build.status is not Status.OK or artifact.ptx is None or artifact.cubin is None:
            raise ValueError(f"artifact {build.key[:12]} is no successful build")
        self._place(build.key, _files_of(artifact), artifact)

    def keys(self) -> Iterator[str]:
        """Keys of all entries, sorted; entries are not read."""
        if self.root.is_dir():
            for shelf in sorted(self.root.iterdir()):
                if re.fullmatch(r"[0-9a-f]{2}", shelf.name) and shelf.is_dir():
                    yield from (e.name for e in sorted(shelf.iterdir()) if _KEY.fullmatch(e.name))

    def check(self) -> tuple[str, ...]:
        """Keys of damaged entries."""
        return tuple(key for key in self.keys() if self.get(key) is None)

    # --- What is in it

    def toolchains(self) -> tuple[Toolchain, ...]:
        """The toolchains whose artifacts are here, each once, with the origin `store`."""
        found: dict[Any, Toolchain] = {}
        for record in self.records():
            data = record["toolchain"]
            toolchain = codec.decode(Toolchain, {**data, "path": "", "origin": "store"})
            components = tuple(c for c in toolchain.components if c[0] != "included headers")
            toolchain = replace(toolchain, components=components)
            found.setdefault(toolchain.identity, toolchain)
        return tuple(found.values())

    def find(
        self, request: BuildRequest, options: tuple[str, ...], records: Sequence[Record] | None = None
    ) -> Artifact | None:
        """The artifact of the same sources, options and defines by the newest toolchain the profile accepts.

        This is how a machine without the compiler runs what was built elsewhere: the request's toolchain is
        not looked at, the profile's compiler and version specifier are. `records` saves reading them again.
        """
        from packaging.version import Version

        from reprodb.profiles import specifier

        wanted = specifier(request.profile.toolkit)
        sources = {file.path: sha256(file.text.encode()) for file in request.files}
        fitting: list[tuple[Version, str]] = []
        for record in self.records() if records is None else records:
            toolchain = record["toolchain"]
            if (
                toolchain["compiler"] == request.profile.compiler
                and record["arch"] == request.arch
                and tuple(record["options"]) == options
                and dict(record["sources"]) == sources
                and record["sources"][0][0] == request.source
                and wanted.contains(toolchain["version"], prereleases=True)
            ):
                fitting.append((Version(toolchain["version"]), record["key"]))
        for _, key in sorted(fitting, reverse=True):
            artifact = self.get(key)
            if artifact is not None:
                return artifact
        return None

    def records(self) -> tuple[Record, ...]:
        """Every entry's `build.json` as plain data; what cannot be read is reported and passed over."""
        found: list[Record] = []
        for key in self.keys():
            try:
                record = json.loads((self._folder(key) / _RECORD).read_text(encoding="utf-8"))
                if record["key"] == key and {"toolchain", "arch", "options", "sources"} <= record.keys():
                    found.append(record)
            except (OSError, ValueError, KeyError, TypeError) as error:
                self._report(f"artifact {key[:12]} is damaged and counts as absent ({error})")
        return tuple(found)

    # --- Carrying a store

    def pack(self, file: Path, keys: Iterable[str] | None = None) -> int:
        """Write entries (all by default) into one compressed archive; how many. The same entries give the
        same bytes. Raises StoreError if it cannot be written, UsageError for a key that is not here."""
        wanted = sorted(self.keys() if keys is None else set(keys))
        temporary = file.with_name(f".{file.name}.{os.getpid()}.part")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as raw, _packed(raw, file.suffix) as archive:
                for key in wanted:
                    artifact = self.get(key)
                    if artifact is None:
                        raise UsageError(f"artifact {key} is not in {self.root}")
                    for name, data in sorted(_files_of(artifact).items()):
                        member = tarfile.TarInfo(f"{key}/{name}")
                        member.size = len(data)
                        archive.addfile(member, io.BytesIO(data))
            put_in_place(temporary, file)
        except OSError as error:
            raise _failed(f"packing into {file}", error, "file with --pack") from error
        finally:
            temporary.unlink(missing_ok=True)
        return len(wanted)

    def unpack(self, file: Path) -> int:
        """Take in the artifacts of an archive that `pack` wrote; how many. Every digest is verified first.

        Raises UsageError for a file that is no such archive or holds anything but artifacts: links, other
        names, oversized members, wrong digests. What came before the fault is kept, each entry whole.
        """
        count = 0
        try:
            with tarfile.open(file, "r:*") as archive:
                for key, files in _entries(archive, file):
                    artifact = _decode(key, files)
                    self._place(key, files, artifact)
                    count += 1
        except (tarfile.TarError, ValueError, KeyError, EOFError) as error:
            raise UsageError(
                f"{file} is no archive of artifacts: {error}",
                allowed="what `reprodb build --pack FILE` writes",
            ) from error
        except OSError as error:
            raise _failed(f"reading {file}", error, "file with --unpack") from error
        return count

    # --- Writing

    def _folder(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise UsageError(f"artifact key {key!r}", allowed="64 lower-case hexadecimal digits")
        return self.root / key[:2] / key

    def _place(self, key: str, files: dict[str, bytes], artifact: Artifact) -> None:
        """Write beside the target, then rename. The loser of a race leaves the winner's entry."""
        target = self._folder(key)
        present = self.get(key)
        if present is not None and (present.sass is not None or artifact.sass is None):
            return
        temporary: Path | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=".part-", dir=target.parent))
            temporary.chmod(0o755)
            for name, data in files.items():
                _write_durably(temporary / name, data)
            _sync_folder(temporary)
            self._swap_in(temporary, target, key)
            _sync_folder(target.parent)
        except OSError as error:
            raise _failed(f"storing artifact {key[:12]} in {target}", error) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    def _swap_in(self, temporary: Path, target: Path, key: str) -> None:
        try:
            temporary.rename(target)
            return
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        # Something is in the way: a damaged or poorer entry, which was judged above, or a winner of a race,
        # whose content under this key is as good as ours.
        aside = Path(tempfile.mkdtemp(prefix=".old-", dir=target.parent))
        try:
            with suppress(FileNotFoundError):
                target.rename(aside / "entry")
            with suppress(FileExistsError):
                temporary.rename(target)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _files_of(artifact: Artifact) -> dict[str, bytes]:
    """An entry's files by name, the sums last."""
    files = {_RECORD: (codec.dumps(artifact.build) + "\n").encode()}
    for name, field in _TEXTS.items():
        text = getattr(artifact, field)
        if text is not None:
            files[name] = text.encode()
    if artifact.cubin is not None:
        files[_CUBIN] = artifact.cubin
    files[_SUMS] = "".join(f"{sha256(data)}  {name}\n" for name, data in sorted(files.items())).encode()
    return files


def _read(folder: Path, key: str) -> Artifact:
    names = (*(line.split("  ", 1)[1] for line in (folder / _SUMS).read_text().splitlines()), _SUMS)
    unknown = set(names) - set(_FILES)
    if unknown:
        raise ValueError(f"unknown files {sorted(unknown)}")
    return _decode(key, {name: (folder / name).read_bytes() for name in names})


def _decode(key: str, files: dict[str, bytes]) -> Artifact:
    """An artifact from an entry's files. Raises ValueError or KeyError where anything disagrees."""
    for line in files[_SUMS].decode().splitlines():
        digest, name = line.split("  ", 1)
        if sha256(files[name]) != digest:
            raise ValueError(f"{name} does not have its digest")
    if len(files[_SUMS].splitlines()) != len(files) - 1:
        raise ValueError("files without a digest")
    try:
        build = codec.loads(Build, files[_RECORD].decode())
    except Exception as error:  # cattrs raises groups of whatever went wrong below
        raise ValueError(f"{_RECORD} is not readable: {error}") from error
    if build.key != key or build.status is not Status.OK:
        raise ValueError(f"{_RECORD} is another artifact's")
    texts = {field: files[name].decode() if name in files else None for name, field in _TEXTS.items()}
    if texts["ptx"] is None:
        raise ValueError("no PTX")
    return Artifact(build=build, cubin=files[_CUBIN], cached=True, **texts)


def _entries(archive: tarfile.TarFile, file: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """(key, files) of each artifact of an archive; members of one artifact lie together."""
    key, files, total = "", dict[str, bytes](), 0
    for number, member in enumerate(archive):
        head, _, name = member.name.partition("/")
        total += member.size
        if not member.isreg() or not _KEY.fullmatch(head) or name not in _FILES:
            raise ValueError(f"unexpected member {member.name!r}")
        if member.size > _MOST_BYTES or total > _MOST_TOTAL or number >= _MOST_MEMBERS:
            raise ValueError(f"member {member.name!r} goes beyond the size limits")
        if head != key:
            if files:
                yield key, files
            key, files = head, {}
        if name in files:
            raise ValueError(f"member {member.name!r} twice")
        content = archive.extractfile(member)
        if content is None:
            raise ValueError(f"member {member.name!r} cannot be read in {file}")
        files[name] = content.read()
    if files:
        yield key, files


def _packed(raw: Any, suffix: str) -> Any:
    """A compressed tar stream without names or times: gzip, or xz for `.xz`, which is slower and far smaller
    where artifacts are much alike."""
    import gzip
    import lzma
    from contextlib import contextmanager

    def compressor() -> Any:
        if suffix == ".xz":
            # Its window is what makes it small: several artifacts' texts.
            window = {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}
            return lzma.LZMAFile(raw, "wb", filters=[window])
        return gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0)

    @contextmanager
    def opened() -> Iterator[tarfile.TarFile]:
        with (
            compressor() as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            yield archive

    return opened()


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _failed(doing: str, error: OSError, place: str = "folder with --store") -> StoreError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = f"free some space, or name another {place}" if full else f"name another, writable {place}"
    return StoreError(f"{doing} failed: {error.strerror or error}", remedy=remedy)
