"""A worker whose executor does what the kernel's operation says: the pool's tests drive it."""

import mmap
import os
import signal
import sys
import time
from pathlib import Path

from reprodb.domain import Artifact, Case, CodeOrigin, Kernel, Lane, Pairs, Samples
from reprodb.errors import ExecutionError, UnsupportedError
from reprodb.executors import worker
from reprodb.executors.arrays import Arrays
from reprodb.executors.base import DeviceError, Executor, ExecutorOptions, Platform, collect
from reprodb.stress import NO_PRESSURE


class Scripted:
    """Adds 1 to the seed each repetition, or misbehaves as asked: `hang`, `crash 3`, `signal 11`, …"""

    lane = Lane.MODELLED
    pressure = NO_PRESSURE

    def libraries(self) -> Pairs:
        return (("process", str(os.getpid())), ("folder", os.environ["TMPDIR"]))

    def execute(
        self, artifact: Artifact, kernel: Kernel, case: Case, repetitions: int, *, seed: int = 0
    ) -> Samples:
        verb, _, argument = kernel.operation.partition(" ")
        self.act(verb, argument)
        numbers = [seed + r if verb == "churn" else seed for r in range(repetitions)]
        patterns = [(number & 0xFFFFFFFF).to_bytes(4, "little") for number in numbers]
        if verb == "short":
            patterns.pop()
        outputs = tuple(collect(buffer, patterns) for buffer in case.recorded)
        return Samples(outputs, CodeOrigin.PTX, 0.0, (f"pid {os.getpid()}",))

    def act(self, verb: str, argument: str) -> None:
        if verb == "hang":
            os.write(1, b"about to hang")
            time.sleep(60)
        elif verb == "sleep":
            time.sleep(float(argument))
        elif verb == "crash":
            os.write(1, b"last words")
            os._exit(int(argument))
        elif verb == "signal":
            os.kill(os.getpid(), int(argument))
        elif verb == "sticky":
            error = DeviceError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")
            error.sticky = True
            raise error
        elif verb == "vanish":
            # The mark that it is gone lies where the next worker looks.
            Path(os.environ["TMPDIR"], "gone").touch()
            error = DeviceError("cudaErrorDeviceUninitialized: the device is gone")
            error.sticky = True
            raise error
        elif verb == "refuse":
            raise UnsupportedError("ex2.approx.f32 at line 12")
        elif verb == "launch":
            raise ExecutionError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        elif verb == "raise":
            raise ZeroDivisionError("a bug")
        elif verb == "memory":
            bytearray(int(argument))
        elif verb == "reserve":  # as CUDA does: addresses, and no memory behind them
            mmap.mmap(-1, int(argument), flags=mmap.MAP_PRIVATE, prot=0).close()
        elif verb == "write":
            with Path(os.environ["TMPDIR"], "endless").open("wb") as file:
                file.truncate(int(argument))  # sparse: the limit counts the size, the disk nothing
        elif verb == "answer":
            os.write(replies_of_this_worker(), bytes.fromhex(argument))
            time.sleep(60)
        elif verb == "print":
            line = "x" * 1023 + "\n"
            for _ in range(int(argument)):
                sys.stdout.write(line)
        elif verb == "environment":
            raise ExecutionError(repr(sorted(os.environ)))


def open_scripted(options: ExecutorOptions, arrays: Arrays) -> tuple[Executor, Platform]:
    if options.name == "refusing":
        raise ExecutionError("no such device", remedy="reprodb doctor")
    if options.name == "dying":
        os.write(1, b"cannot load the driver")
        os._exit(9)
    if options.name == "vanishing" and Path(os.environ["TMPDIR"], "gone").exists():
        raise ExecutionError("no device is left", remedy="reprodb doctor")
    if options.name == "slow":
        signal.pause()
    executor: Executor = Scripted()
    return executor, Platform(executor.lane, executor.libraries())


def replies_of_this_worker() -> int:
    """The pipe's end that code in the worker finds when it looks for it."""
    return int(os.environ["REPLIES"])


def main(tasks: int, replies: int) -> None:
    os.environ["REPLIES"] = str(replies)
    worker.main(tasks, replies, open_scripted)
