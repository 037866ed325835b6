"""What a reviewer would ask of a suite: manifests, inputs, tolerances, atomics. It needs no GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from reprodb.domain import Case, Kernel, Role, Suite
from reprodb.errors import ReprodbError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from reprodb.domain import BuildRequest, Toolchain
    from reprodb.suite.tables import Problem

WIDEST = 1e-2  # a relative tolerance above this says little
ARCH = "sm_90"
# What is advised where the inputs are too kind, the plainest first. A double has 29 bits more than a float:
# terms must lie some 30 binades apart before their sum rounds.
TELLING: dict[str, tuple[str, dict[str, object]]] = {
    "'normal'": ("normal", {}),
    "'wide'": ("wide", {}),
    "'wide' with binades = 40": ("wide", {"binades": 40}),
}
MOST_TERMS = 1 << 24  # inputs beyond this are not generated to be looked at


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing found: by which check, of which kernel (empty for the suite), in words, and what mends it."""

    check: str
    severity: Severity
    kernel: str
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that was found, kernel by kernel. One whose manifest is wrong is looked at no further."""

    suite: str
    kernels: int  # those with a manifest, a wrong one included
    toolchain: str | None  # what compiled; None where nothing could
    remarks: tuple[Remark, ...]

    @property
    def exit_code(self) -> int:
        """0 nothing found, 1 warnings alone, 2 errors."""
        found = {remark.severity for remark in self.remarks}
        return 2 if Severity.ERROR in found else 1 if found else 0


def inspect(root: Path) -> Inspection:
    """Look at everything in the suite in `root`."""
    from reprodb.suite import read_suite

    try:
        reading = read_suite(root)
    except UsageError as error:
        found = Remark("manifest", Severity.ERROR, "", "; ".join(str(error).splitlines()))
        return Inspection(root.name, 0, None, (found,))
    suite, toolchain = reading.suite, _toolchain()
    remarks = [
        *(Remark("manifest", Severity.ERROR, _kernel_of(p), str(p)) for p in reading.problems),
        *(remark for kernel in suite.kernels for remark in manifest_remarks(suite, kernel)),
        *(remark for kernel in suite.kernels for remark in friendly_remarks(kernel)),
        *code_remarks(suite, toolchain),
    ]
    remarks.sort(key=lambda r: (r.kernel, r.severity is not Severity.ERROR))
    label = toolchain.label if toolchain and any(kernel.stages for kernel in suite.kernels) else None
    return Inspection(suite.name, len(reading.manifests), label, tuple(remarks))


def _kernel_of(problem: Problem) -> str:
    """The folder of the kernel that a problem is of; "" where it is the suite's."""
    from reprodb.suite.loader import MANIFEST

    place, manifest, _ = problem.where.partition(f"/{MANIFEST}")
    return place if manifest and "/" not in place else ""


def _warning(check: str, kernel: Kernel, text: str, remedy: str = "") -> Remark:
    return Remark(check, Severity.WARNING, kernel.name, text, remedy)


# --- Manifests ---------------------------------------------------------------------------------


def manifest_remarks(suite: Suite, kernel: Kernel) -> Iterator[Remark]:
    """What the manifest leaves open, and what it says in vain."""
    guaranteed = kernel.determinism.guaranteed
    floats = "float" in kernel.accumulator
    if not kernel.tags:
        yield _warning("tags", kernel, "has no tags to be chosen by", 'tags = ["…"]')
    if guaranteed and floats and kernel.stages and not kernel.order:
        yield _warning(
            "order", kernel, f"claims {kernel.determinism} and does not say its order", 'order = "…"'
        )
    if kernel.batch_invariant and kernel.composition is None:
        yield _warning(
            "batch",
            kernel,
            "claims batch_invariant and serves no batches: nothing tries it out",
            "a [composition], or leave batch_invariant out",
        )
    yield from _unused_defines(suite, kernel)
    if guaranteed and floats and _one_word_of_many(kernel):
        yield _warning(
            "witness",
            kernel,
            "records one word, which hides most changes",
            "record what lies between with role = 'witness'",
        )
    for case in kernel.cases:
        yield from _tolerance(kernel, case)
        pinned = case.reference or case.expected or (kernel.composition and kernel.composition.serial)
        if not pinned and not kernel.no_reference:
            yield _warning(
                "reference",
                kernel,
                f"nothing says what is right for {case.name}",
                "reference and rel_tol, expected, or no_reference = 'why'",
            )


def _unused_defines(suite: Suite, kernel: Kernel) -> Iterator[Remark]:
    from reprodb.suite import source_files

    if not kernel.stages:
        return  # what a program does with them is its own affair
    words = {w for f in source_files(suite, kernel) for w in re.findall(r"[A-Za-z_]\w*", f.text)}
    used = words | set(kernel.shape_defines)
    if kernel.fingerprint is not None:
        used |= {name for name, _ in kernel.fingerprint.defines}
    for name, _ in kernel.defines:
        if name not in used:
            yield _warning("define", kernel, f"nothing uses the define {name}", "leave it out")


def _one_word_of_many(kernel: Kernel) -> bool:
    """Whether several blocks or launches end in one recorded element."""
    blocks = max((s.grid[0] * s.grid[1] * s.grid[2] for s in kernel.stages), default=1)
    most = max(sum(b.elements for b in case.recorded) for case in kernel.cases)
    return most == 1 and (blocks > 1 or len(kernel.stages) > 1)


