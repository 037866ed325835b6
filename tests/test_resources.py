"""Registers and shared memory, read from the head of a disassembly."""

import time

from reprodb.resources import Resources, resources
from tests.render.samples import SASS


def test_the_resources_of_the_stages_that_a_kernel_launches() -> None:
    """0x14 registers, and a C++ name in its mangled form with 0x10 and 2,048 bytes of shared memory."""
    assert resources(SASS, ("sumSquaresPartials", "foldPartials")) == (
        Resources("sumSquaresPartials", 20, 0),
        Resources("foldPartials", 16, 2048),
    )


def test_what_a_disassembly_does_not_tell_is_left_out() -> None:
    assert resources("", ("sum",)) == ()
    assert resources(SASS, ("sum",)) == ()


def test_marks_without_an_end_take_no_time() -> None:
    """Ten thousand of them, and as many blank lines: each is passed once."""
    began = time.process_time()
    hostile = "nvinfo : EIATTR_REGCOUNT\n.word index@(f)\n" * 10_000 + ".nv.shared.f:" + "\n" * 10_000
    assert resources(hostile, ("f",)) == ()
    assert time.process_time() - began < 1.0


def test_a_mark_belongs_to_the_next_name_and_that_to_the_next_count() -> None:
    table = (
        ".word index@(a)\n.word 0x99\nnvinfo : EIATTR_REGCOUNT\n.word index@(a)\n.word index@(b)\n"
        "nvinfo : EIATTR_FRAME_SIZE\n.word 0x14\n.word 0x15\n"
    )
    assert resources(table, ("a", "b")) == (Resources("a", 20, 0),)
