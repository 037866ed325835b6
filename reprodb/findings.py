"""What comparing finds: verdicts, deltas and attributions that gates judge and renderers show. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reprodb.domain import Accuracy, Code, Result, Role, Run
from reprodb.domain import CanaryOutcome as CanaryOutcome  # noqa: PLC0414 -- a finding too, for gates and renderers


class Verdict(StrEnum):
    """The bits verdict of one comparison. Accuracy is a column of its own and never in here."""

    SAME = "same"
    LATENT = "latent"
    CHANGED = "changed"
    DETERMINISM_LOST = "determinism_lost"
    DETERMINISM_GAINED = "determinism_gained"
    CHURN = "churn"
    NEW = "new"
    MISSING = "missing"
    NO_RESULT = "no_result"
    NO_BASELINE = "no_baseline"
    NOT_COMPARABLE = "not_comparable"


class Moved(StrEnum):
    """The field of the pinned tuple that moved; the environment may stand beside the four."""

    INPUT = "input"
    SHAPE = "shape"
    ORDER = "order"
    BUILD = "build"
    ENVIRONMENT = "environment"


class State(StrEnum):
    SAME = "same"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """What can move bits, in the order in which it is looked at."""

    INPUT = "input"
    LAUNCH_SHAPE = "launch shape"
    SOURCE = "source"
    FLAGS = "flags"
    TOOLCHAIN = "toolchain"
    ARCHITECTURE = "architecture"
    ENVIRONMENT = "environment"


class Effect(StrEnum):
    """Where a cause shows, from the order of the sum down to the bits of the result."""

    ORDER = "order fingerprint"
    PTX = "normalised PTX"
    SASS = "normalised SASS and constants"
    WITNESS = "witness bits"
    RESULT = "result bits"


class Alarm(StrEnum):
    CODE_SAME_BITS_CHANGED = "code the same, bits changed"  # loud
    INERT_PROFILE = "profiles whose code is identical"  # quiet


@dataclass(frozen=True, slots=True)
class Layer:
    """One row of the layer table. `detail` is a short phrase: `-fmad=true → -fmad=false`."""

    name: str  # a Cause or an Effect
    state: State
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Attribution:
    """What moved. `first_layer` is the first cause that differs; `moved` the fields of all that differ."""

    causes: tuple[Layer, ...]
    effects: tuple[Layer, ...]
    first_layer: str | None
    moved: tuple[Moved, ...]
    alarms: tuple[Alarm, ...] = ()
    notes: tuple[str, ...] = ()  # "profile redefined: nvrtc 12.6.85 → nvrtc 12.9.86"
    sentence: str = ""  # one line for people
    new_history: str = ""  # "new history: source changed (_lib/tree.cu)"; empty where none begins


@dataclass(frozen=True, slots=True)
class ElementDelta:
    """One differing element: hex bits and values of both sides. `ulp` is None for NaN and integers."""

    index: int  # flat
    field: str | None
    before: str
    after: str
    before_value: float | int | str
    after_value: float | int | str
    ulp: int | None


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """How one buffer's representative pattern differs between two results.

    `changed` of `of` elements differ, the first at flat index `first`. `max_ulp` is the largest finite
    distance (+0 and -0 are 0 apart), None where an element is NaN on one side or the type is not a float.
    `moved` lists differing flat indices (at most 65,536), `elements` shows the first ones.
    """

    name: str
    role: Role
    dtype: str
    shape: tuple[int, ...]
    changed: int
    of: int
    first: int | None = None
    max_ulp: int | None = None
    max_rel: float | None = None
    max_abs: float | None = None
    note: str | None = None  # "sign of zero only, 0 ULP apart", "NaN payload only"
    moved: tuple[int, ...] = ()
    elements: tuple[ElementDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class Support:
    """One side of a churn: patterns with counts, most frequent first, ULP position from a common zero."""

    distinct: int
    repetitions: int
    patterns: tuple[tuple[str, int, int | None], ...]  # (hex bits or SHA-256, count, ULP from the lowest)


@dataclass(frozen=True, slots=True)
class Churn:
    """Arrival-order kernels: supports compared as sets. Never part of an exit code."""

    relation: str  # same | overlapping | new
    baseline: Support
    candidate: Support
    common: int  # patterns on both sides
    spread_ulp: int | None  # over both sides
    mode: str  # where the baseline's most frequent pattern went
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """Determinism lost inside one result: how many repetitions differ from the most frequent pattern."""

    output: str
    distinct: int
    odd: int
    of: int
    where: str  # "repetition 0 only", "last third", "scattered"
    advice: tuple[str, ...]  # commands to try
    elements: str = ""  # which elements vary, where the patterns could be read: "3 of 64, the first at 5"


@dataclass(frozen=True, slots=True)
class BatchEffect:
    """Bits of requests that follow their batch: what moved is the shape, by the launch parameter BATCH.

    In `odd` of `compositions` the probes' rows of an output differ from `against`: the serial kernel, or the
    first composition. The first of these has BATCH `batch`, and there `probes` of `of` probes differ.
    """

    output: str
    against: str  # row_logits_serial, or BATCH 1
    batch: int
    probe: int  # the first that differs
    probes: int
    of: int
    sizes: tuple[int, ...]  # the BATCH of all compositions that differ, each once
    odd: int
    compositions: int
    promised: bool  # the kernel declares batch_invariant
    by_size: bool = False  # no size is among those that differ and those that do not
    moved: Moved = Moved.SHAPE


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row of a diff. Either side may be None (`new`, `missing`, `no_baseline`)."""

    kernel: str
    case: str
    baseline: Result | None
    candidate: Result | None
    verdict: Verdict
    accuracy: Accuracy
    attribution: Attribution | None = None
    outputs: tuple[OutputDelta, ...] = ()
    churn: Churn | None = None
    loss: Loss | None = None
    note: str = ""  # "0 of 100 bounds the rate below 3 % (95 %)", "not gated: another GPU model"
    reference_run: int | None = None
    reference_kind: str | None = None  # blessed | accepted | named
    may_gate: bool = True  # False where an override or another architecture forbids gating
    gated: bool = False
    gate_reason: str = ""
    batch: tuple[BatchEffect, ...] = ()  # of the candidate's compositions

    @property
    def either(self) -> Result:
        """The candidate, or the baseline where there is no candidate."""
        side = self.candidate or self.baseline
        assert side is not None  # noqa: S101 -- a comparison has at least one side
        return side