def _tolerance(kernel: Kernel, case: Case) -> Iterator[Remark]:
    from reprodb.friendly import SIGNIFICANT

    result = next((b for b in case.buffers if b.role is Role.RESULT), None)
    if case.rel_tol is None or result is None:
        return
    half_ulp = 2.0 ** -SIGNIFICANT[result.dtype] if result.dtype in SIGNIFICANT else 0.0
    if case.rel_tol < half_ulp:
        yield _warning(
            "tolerance",
            kernel,
            f"rel_tol = {case.rel_tol:g} of {case.name} is below half an ULP of {result.dtype}",
            "no rounded answer can keep it but by luck",
        )
    if case.rel_tol > WIDEST:
        yield _warning(
            "tolerance",
            kernel,
            f"rel_tol = {case.rel_tol:g} of {case.name} is above {WIDEST:g}",
            "a bound with a reason, or an input whose sum does not nearly cancel",
        )


# --- Inputs ------------------------------------------------------------------------------------


def friendly_remarks(kernel: Kernel) -> Iterator[Remark]:
    """A kernel of whose cases none can show another order; what cannot be told speaks for the kernel."""
    from reprodb.friendly import cannot_show, judged
    from reprodb.inputs import generate

    reasons = []
    for case in kernel.cases:
        if not judged(kernel, case) or sum(i.n for i in case.inputs) > MOST_TERMS:
            return
        reason = cannot_show(kernel, case, {i.name: generate(i) for i in case.inputs})
        if not reason:
            return
        reasons.append(f"{case.name}: {reason}")
    text = f"no case can show another order ({'; '.join(reasons)})"
    yield _warning("friendly", kernel, text, _telling(kernel, kernel.cases[-1]))


def _telling(kernel: Kernel, case: Case) -> str:
    """The first input patterns, two at most, of which the case would show an order; or else more elements."""
    from reprodb.friendly import SIGNIFICANT, cannot_show
    from reprodb.inputs import generate, resolve

    helpful = []
    for words, (pattern, params) in TELLING.items():
        try:
            inputs = tuple(
                resolve(i.name, pattern, i.n, i.dtype, params) if i.dtype in SIGNIFICANT else i
                for i in case.inputs
            )
        except UsageError:  # the type has not so many binades
            continue
        if not cannot_show(kernel, replace(case, inputs=inputs), {i.name: generate(i) for i in inputs}):
            helpful.append(words)
    return f"pattern = {' or '.join(helpful[:2])}" if helpful else f"more elements than n = {case.n}"


# --- Code --------------------------------------------------------------------------------------


def _toolchain() -> Toolchain | None:
    """The default profile's compiler, or any that is here."""
    from reprodb.profiles import bundled_profiles, load_profiles
    from reprodb.toolchains import catalog

    found = catalog.find()
    known = load_profiles(bundled_profiles())
    matched = (catalog.match(profile, found) for profile in known.values())
    return next((toolchain for toolchain in matched if toolchain is not None), None)


def code_remarks(suite: Suite, toolchain: Toolchain | None) -> Iterator[Remark]:
    """What only the compiled code shows: entries that are not there, and floats that meet as they arrive."""
    from reprodb.build import request
    from reprodb.domain import Profile
    from reprodb.toolchains.pool import compile_all

    compiled = [kernel for kernel in suite.kernels if kernel.stages]
    if not compiled:
        return
    if toolchain is None:
        text = "no compiler was found: neither compiling nor atomics were checked"
        yield Remark("toolchain", Severity.WARNING, "", text, "reprodb toolchains install nvrtc 13")
        return
    profile = Profile("check", toolchain.compiler, f"=={toolchain.version}", arch=ARCH)
    wanted: list[tuple[Kernel, BuildRequest]] = []
    for kernel in compiled:
        try:
            wanted.append((kernel, request(suite, kernel, profile, toolchain, ARCH)))
        except ReprodbError as error:
            yield Remark("compile", Severity.ERROR, kernel.name, error.problem, error.remedy)
    for done in compile_all([asked for _, asked in wanted]):
        kernel, asked = wanted[done.number]
        if done.output.ok and done.output.ptx is not None:
            yield from ptx_remarks(kernel, asked.entries, done.output.ptx)
        else:
            yield Remark(
                "compile", Severity.ERROR, kernel.name, _first(done.output.log), "the log says where"
            )


def _first(log: str) -> str:
    """The line of a compiler's log that says what is wrong."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "it does not compile")


def ptx_remarks(kernel: Kernel, entries: Iterable[str], ptx: str) -> Iterator[Remark]:
    """Of one kernel's PTX: absent entries, and atomics that its guarantee does not explain."""
    from reprodb.atomics import float_atomics
    from reprodb.executors.model.ptx import parse

    entries = tuple(entries)
    try:
        absent = [entry for entry in entries if parse(ptx).function(entry) is None]
        found = float_atomics(ptx, entries)
    except UnsupportedError as error:
        yield _warning("atomics", kernel, f"its PTX could not be read for atomics: {error.problem}")
        return
    for entry in absent:
        text = f"no function {entry!r} in the compiled code"
        yield Remark("compile", Severity.ERROR, kernel.name, text, 'extern "C" __global__ in the source')
    guaranteed = kernel.determinism.guaranteed
    if guaranteed and found and not kernel.atomics:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield _warning(
            "atomics",
            kernel,
            f"claims {kernel.determinism}, and has {found[0].phrase}{more}",
            "an order of its own, determinism = 'not_guaranteed', or atomics = 'why it does not matter'",
        )
    if kernel.atomics and not found:
        yield _warning("atomics", kernel, "explains atomics that its code does not have", "leave it out")
