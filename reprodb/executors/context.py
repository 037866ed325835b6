"""A device's context made beside the imports of NumPy and CuPy: the driver takes as long as they do."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def begin_context(ordinal: int, load: Callable[[str], Any] = ctypes.CDLL) -> threading.Thread:
    """Start the driver and make the device's primary context in a thread: CuPy uses that one.

    Whatever fails here fails again where CuPy asks for the device, and is told there.
    """
    thread = threading.Thread(target=_make, args=(ordinal, load), daemon=True, name="reprodb-context")
    thread.start()
    return thread


def _make(ordinal: int, load: Callable[[str], Any]) -> None:
    with suppress(OSError, AttributeError):
        cuda = load("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0:
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
