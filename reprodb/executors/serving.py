"""What both executors need to serve compositions: buffers with room for every request, rows in and out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from reprodb.compositions import Composed, compose, most_served
from reprodb.domain import DTYPE_BYTES, Buffer, Case, Composition, Kernel, Role

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Serving:
    """A kernel's case as launches see it: buffers of `case` have `room` rows, for a whole composition.

    `parts` is how many compositions a repetition has: one, or one of every size where a kernel promises no
    batch invariance.
    """

    composition: Composition
    case: Case
    room: int
    parts: int

    @classmethod
    def of(cls, kernel: Kernel, case: Case) -> Self:
        composition = kernel.composition
        assert composition is not None  # noqa: S101 -- the caller asks only where there is one
        room = most_served(composition)
        buffers = []
        for buffer in case.buffers:
            in_parts = not kernel.batch_invariant and buffer.role is not Role.SCRATCH
            shape = buffer.shape[1:] if in_parts else buffer.shape
            if buffer.name in composition.rows:
                shape = (room, *shape[1:])
            buffers.append(replace(buffer, shape=shape))
        parts = 1 if kernel.batch_invariant else len(composition.batches)
        return cls(composition, replace(case, buffers=tuple(buffers)), room, parts)

    @property
    def input(self) -> str:
        """The name of the input whose rows are requests."""
        return self.composition.rows[0]

    def row_bytes(self) -> Mapping[str, int]:
        """Bytes of one request's row, of the input and of each buffer that has rows."""
        wanted = next(i for i in self.case.inputs if i.name == self.input)
        rows = {wanted.name: wanted.n // self.composition.requests * DTYPE_BYTES[wanted.dtype]}
        named = (b for b in self.case.buffers if b.name in self.composition.rows)
        return rows | {b.name: b.nbytes // self.room for b in named}

    def compositions(self, repetitions: int) -> Iterator[Composed]:
        """Those of all repetitions: ever other ones, or the same few in each."""
        if self.parts == 1:
            yield from (compose(self.composition, number) for number in range(repetitions))
            return
        few = [compose(self.composition, number) for number in range(self.parts)]
        for _ in range(repetitions):
            yield from few

    def batches(self, served: list[int]) -> tuple[int, ...]:
        """What is recorded of the BATCH of all compositions: where repetitions are alike, one of them."""
        return tuple(served[: self.parts] if self.parts > 1 else served)

    def requests(self, array: NDArray[Any]) -> NDArray[Any]:
        """The input as rows, one a request."""
        return array.reshape(self.composition.requests, -1)

    def part(self, buffer: Buffer, raw: Bytes, composed: Composed) -> bytes:
        """What is recorded after a composition: the rows of probes in the order of requests, or all."""
        if buffer.name not in self.composition.rows:
            return raw[: buffer.nbytes].tobytes()
        return raw[: buffer.nbytes].reshape(self.room, -1)[composed.places].tobytes()

    def joined(self, pieces: list[bytes]) -> list[bytes]:
        """The patterns of the repetitions from the pieces of all compositions."""
        if self.parts == 1:
            return pieces
        return [b"".join(pieces[at : at + self.parts]) for at in range(0, len(pieces), self.parts)]
