"""Files are put in place whole, and what is no file stays what it is."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from reprodb.files import put_in_place, replace_file
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
