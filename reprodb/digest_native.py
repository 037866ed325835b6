"""FNV-1a 64 as machine code where llvmlite is installed: the definition's loop, four of them side by side."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from typing import Any

# A step waits for the one before it, a multiplication away, so that four loops take no longer than one.
LANES = 4

Octets = bytes | memoryview


def hashes(blocks: Sequence[Octets], state: int, prime: int) -> list[int] | None:
    """FNV-1a 64 of each block, every one continued from `state`; None where llvmlite is not to be had.

    The interpreter lock is free meanwhile. Neighbours of one length are hashed side by side.
    """
    loops = _loops(prime)
    if loops is None:
        return None
    import numpy as np

    found: list[int] = []
    for size, alike in groupby(blocks, key=len):
        same = list(alike)
        if not size:
            found += [state] * len(same)
            continue
        for start in range(0, len(same), LANES):
            arrays = [np.frombuffer(block, np.uint8) for block in same[start : start + LANES]]
            places = [array.ctypes.data for array in arrays]
            states = (ctypes.c_uint64 * LANES)(*[state] * LANES)
            loops(*places, *places[:1] * (LANES - len(places)), size, states)
            found += states[: len(places)]
    return found


@cache
def _loops(prime: int) -> Callable[..., None] | None:
    """The compiled loops: LANES addresses, a length above 0, and the states, which they move on."""
    try:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_text(prime)), machine)
        engine.finalize_object()
    except (ImportError, OSError, RuntimeError):  # not installed, or not allowed to make code: NumPy remains
        return None
    kinds: list[Any] = [*[ctypes.c_void_p] * LANES, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64)]
    function: Any = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("fnv1a64"))
    function.engine = engine  # it owns the code
    return function  # type: ignore[no-any-return]


def _text(prime: int) -> str:
    """The loops as LLVM's IR. Octets are read one by one: the machine's byte order has no say."""

    def lanes(line: str, between: str = "\n") -> str:
        return between.join(line.replace("#", str(lane)) for lane in range(LANES))

    return f"""
define void @fnv1a64({lanes("ptr %data#", ", ")}, i64 %size, ptr %states) {{
entry:
{lanes("  %place# = getelementptr i64, ptr %states, i64 #")}
{lanes("  %first# = load i64, ptr %place#")}
  br label %step
step:
  %at = phi i64 [ 0, %entry ], [ %next, %step ]
{lanes("  %state# = phi i64 [ %first#, %entry ], [ %moved#, %step ]")}
{lanes("  %there# = getelementptr i8, ptr %data#, i64 %at")}
{lanes("  %octet# = load i8, ptr %there#")}
{lanes("  %wide# = zext i8 %octet# to i64")}
{lanes("  %mixed# = xor i64 %state#, %wide#")}
{lanes(f"  %moved# = mul i64 %mixed#, {prime}")}
  %next = add i64 %at, 1
  %more = icmp ult i64 %next, %size
  br i1 %more, label %step, label %end
end:
{lanes("  store i64 %moved#, ptr %place#")}
  ret void
}}
"""
