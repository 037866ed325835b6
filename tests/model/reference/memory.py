"""Memory: named pieces at addresses of their own, checked at every access."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.model.reference.errors import Trap

# Where generic addresses of shared and of local memory begin, and where allocations do.
SHARED = 0x0010_0000_0000
LOCAL = 0x0020_0000_0000
FIRST = 0x7000_0000_0000
WINDOW = 0x0010_0000_0000
UNSET = 0xA5


@dataclass
class Piece:
    name: str
    address: int
    data: bytearray
    constant: bool = False


@dataclass
class Memory:
    """Global and constant memory: every piece stands alone, far from the next."""

    pieces: list[Piece] = field(default_factory=list)

    def place(self, name: str, data: bytearray, constant: bool = False) -> Piece:
        address = FIRST
        if self.pieces:
            last = self.pieces[-1]
            address = (last.address + len(last.data) + 0xFFFF) // 0x1000 * 0x1000
        piece = Piece(name, address, data, constant)
        self.pieces.append(piece)
        return piece

    def find(self, address: int, size: int) -> tuple[bytearray, int]:
        for piece in self.pieces:
            if piece.address <= address and address + size <= piece.address + len(piece.data):
                return piece.data, address - piece.address
        raise Trap(f"{size} bytes at {address:#x} of global memory lie in no buffer")


def aligned(address: int, size: int) -> None:
    if address % size:
        raise Trap(f"{size} bytes at {address:#x} are not aligned")
