"""Files are put in place whole, and what is no file stays what it is."""

import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from reprodb.errors import StoreError
from reprodb.files import keep_file, put_in_place, replace_file
from reprodb.site import write_whole


def read_pipe(path: Path) -> tuple[threading.Thread, list[bytes]]:
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    return reader, got


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_cache_keeps_what_it_can(tmp_path: Path) -> None:
    keep_file(tmp_path / "new" / "file", b"old")
    keep_file(tmp_path / "new" / "file", b"new")
    assert (tmp_path / "new" / "file").read_bytes() == b"new"
    keep_file(tmp_path / "new" / "file" / "below", b"a file is in the way")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_pipe_or_device_gets_the_bytes_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writers: tuple[Callable[[], object], ...] = (
        lambda: replace_file(pipe, b"page"),
        lambda: write_whole(pipe, "page"),
        lambda: put_in_place(made(tmp_path / "new", b"page"), pipe),
    )
    for write in writers:
        reader, got = read_pipe(pipe)
        write()
        reader.join()
        assert got == [b"page"]
        assert pipe.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


def made(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_page_that_does_not_fit_leaves_no_part_of_it(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: the system refuses the write itself."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "page.html").write_text("old")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(StoreError, match=r"page\.html cannot be written: File too large") as caught:
            write_whole(tmp_path / "page.html", "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.remedy == "free some space, or name another folder"
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("page.html", "old")]


def test_a_page_below_a_file_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("")
    for page in (tmp_path / "reports" / "a.html", tmp_path / "reports" / "deeper" / "a.html"):
        with pytest.raises(StoreError, match=r"a\.html cannot be written: .*/reports.* is no folder"):
            write_whole(page, "page")
