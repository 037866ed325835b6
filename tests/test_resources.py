"""Registers and shared memory, read from the head of a disassembly."""

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