@dataclass(frozen=True, slots=True)
class MatrixGroup:
    """Profiles of one kernel and case that agree on result and witness bits."""

    profiles: tuple[str, ...]
    bits: str  # first bits of the result, or a short SHA-256; "" where nothing ran
    run_hash: str
    witness: str  # short SHA-256 over the witnesses, "" without any
    distinct: int
    reference: bool  # holds the reference's bits
    unreferenced: tuple[str, ...] = ()  # those of its profiles that have no reference of their own


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One kernel and case across a run's profiles: groups by bits, and groups by identical code."""

    kernel: str
    case: str
    guaranteed: bool
    groups: tuple[MatrixGroup, ...]
    code_groups: tuple[tuple[str, ...], ...]
    inert: tuple[tuple[str, ...], ...] = ()  # profiles that differ in settings and not in code
    no_result: tuple[tuple[str, str], ...] = ()  # (profile, status)


@dataclass(frozen=True, slots=True)
class Diff:
    """A whole comparison: what gates and renderers take. `exit_code` is set by `gate`."""

    baseline: Run | None  # None: the composite reference of a nightly
    candidate: Run
    comparisons: tuple[Comparison, ...]
    matrix: tuple[MatrixRow, ...] = ()
    canaries: tuple[CanaryOutcome, ...] = ()
    exit_code: int = 0
    headline: str = ""  # the verdict in words
    reasons: tuple[str, ...] = ()  # why the exit code is what it is
    notes: tuple[str, ...] = ()  # what could not be answered
    beside_rows: tuple[str, ...] = ()  # those of the reasons that no row shows: rules about the whole run

    @property
    def compared(self) -> int:
        """Rows with bits on both sides."""
        sides = (Verdict.SAME, Verdict.LATENT, Verdict.CHANGED, Verdict.DETERMINISM_LOST,
                 Verdict.DETERMINISM_GAINED, Verdict.CHURN)  # fmt: skip
        return sum(c.verdict in sides and c.baseline is not None for c in self.comparisons)


@dataclass(frozen=True, slots=True)
class CodeDelta:
    """Opcode counts of one function, before and after; only rows that differ, numerics first."""

    function: str
    sass: tuple[tuple[str, int, int], ...]
    ptx: tuple[tuple[str, int, int], ...]


def no_code() -> Code:
    """The code of a result whose compiler never ran: every layer unknown."""
    return Code(ptx=None, sass=None, constants=None)
