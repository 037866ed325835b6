"""Input arrays that a worker keeps between results: the profiles of a kernel share theirs."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from reprodb.domain import Input

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

KEPT_BYTES = 1 << 30
PROBE = "probe"  # the pattern of which one result takes many


class Arrays:
    """Host arrays by their description; the least recently used go beyond a bound in bytes."""

    def __init__(self, bound: int = KEPT_BYTES) -> None:
        self._bound = bound
        self._held: OrderedDict[Input, Array] = OrderedDict()

    def get(self, wanted: Input) -> Array:
        """The array, shape (n,), made where it is not held. Callers must not write to it."""
        from reprodb.inputs import generate

        array = self._held.pop(wanted, None)
        if array is None:
            array = generate(wanted)
        # A probing input is used once: of many, the last alone is kept.
        for other in [held for held in self._held if held.pattern == PROBE]:
            del self._held[other]
        self._held[wanted] = array
        while len(self._held) > 1 and sum(a.nbytes for a in self._held.values()) > self._bound:
            self._held.popitem(last=False)
        return array

    def of(self, inputs: tuple[Input, ...]) -> dict[str, Array]:
        """The arrays of a case's inputs by name."""
        return {wanted.name: self.get(wanted) for wanted in inputs}
