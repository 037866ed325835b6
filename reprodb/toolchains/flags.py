"""Which extra compiler flags a profile may carry, and why the others are refused."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from reprodb.errors import UsageError


class Refusal(NamedTuple):
    """Flags that are refused, by a pattern over the whole flag, with the reason that people read."""

    pattern: str
    reason: str


# What every compiler may be given. A flag must match one pattern whole. Flags that take a value are here with
# their `=` alone: without it they would take the next flag of the list for their value.
_SHARED = (
    r"-{1,2}std=c\+\+(11|14|17|20|23)",
    # No quotes: a define must not smuggle in a path for `#include NAME`.
    r"(-D|--define-macro=)[A-Za-z_]\w*(=[\w.+-]*)?",
    r"(-U|--undefine-macro=)[A-Za-z_]\w*",
    r"-G|--device-debug|-{1,2}dopt=(on|off)|-lineinfo|--generate-line-info",
    r"(-maxrregcount|--maxrregcount)=\d{1,3}",
    r"-w|--disable-warnings|-Wreorder|-{1,2}restrict|-{1,2}extra-device-vectorization",
    r"(-{1,2}diag-(error|suppress|warn))=[\w,-]+",
    r"(-Ofc|--Ofast-compile)=(0|min|mid|max)",
    r"-{1,2}device-stack-protector=(true|false)",
)

ALLOWED: dict[str, tuple[str, ...]] = {
    "nvrtc": (
        *_SHARED,
        r"-default-device|--device-as-default-execution-space",
        r"-{1,2}(builtin-move-forward|builtin-initializer-list)=(true|false)",
        r"-{1,2}minimal",
    ),
    "nvcc": (
        *_SHARED,
        r"-O[0-3]|--optimize=[0-3]",
        r"-{1,2}expt-(relaxed-constexpr|extended-lambda)|-{1,2}extended-lambda",
        r"-{1,2}Werror=[\w,-]+|-{1,2}Wno-deprecated-(gpu-targets|declarations)",
        r"(-jtd|--jump-table-density)=\d{1,3}",
        r"-{1,2}allow-unsupported-compiler",
        r"-Wext-lambda-captures-this|--Wext-lambda-captures-this",
    ),
}

# Flags that hand another flag on to a part of the compiler: `-Xptxas=-O1`, or two items of the list.
HANDED_ON: dict[str, dict[str, str]] = {
    "nvrtc": {"-Xptxas": "ptxas", "--ptxas-options": "ptxas"},
    "nvcc": {
        "-Xptxas": "ptxas",
        "--ptxas-options": "ptxas",
        "-Xcompiler": "host",
        "--compiler-options": "host",
    },
}

_PART_ALLOWED: dict[str, tuple[str, ...]] = {
    "ptxas": (
        r"-O[0-4]|--opt-level=[0-4]|-v|--verbose|-w|--disable-warnings|-Werror|--warning-as-error",
        r"-warn-(double-usage|spills|lmem-usage)|--warn-on-(double-precision-use|spills|local-memory-usage)",
        r"-(dlcm|dscm|flcm|fscm)=\w+|--(def|force)-(load|store)-cache=\w+",
        r"-{1,2}allow-expensive-optimizations=(true|false)",
        r"-disable-optimizer-consts|--disable-optimizer-constants",
        r"-no-bb-merge|--dont-merge-basicblocks|-ret-end|--return-at-end",
        r"-opt-fp-atomics|--optimize-float-atomics",
        r"(-regUsageLevel|--register-usage-level)=\d{1,2}",
        r"-{1,2}suppress-[a-z-]+|-{1,2}preserve-relocs|-{1,2}maxrregcount=\d{1,3}",
    ),
    # Reaches the host compiler alone: device code does not move, which is worth showing.
    "host": (
        r"-O[0-3]|-Ofast|-Og|-g",
        r"-f(no-)?(fast-math|strict-aliasing|unsafe-math-optimizations|associative-math|math-errno)",
        r"-f(no-)?(signed-zeros|trapping-math|finite-math-only|rounding-math|PIC|pic|wrapv|exceptions)",
        r"-ffp-contract=(off|on|fast)",
        r"-m(fma|avx|avx2|sse4\.2|no-fma|arch=[a-z0-9.-]+|tune=[a-z0-9.-]+)",
        r"-W(no-)?[a-z][a-z0-9=+-]*|-w",
    ),
}

# Refused with a reason of their own. The first that matches is told; what matches nothing is unknown.
REFUSED: tuple[Refusal, ...] = (
    Refusal(r"@.*|-optf.*|--options-file.*", "a response file hides flags from the record"),
    Refusal(r"-o.*|--output-file.*|--output-directory.*|-odir.*", "reprodb says where output goes"),
    Refusal(r"-{1,2}(keep|keep-dir|save-temps|objtemp|objdir-as-tempdir).*", "it leaves files behind"),
    Refusal(r"-{1,2}(use_fast_math|use-fast-math)(=.*)?", "write fast_math = true"),
    Refusal(r"-{1,2}fmad(=.*)?", "write fmad = true or false"),
    Refusal(r"-{1,2}ftz(=.*)?", "write ftz = true or false"),
    Refusal(r"-{1,2}prec-div(=.*)?", "write prec_div = true or false"),
    Refusal(r"-{1,2}prec-sqrt(=.*)?", "write prec_sqrt = true or false"),
    Refusal(
        r"-arch.*|--gpu-architecture.*|-gencode.*|--generate-code.*|-code.*|--gpu-code.*",
        'write arch = "sm_XX"',
    ),
    Refusal(
        r"-include.*|--pre-include.*|-I.*|--include-path.*|-isystem.*|--system-include.*|-iquote.*|-idirafter.*",
        "includes come from inside the suite, so that the record holds their text",
    ),
    Refusal(
        r"-(dc|rdc|dw|dlink|dlto|c|cubin|ptx|fatbin|E|M|MM|MD|MMD|MF|MT|MP|lib|link|cuda|optix-ir|gpu|run|clean)(=.*)?"
        r"|--(device-c|relocatable-device-code|device-w|device-link|dlink-time-opt|compile|cubin|ptx|fatbin"
        r"|preprocess|generate-dependencies[\w-]*|generate-nonsystem-dependencies[\w-]*|dependency-.*|lib|link"
        r"|cuda|optix-ir|run|run-args.*|clean-targets|fdevice-syntax-only)(=.*)?",
        "it changes what is built; reprodb asks for PTX and a cubin",
    ),
    Refusal(
        r"-ccbin.*|--compiler-bindir.*|-{1,2}(dont-use-profile|noprof|ldir|libdevice-directory|tpf|use-local-env)"
        r".*|--target-.*|-target-.*|-{1,2}(version-ident|allow-unsupported-host).*",
        "it exchanges a part of the toolchain behind its recorded identity",
    ),
    Refusal(
        r"-{1,2}(time|fdevice-time-trace|create-pch|use-pch|pch.*|profile.*|pg|dryrun|dry-run|ewp|"
        r"resource-usage|res-usage|verbose|help|version|list-.*|v|h|V)(=.*)?",
        "it writes files or prints instead of compiling",
    ),
    Refusal(
        r"-(L|l|shared|static|Xlinker|Xnvlink|Xarchive|Xfatbin|Xcudafe|Xopencc|Xnvvm|cudart).*"
        r"|--(library|linker-options|nvlink-options|archive-options|fatbin-options|cudafe-options).*",
        "nothing is linked and these parts take no flags from profiles",
    ),
)

# What a mistyped flag may have meant.
_SPELLINGS = ("-lineinfo", "-maxrregcount=64", "-std=c++17", "-Xptxas=-O3", "-Xcompiler=-O0", "-restrict",
              "-device-debug", "-extra-device-vectorization", "-disable-warnings", "-dopt=on")  # fmt: skip

_JUNK = re.compile(r"[\x00-\x1f\x7f]")
_SHELL = re.compile(r"[;&|`<>]|\$[({]")


def _refuse(flag: str, reason: str, compiler: str) -> UsageError:
    return UsageError(
        f"extra flag {flag!r} is refused for {compiler}: {reason}",
        allowed="flags without side effects: -D…, -U…, -std=c++NN, -lineinfo, -G, -maxrregcount=N, "
        "-Xptxas=… and others listed in docs/toolchains.md",
        remedy="remove it from the profile's extra list",
    )


def _check_one(flag: str, allowed: Sequence[str], compiler: str, part: str) -> None:
    if any(re.fullmatch(pattern, flag) for pattern in allowed):
        return
    near = get_close_matches(flag, _SPELLINGS, n=1, cutoff=0.85)
    hint = f"; did you mean {near[0]}?" if near else ""
    for refusal in REFUSED:
        if re.fullmatch(refusal.pattern, flag):
            raise _refuse(flag, refusal.reason + hint, compiler)
    if _SHELL.search(flag):
        raise _refuse(flag, "no shell reads it; write one flag an item", compiler)
    if not flag.startswith("-"):
        raise _refuse(flag, "it is no flag; source files and bare words are not taken", compiler)
    raise _refuse(flag, f"{part} flags of that name are not known to be free of side effects{hint}", compiler)


def check(compiler: str, extra: Sequence[object]) -> tuple[str, ...]:
    """The extra flags of a profile as they are, each found harmless. Raises UsageError for the first that
    is not.

    A handed-on flag may be one item (`-Xptxas=-O1`) or two (`-Xptxas`, `-O1`).
    """
    handed_on = HANDED_ON[compiler]
    flags: list[str] = []
    waiting: str | None = None  # the flag whose value is the next item
    for item in extra:
        if not isinstance(item, str):
            raise UsageError(
                f"extra flag {item!r} is no string", allowed='a list of strings: ["-lineinfo"]',
                remedy="write each flag as a string of its own",
            )  # fmt: skip
        if not item or _JUNK.search(item) or item != item.strip():
            raise _refuse(item, "it is empty or holds control characters or outer blanks", compiler)
        if waiting is not None:
            _check_part(waiting, item, compiler)
            waiting = None
        elif item in handed_on:
            waiting = item
        elif "=" in item and item.split("=", 1)[0] in handed_on:
            name, value = item.split("=", 1)
            _check_part(name, value, compiler)
        else:
            _check_one(item, ALLOWED[compiler], compiler, compiler)
        flags.append(item)
    if waiting is not None:
        raise _refuse(waiting, "the flag that it hands on is missing", compiler)
    return tuple(flags)


def _check_part(name: str, value: str, compiler: str) -> None:
    """A value of `-Xptxas` or `-Xcompiler`: one flag; nvcc takes several with commas between."""
    part = HANDED_ON[compiler][name]
    for flag in value.split(",") if compiler == "nvcc" else [value]:
        _check_one(flag, _PART_ALLOWED[part], compiler, part)
