"""The artifact store: whole or absent, whatever happens to the disk, the folder or a packed file."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reprodb import artifacts
from reprodb.artifacts import ArtifactStore
from reprodb.digest import content_key, sha256
from reprodb.domain import (
    Artifact,
    Build,
    BuildRequest,
    Code,
    FunctionCounts,
    Profile,
    SourceFile,
    Status,
    Toolchain,
)
from reprodb.errors import ReprodbError, StoreError, UsageError

SOURCE = SourceFile("k.cu", "__global__ void k() {}\n")
PROFILE = Profile("default", "nvrtc", ">=12")


def artifact(name: str = "a", version: str = "12.6.85", sass: str | None = "FFMA\n") -> Artifact:
    build = Build(
        key=content_key("test", name, version),
        profile=PROFILE,
        toolchain=Toolchain("nvrtc", version, "", "wheel", ("sm_90",), (("ptxas", "1"),)),
        arch="sm_90",
        options=("-arch=sm_90", f"-DNAME={name}"),
        defines=(("NAME", name),),
        sources=((SOURCE.path, sha256(SOURCE.text.encode())),),
        status=Status.OK,
        log="warning: π\n",
        code=Code("1", "2", None, (FunctionCounts("k", (("fma.rn.f32", 1),), (("FFMA", 1),)),)),
    )
    return Artifact(build, f".version 8 // {name} é\n", b"\x7fELF\0" + name.encode(), sass)


def request(toolkit: str = ">=12", name: str = "a") -> BuildRequest:
    profile = replace(PROFILE, toolkit=toolkit)
    absent = Toolchain("nvrtc", "0", "", "store")
    return BuildRequest("k", ("k",), "k.cu", (SOURCE,), (("NAME", name),), profile, absent, "sm_90")


def folder_of(store: ArtifactStore, made: Artifact) -> Path:
    return store.root / made.build.key[:2] / made.build.key


def leftovers(root: Path) -> list[str]:
    return [p.name for p in root.rglob("*") if p.name.startswith(".")]


def test_what_is_put_comes_back_as_it_was(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    made, without_sass = artifact(), artifact("b", sass=None)
    store.put(made)
    store.put(without_sass)
    assert store.get(made.build.key) == replace(made, cached=True)
    assert store.get(without_sass.build.key) == replace(without_sass, cached=True)
    assert store.get("0" * 64) is None
    assert sorted(store.keys()) == sorted([made.build.key, without_sass.build.key])
    assert store.check() == ()


def test_people_can_read_and_verify_an_entry(tmp_path: Path) -> None:
    store, made = ArtifactStore(tmp_path), artifact()
    store.put(made)
    folder = folder_of(store, made)
    assert sorted(p.name for p in folder.iterdir()) == [
        "SHA256SUMS", "build.json", "kernel.cubin", "kernel.ptx", "kernel.sass",
    ]  # fmt: skip
    assert (folder / "kernel.ptx").read_text() == made.ptx
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder, check=True)


@pytest.mark.parametrize("file", ["build.json", "kernel.ptx", "kernel.cubin", "kernel.sass", "SHA256SUMS"])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_entry_is_reported_counts_as_absent_and_is_replaced(
    tmp_path: Path, file: str, damage: str
) -> None:
    said: list[str] = []
    store, made = ArtifactStore(tmp_path, said.append), artifact()
    store.put(made)
    path = folder_of(store, made) / file
    if damage == "changed":
        path.write_bytes(b"x" + path.read_bytes()[1:])
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        path.unlink()
    assert store.get(made.build.key) is None
    assert len(said) == 1
    assert made.build.key[:12] in said[0]
    store.put(made)
    assert store.get(made.build.key) == replace(made, cached=True)
    assert leftovers(tmp_path) == []


def test_an_entry_under_a_wrong_key_is_damaged(tmp_path: Path) -> None:
    store, made = ArtifactStore(tmp_path), artifact()
    store.put(made)
    other = "f" * 64
    (tmp_path / "ff").mkdir()
    folder_of(store, made).rename(tmp_path / "ff" / other)
    assert store.get(other) is None
    assert store.check() == (other,)


def test_failed_builds_are_not_stored(tmp_path: Path) -> None:
    made = artifact()
    with pytest.raises(ValueError, match="no successful build"):
        ArtifactStore(tmp_path).put(replace(made, build=replace(made.build, status=Status.BUILD_FAILED)))


@pytest.mark.parametrize("key", ["", "../" + "0" * 61, "0" * 63, "A" * 64, "0" * 64 + "\n"])
def test_a_key_is_no_path(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match="artifact key"):
        ArtifactStore(tmp_path).get(key)


def test_sass_is_added_and_never_lost(tmp_path: Path) -> None:
    store, made = ArtifactStore(tmp_path), artifact()
    store.put(replace(made, sass=None))
    store.put(made)
    assert store.get(made.build.key) == replace(made, cached=True)
    store.put(replace(made, sass=None))
    assert store.get(made.build.key) == replace(made, cached=True)


def _write_many(root: Path, started: Callable[[], object]) -> None:
    store = ArtifactStore(root)
    started()
    for number in range(25):
        store.put(artifact(str(number)))


def test_parallel_writers_of_the_same_artifacts(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    writers = [context.Process(target=_write_many, args=(tmp_path, barrier.wait)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    store = ArtifactStore(tmp_path)
    assert len(list(store.keys())) == 25
    assert store.check() == ()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("after", [0, 1, 3, 6])
def test_a_full_disk_names_the_path_and_leaves_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    calls = 0
    real = os.fsync

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    store, made = ArtifactStore(tmp_path), artifact()
    with pytest.raises(StoreError, match="No space left") as caught:
        store.put(made)
    assert str(folder_of(store, made)) in str(caught.value)
    assert "--store" in caught.value.remedy
    monkeypatch.undo()
    assert leftovers(tmp_path) == []
    assert store.get(made.build.key) in (None, replace(made, cached=True))
    store.put(made)
    assert store.get(made.build.key) == replace(made, cached=True)


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="storing artifact") as caught:
        ArtifactStore(tmp_path / "file").put(artifact())
    assert caught.value.remedy == "name another, writable folder with --store"
    with pytest.raises(StoreError, match="packing into") as caught:
        ArtifactStore(tmp_path / "store").pack(tmp_path, [])
    assert "--pack" in caught.value.remedy
    with pytest.raises(StoreError, match=r"/proc/nothing"):
        ArtifactStore(Path("/proc/nothing")).put(artifact())


def test_the_newest_toolchain_that_the_profile_accepts_is_found(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    for number in ("12.6.85", "12.10.1", "12.9.86", "13.0.48"):
        store.put(artifact("a", number))

    def version(toolkit: str, name: str = "a") -> str | None:
        options = ("-arch=sm_90", f"-DNAME={name}")
        found = store.find(request(toolkit, name), options)
        return found.build.toolchain.version if found else None

    assert version(">=12") == "13.0.48"
    assert version(">=12,<13") == "12.10.1"
    assert version("12.6.*") == "12.6.85"
    assert version(">=14") is None
    assert version(">=12", "b") is None
    assert store.find(request(), ("-arch=sm_90",)) is None
    assert store.find(replace(request(), arch="sm_80"), ("-arch=sm_90", "-DNAME=a")) is None
    other = replace(request(), files=(SourceFile("k.cu", "changed"),))
    assert store.find(other, ("-arch=sm_90", "-DNAME=a")) is None


def test_a_damaged_newest_gives_way_to_the_next(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    newest = artifact("a", "12.9.86")
    store.put(newest)
    store.put(artifact("a", "12.6.85"))
    (folder_of(store, newest) / "kernel.cubin").write_bytes(b"")
    found = store.find(request(), ("-arch=sm_90", "-DNAME=a"))
    assert found is not None
    assert found.build.toolchain.version == "12.6.85"


def test_the_toolchains_of_a_store(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.put(artifact("a", "12.6.85"))
    store.put(artifact("b", "12.6.85"))
    store.put(artifact("a", "13.0.48"))
    found = store.toolchains()
    assert sorted((t.label, t.origin, t.path) for t in found) == [
        ("nvrtc 12.6.85", "store", ""), ("nvrtc 13.0.48", "store", ""),
    ]  # fmt: skip


# --- Packed stores


def test_a_packed_store_unpacks_and_equal_stores_pack_to_equal_bytes(tmp_path: Path) -> None:
    one, two, three = (ArtifactStore(tmp_path / name) for name in ("one", "two", "three"))
    for name in "abc":
        one.put(artifact(name))
    for name in "cab":
        two.put(artifact(name))
    assert one.pack(tmp_path / "deep/one.tar.gz") == two.pack(tmp_path / "two.tar.gz") == 3
    assert (tmp_path / "deep/one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    assert three.unpack(tmp_path / "two.tar.gz") == 3
    assert three.get(artifact("b").build.key) == replace(artifact("b"), cached=True)
    assert three.unpack(tmp_path / "two.tar.gz") == 3
    assert three.check() == ()


def test_packing_some(tmp_path: Path) -> None:
    store, other = ArtifactStore(tmp_path / "s"), ArtifactStore(tmp_path / "o")
    for name in "abc":
        store.put(artifact(name))
    assert store.pack(tmp_path / "p", [artifact("b").build.key]) == 1
    other.unpack(tmp_path / "p")
    assert list(other.keys()) == [artifact("b").build.key]
    with pytest.raises(UsageError, match="is not in"):
        store.pack(tmp_path / "q", ["0" * 64])
    assert not (tmp_path / "q").exists()
    with pytest.raises(StoreError, match="packing into"):
        store.pack(Path("/proc/nothing/p"))


def packed(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    path = tmp_path / "hostile.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def entry(made: Artifact, **replaced: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    files = artifacts._files_of(made) | {k.replace("_", "."): v for k, v in replaced.items()}
    return [(tarfile.TarInfo(f"{made.build.key}/{name}"), data) for name, data in files.items()]


KEY = artifact().build.key


@pytest.mark.parametrize(
    "name",
    ["/etc/x", "../x", f"{KEY}/../../x", f"{KEY}/x", f"{KEY}", f"{KEY}/kernel.ptx/x", "x/kernel.ptx",
     f"./{KEY}/kernel.ptx", f"{KEY}//kernel.ptx"],
)  # fmt: skip
def test_other_names_in_a_packed_store_are_refused(tmp_path: Path, name: str) -> None:
    path = packed(tmp_path, [(tarfile.TarInfo(name), b"x")])
    with pytest.raises(UsageError, match="unexpected member"):
        ArtifactStore(tmp_path / "s").unpack(path)
    assert not (tmp_path / "s").exists()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo(f"{KEY}/kernel.ptx")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(UsageError, match="unexpected member"):
        ArtifactStore(tmp_path / "s").unpack(packed(tmp_path, [(member, b"")]))


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (entry(artifact(), kernel_ptx=b"other"), "does not have its digest"),
        (entry(artifact())[:-1], "SHA256SUMS"),
        (entry(artifact()) + entry(artifact())[:1], "twice"),
        (entry(artifact())[1:], "build.json"),
    ],
)
def test_what_disagrees_is_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], said: str
) -> None:
    store = ArtifactStore(tmp_path / "s")
    with pytest.raises(UsageError, match="no archive of artifacts") as caught:
        store.unpack(packed(tmp_path, members))
    assert said in str(caught.value)
    assert list(store.keys()) == []


def test_size_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path, entry(artifact()))
    monkeypatch.setattr(artifacts, "_MOST_BYTES", 10)
    with pytest.raises(UsageError, match="size limits"):
        ArtifactStore(tmp_path / "s").unpack(path)


@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b\x08\0\0\0\0\0"])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="no archive of artifacts"):
        ArtifactStore(tmp_path / "s").unpack(path)


def test_a_truncated_archive_keeps_whole_entries_only(tmp_path: Path) -> None:
    store, other = ArtifactStore(tmp_path / "s"), ArtifactStore(tmp_path / "o")
    for number in range(20):
        store.put(artifact(str(number), sass=os.urandom(2000).hex()))
    store.pack(tmp_path / "p")
    data = (tmp_path / "p").read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(ReprodbError, match="cut"):
        other.unpack(tmp_path / "cut")
    assert 0 < len(list(other.keys())) < 20
    assert other.check() == ()


def test_a_missing_archive(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="reading"):
        ArtifactStore(tmp_path / "s").unpack(tmp_path / "nowhere")
