"""A slow, obvious interpreter of PTX: one thread at a time, exact arithmetic, each result rounded once.

It shares no code with the model engine and exists to disagree with it where one of them is wrong.
"""

from tests.model.reference.errors import Refused, Stuck, Trap
from tests.model.reference.launch import Launch, Order, run

__all__ = ["Launch", "Order", "Refused", "Stuck", "Trap", "run"]
