"""A profile's settings as compiler options: one spelling for both compilers, so that lists compare."""

from __future__ import annotations

import re

from reprodb.domain import Build, Pairs, Profile
from reprodb.errors import UsageError

# Stated, because the default follows the host compiler under nvcc.
_STANDARD = "-std=c++17"
_DEFINE = re.compile(r"[A-Za-z_]\w*")


def resolved(profile: Profile, arch: str, defines: Pairs) -> tuple[str, ...]:
    """Architecture, language, floating-point settings, extra flags and defines, in that order.

    A setting that the profile leaves to the compiler is left out. Options do not depend on the installed
    version: the same profile asks every version for the same. Raises UsageError for a define that the
    profile's extra flags and the manifest both make.
    """
    options = [f"-arch={arch}"]
    if not any("std=" in flag for flag in profile.extra):
        options.append(_STANDARD)
    if profile.fast_math:
        options.append("-use_fast_math")
    options.append(f"-fmad={_word(profile.fmad)}")
    for flag, setting in (
        ("-ftz", profile.ftz), ("-prec-div", profile.prec_div), ("-prec-sqrt", profile.prec_sqrt),
    ):  # fmt: skip
        if setting is not None:
            options.append(f"{flag}={_word(setting)}")
    taken = {match[1] for flag in profile.extra if (match := re.match(r"(?:-D|--define-macro=)(\w+)", flag))}
    for name, _ in defines:
        if not _DEFINE.fullmatch(name):
            raise UsageError(f"define {name!r} is no C identifier")
        if name in taken:
            raise UsageError(
                f"profile {profile.name} defines {name}, which the kernel's manifest defines too",
                remedy="define it in one place",
            )
    return (*options, *profile.extra, *(f"-D{name}={value}" for name, value in defines))


def flags_of(build: Build) -> tuple[str, ...]:
    """A build's options without architecture and manifest defines: what a profile's flags alone say."""
    defines = {f"-D{name}={value}" for name, value in build.defines}
    return tuple(o for o in build.options if not o.startswith("-arch=") and o not in defines)


def _word(value: bool) -> str:
    return "true" if value else "false"
