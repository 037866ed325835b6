"""What both executors need to serve compositions: buffers with room for every request, rows in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from reprodb.compositions import Composed, compose, most_served
from reprodb.domain import DTYPE_BYTES, Buffer, Case, Composition, Kernel

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Serving:
    """A kernel's case with room for all requests that a repetition serves: `case` has its buffers so."""

    kernel: Kernel
    composition: Composition
    case: Case
    recorded: tuple[Buffer, ...]  # as declared: the probes' rows
    room: int  # rows

    @classmethod
    def of(cls, kernel: Kernel, case: Case) -> Self:
        composition = kernel.composition
        assert composition is not None  # noqa: S101 -- the caller asks only where there is one
        room = most_served(composition)
        buffers = tuple(
            replace(b, shape=(room, *b.shape[1:])) if b.name in composition.rows else b for b in case.buffers
        )
        return cls(kernel, composition, replace(case, buffers=buffers), case.recorded, room)

    @property
    def input(self) -> str:
        """The name of the input whose rows are requests."""
        return self.composition.rows[0]

    def row_bytes(self) -> Mapping[str, int]:
        """Bytes of one request's row, of the input and of each buffer that has rows."""
        wanted = next(i for i in self.case.inputs if i.name == self.input)
        rows = {wanted.name: wanted.n // self.composition.requests * DTYPE_BYTES[wanted.dtype]}
        return rows | {
            b.name: b.nbytes // self.room for b in self.case.buffers if b.name in self.composition.rows
        }

    def compose(self, repetition: int) -> Composed:
        return compose(self.kernel, repetition)

    def requests(self, array: NDArray[Any]) -> NDArray[Any]:
        """The input as rows, one a request."""
        return array.reshape(self.composition.requests, -1)

    def pattern(self, buffer: Buffer, raw: Bytes, composed: Composed) -> bytes:
        """What is recorded of a buffer's bytes: the probes' rows in the order of requests, or all."""
        if buffer.name not in self.composition.rows:
            return raw[: buffer.nbytes].tobytes()
        width = self.row_bytes()[buffer.name]
        return raw[: self.room * width].reshape(self.room, width)[composed.places].tobytes()
