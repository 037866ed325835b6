"""Stress: conditions beside `plain` under which a kernel runs once more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType

from reprodb.domain import Case, Kernel, Lane
from reprodb.errors import UsageError

PLAIN = "plain"
TWIN = "other-device"
# Every address moves by so much: past a page of 2 MiB, and still where cudaMalloc could have let it start.
OFFSET_BYTES = (2 << 20) + 37 * 256


@dataclass(frozen=True, slots=True)
class Pressure:
    """What an executor changes under a stress: bytes that every address moves by, other work beside it."""

    offset: int = 0
    contention: bool = False


NO_PRESSURE = Pressure()


@dataclass(frozen=True, slots=True)
class Stress:
    """One condition. `fill` is the poison byte under it; `apart` says that it takes another process."""

    words: str
    advice: str
    fill: int | None = None
    pressure: Pressure = NO_PRESSURE
    apart: bool = False
    gpu_alone: bool = False


_INITCHECK = "compute-sanitizer --tool initcheck: it reads memory that nothing wrote"

STRESSES: Mapping[str, Stress] = MappingProxyType(
    {
        "poison-00": Stress("buffers that start as zeros", _INITCHECK, fill=0x00),
        "poison-ff": Stress("buffers that start as ones (NaN in floats)", _INITCHECK, fill=0xFF),
        "offset": Stress(
            "other addresses",
            "look for addresses that are compared, sorted by or hashed",
            pressure=Pressure(OFFSET_BYTES),
        ),
        "contention": Stress(
            "copies and fills on a second stream",
            "compute-sanitizer --tool racecheck: a race or a missing barrier",
            pressure=Pressure(contention=True),
            gpu_alone=True,
        ),
        "fresh": Stress("a fresh process", "look for state that is kept between launches", apart=True),
        TWIN: Stress(
            "another device of the same model",
            "compare the cards themselves: reprodb history shows every device",
            apart=True,
            gpu_alone=True,
        ),
    }
)
QUICK = ("poison-00", "poison-ff", "offset")
SETS: Mapping[str, tuple[str, ...]] = MappingProxyType({"quick": QUICK, "all": tuple(STRESSES)})


def chosen(text: str | None) -> tuple[str, ...]:
    """The conditions that `--stress NAME,…` names, each once, in the table's order.

    `quick` and `all` name sets of them. Raises UsageError for a name that there is not.
    """
    if text is None:
        return ()
    names: set[str] = set()
    for name in text.split(","):
        if name not in STRESSES and name not in SETS:
            near = get_close_matches(name, (*STRESSES, *SETS), 1, 0.5)
            raise UsageError(
                f"no stress {name!r}",
                allowed=", ".join((*SETS, *STRESSES)),
                remedy=f"did you mean {near[0]}?" if near else "",
            )
        names.update(SETS.get(name, (name,)))
    return tuple(name for name in STRESSES if name in names)


def left_out(names: Sequence[str], lane: Lane, *, alone: bool = False) -> Mapping[str, str]:
    """Those of the conditions that cannot be made, with the reason; `alone`: the GPU has no twin here."""
    if lane is not Lane.MEASURED:
        return {name: "it takes a GPU" for name in names if STRESSES[name].gpu_alone}
    return {name: "this machine has no other GPU of the model" for name in names if alone and name == TWIN}


def conditions(kernel: Kernel, names: Iterable[str]) -> tuple[str, ...]:
    """The conditions under which a kernel could show another thing: fills need a buffer that is poisoned."""
    if kernel.program is not None:
        return ()
    poisoned = any(b.init == "poison" for case in kernel.cases for b in case.buffers)
    return tuple(name for name in names if poisoned or STRESSES[name].fill is None)


def stressed(case: Case, condition: str) -> Case:
    """The case with its poison under the condition: `poison:ff` in place of `poison`."""
    fill = STRESSES[condition].fill if condition != PLAIN else None
    if fill is None:
        return case
    buffers = (replace(b, init=f"poison:{fill:02x}") if b.init == "poison" else b for b in case.buffers)
    return replace(case, buffers=tuple(buffers))


def pressure_of(condition: str) -> Pressure:
    return NO_PRESSURE if condition == PLAIN else STRESSES[condition].pressure
