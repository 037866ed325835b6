"""What can go wrong in the interpreter, apart from its own mistakes."""


class Refused(Exception):
    """PTX does not pin the instruction's bits, or the interpreter does not know it."""


class Trap(Exception):
    """The program did something a GPU would stop for: a wild or misaligned address, a trap."""


class Stuck(Exception):
    """No thread of a block can go on, or a thread took more steps than a test should need."""
