"""Comparing memory on the device: whether two stretches differ, told in one word, at the speed of memory."""

from __future__ import annotations

import numpy as np

WORD = 16  # bytes that a thread compares at once; lengths and addresses are multiples of it
THREADS = 256
BLOCKS = 1024

ENTRY = "differs"

# Sets *flag where a and b differ in any of `words` 16-byte words. Written down here, so that no compiler is
# needed where kernels only run; the driver compiles it once a process, and nothing of it is ever recorded.
PTX = f"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry {ENTRY}(.param .u64 pa, .param .u64 pb, .param .u64 pwords, .param .u64 pflag)
{{
  .reg .pred %p<3>;
  .reg .b32 %r<12>;
  .reg .b64 %d<10>;
  ld.param.u64 %d0, [pa];
  ld.param.u64 %d1, [pb];
  ld.param.u64 %d2, [pwords];
  ld.param.u64 %d3, [pflag];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %tid.x;
  mad.lo.u32 %r0, %r0, {THREADS}, %r1;
  cvt.u64.u32 %d4, %r0;
  mov.u32 %r11, 0;
  setp.ge.u64 %p0, %d4, %d2;
  @%p0 bra told;
  shl.b64 %d5, %d4, 4;
  add.u64 %d6, %d0, %d5;
  add.u64 %d7, %d1, %d5;
again:
  ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%d6];
  ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%d7];
  xor.b32 %r1, %r1, %r5;
  xor.b32 %r2, %r2, %r6;
  xor.b32 %r3, %r3, %r7;
  xor.b32 %r4, %r4, %r8;
  or.b32 %r1, %r1, %r2;
  or.b32 %r3, %r3, %r4;
  or.b32 %r1, %r1, %r3;
  or.b32 %r11, %r11, %r1;
  add.u64 %d4, %d4, {BLOCKS * THREADS};
  add.u64 %d6, %d6, {BLOCKS * THREADS * WORD};
  add.u64 %d7, %d7, {BLOCKS * THREADS * WORD};
  setp.lt.u64 %p0, %d4, %d2;
  @%p0 bra again;
told:
  setp.eq.u32 %p1, %r11, 0;
  @%p1 bra same;
  mov.u32 %r9, 1;
  st.global.u32 [%d3], %r9;
same:
  ret;
}}
"""


class Comparison:
    """The arguments of one launch: `size` bytes at `a` against those at `b`, the answer at `flag`."""

    def __init__(self, a: int, b: int, size: int, flag: int) -> None:
        self._values = np.array([a, b, size // WORD, flag], np.uint64)
        self._pointers = np.uint64(self._values.ctypes.data) + np.arange(4, dtype=np.uint64) * np.uint64(8)

    @property
    def address(self) -> int:
        """Where the pointers to the arguments lie; this object must live until the launch is queued."""
        return int(self._pointers.ctypes.data)
