"""Disassembled cubins are remembered by their bytes and nvdisasm's version, and never wrongly."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from reprodb.toolchains.process import Finished
from reprodb.toolchains.sass import Disassembler, disassemble
from reprodb.toolchains.sass_memory import SassMemory

TOOL = Disassembler("/bin/nvdisasm", "13.5.37", "PATH")


class Nvdisasm:
    """Stands in for the tool: writes what it was given, counts its calls, keeps the folders it saw."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    def __call__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        seconds: float,
        output: Path | None = None,
    ) -> Finished:
        self.folders.append(folder)
        assert output is not None
        output.write_text("text of " + (folder / "kernel.cubin").read_text() + " π")
        return Finished(0, "")


def test_the_second_time_nothing_is_disassembled(tmp_path: Path) -> None:
    tool, memory = Nvdisasm(), SassMemory(tmp_path / "sass")
    first = disassemble(b"cubin", TOOL, tool, memory=memory)
    assert first == "// nvdisasm 13.5.37\ntext of cubin π"
    assert disassemble(b"cubin", TOOL, tool, memory=memory) == first
    assert len(tool.folders) == 1
    newer = Disassembler("/bin/nvdisasm", "13.6.1", "PATH")
    assert disassemble(b"cubin", newer, tool, memory=memory) != first  # the version heads the text
    assert disassemble(b"cubim", TOOL, tool, memory=memory) == "// nvdisasm 13.5.37\ntext of cubim π"
    assert len(tool.folders) == 3


def test_a_damaged_file_counts_as_none_and_is_made_again(tmp_path: Path) -> None:
    memory = SassMemory(tmp_path)
    memory.put(b"a", "1", "text of a")
    (a,) = tmp_path.iterdir()
    memory.put(b"b", "1", "text of b")
    (b,) = set(tmp_path.iterdir()) - {a}
    a_bytes = a.read_bytes()
    for damage in (a_bytes[:-1], a_bytes[:-4] + bytes(4), b"", b.read_bytes()[:20] + a_bytes[20:]):
        a.write_bytes(damage)
        assert memory.get(b"a", "1") is None
    memory.put(b"a", "1", "text of a")
    assert (memory.get(b"a", "1"), memory.get(b"b", "1")) == ("text of a", "text of b")


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    memory = SassMemory(tmp_path, most=3)
    for day, name in enumerate("abc"):
        memory.put(name.encode(), "1", name)
        newest = max(tmp_path.iterdir(), key=lambda p: p.stat().st_mtime_ns)
        os.utime(newest, (day, day))
    assert memory.get(b"a", "1") == "a"  # used now
    memory.put(b"d", "1", "d")
    assert [memory.get(name.encode(), "1") for name in "abcd"] == ["a", None, "c", "d"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_folder_that_cannot_be_written_remembers_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    tool, memory = Nvdisasm(), SassMemory(tmp_path / "file" / "sass")
    for _ in range(2):
        assert disassemble(b"cubin", TOOL, tool, memory=memory) == "// nvdisasm 13.5.37\ntext of cubin π"
    assert len(tool.folders) == 2


def test_scraps_lie_in_the_folder_that_the_caller_removes(tmp_path: Path) -> None:
    tool = Nvdisasm()
    disassemble(b"cubin", TOOL, tool, scratch=tmp_path)
    assert tool.folders[0].parent == tmp_path
    assert list(tmp_path.iterdir()) == []
