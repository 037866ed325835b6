"""`builds/profiles.toml` → `Profile`: every key validated, `extends` resolved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprodb import tomltext
from reprodb.domain import Profile
from reprodb.errors import UsageError
from reprodb.toolchains import flags

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

MOST_BYTES = 1 << 20  # of the file
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ARCH = re.compile(r"sm_\d{2,3}[af]?")

# Each key with what it takes, in words that errors show. `true | false` keys are plain booleans.
KEYS: dict[str, str] = {
    "compiler": "nvrtc | nvcc",
    "toolkit": 'a version specifier: "12.6.*" or ">=13,<14"',
    "fmad": "true | false",
    "fast_math": "true | false",
    "ftz": "true | false",
    "prec_div": "true | false",
    "prec_sqrt": "true | false",
    "extra": 'a list of flags: ["-lineinfo"]',
    "extends": "the name of another profile",
    "arch": "native | sm_XX",
}
_SWITCHES = tuple(key for key, words in KEYS.items() if words == "true | false")


def bundled_profiles() -> Path:
    """The profiles that come with reprodb: the checkout's `builds/profiles.toml`, else package data."""
    package = Path(__file__).parent
    checkout = package.parent / "builds" / "profiles.toml"
    return checkout if checkout.is_file() else package / "data" / "builds" / "profiles.toml"


def load_profiles(path: Path) -> dict[str, Profile]:
    """The profiles of a TOML file of `[profile.NAME]` tables, in the file's order.

    Raises UsageError that names file, profile, key, value and what is allowed.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise UsageError(f"profiles file {path} is too large", allowed=f"at most {MOST_BYTES} bytes")
        data = tomltext.read(text.decode("utf-8"))
    except OSError as error:
        raise UsageError(
            f"profiles file {path} cannot be read: {error.strerror}", remedy="check --profiles-file"
        ) from error
    except (tomltext.NotTomlError, UnicodeDecodeError) as error:
        raise UsageError(f"profiles file {path} is not TOML: {error}") from error
    for key in data:
        if key != "profile":
            raise UsageError(
                f"{path}: unknown table [{key}]",
                allowed="[profile.NAME]",
                remedy=f"write [profile.{key}]" if isinstance(data[key], dict) else f"remove {key}",
            )
    tables = data.get("profile", {})
    if not isinstance(tables, dict) or not tables:
        raise UsageError(f"{path}: no profiles", allowed="[profile.NAME] tables")
    for name, table in tables.items():
        _check_table(path, name, table, tables)
    return {name: _resolve(path, name, tables) for name in tables}


def specifier(toolkit: str) -> SpecifierSet:
    """The version specifier of a profile; `12`, `12.6` and `12.6.*` stand for `==12.*` and `==12.6.*`.

    Raises UsageError for anything else that is no specifier.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    text = toolkit.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        text = f"=={text}.*"
    elif re.fullmatch(r"\d+(\.\d+)*(\.\*)?", text):
        text = f"=={text}"
    try:
        if not text:
            raise InvalidSpecifier
        return SpecifierSet(text)
    except InvalidSpecifier:
        raise UsageError(
            f"toolkit {toolkit!r} is no version specifier", allowed='"12.6.*", "12.6.85" or ">=13,<14"'
        ) from None


def architecture(profile: Profile, native: str | None = None) -> str:
    """The architecture that a profile compiles for: its own, else the GPU's (`native`), else sm_90."""
    return profile.arch if profile.arch != "native" else native or "sm_90"


def check_arch(arch: str) -> str:
    """The architecture as it is. Raises UsageError unless it reads `sm_XX`."""
    if not _ARCH.fullmatch(arch):
        raise UsageError(
            f"{arch!r} is no architecture",
            allowed="sm_XX, such as sm_90",
            remedy="see `reprodb toolchains list`",
        )
    return arch


def select(profiles: Mapping[str, Profile], globs: Iterable[str] | None) -> tuple[Profile, ...]:
    """The profiles that match any of `globs`, in the file's order; all where there are none.

    Raises UsageError for a name or glob that matches nothing.
    """
    wanted = tuple(globs or ())
    if not wanted:
        return tuple(profiles.values())
    for glob in wanted:
        if not any(fnmatchcase(name, glob) for name in profiles):
            near = get_close_matches(glob, profiles, n=3, cutoff=0.5)
            raise UsageError(
                f"no profile matches {glob!r}",
                allowed=", ".join(profiles),
                remedy=f"did you mean {' or '.join(near)}?" if near else "",
            )
    return tuple(p for p in profiles.values() if any(fnmatchcase(p.name, glob) for glob in wanted))


def check_required(
    profiles: Mapping[str, Profile], selected: Sequence[Profile], globs: Iterable[str]
) -> None:
    """Raises UsageError for required profiles that do not exist, or that the selection leaves out."""
    chosen = [profile.name for profile in selected]
    for glob in globs:
        known = [name for name in profiles if fnmatchcase(name, glob)]
        if not known:
            near = get_close_matches(glob, profiles, n=3, cutoff=0.5)
            raise UsageError(
                f"no required profile matches {glob!r}",
                allowed=", ".join(profiles),
                remedy=f"did you mean {' or '.join(near)}?" if near else "",
            )
        if not any(name in chosen for name in known):
            raise UsageError(
                f"the required profile {known[0]} is not selected",
                allowed=", ".join(chosen),
                remedy=f"add --profile {known[0]}, or leave --profile out",
            )


def _problem(place: str, key: str, value: object, allowed: str, why: str = "") -> UsageError:
    return UsageError(f"{place} {key} = {value!r}{why}", allowed=allowed)


def _check_table(path: Path, name: str, table: Any, tables: Mapping[str, Any]) -> None:
    """One profile's own keys; what depends on the resolved whole is checked by `_resolve`."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{path}: profile name {name!r}",
            allowed="letters, digits, '.', '_' and '-', a letter or digit first",
        )
    if not isinstance(table, dict):
        raise UsageError(f"{path}: profile.{name} is no table", allowed=f"[profile.{name}]")
    place = f"{path}: [profile.{name}]"
    for key, value in table.items():
        if key not in KEYS:
            near = get_close_matches(key, KEYS, n=1)
            raise UsageError(
                f"{path}: [profile.{name}] has an unknown key {key!r}",
                allowed=", ".join(KEYS),
                remedy=f"did you mean {near[0]}?" if near else "",
            )
        if key in _SWITCHES:
            right = isinstance(value, bool)
        elif key == "extra":
            right = isinstance(value, list)
        else:
            right = isinstance(value, str)
        if not right:
            raise _problem(place, key, value, KEYS[key])
    if "compiler" in table and table["compiler"] not in flags.ALLOWED:
        near = get_close_matches(table["compiler"], flags.ALLOWED, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise _problem(place, "compiler", table["compiler"], KEYS["compiler"], hint)
    if "arch" in table and table["arch"] != "native" and not _ARCH.fullmatch(table["arch"]):
        raise _problem(place, "arch", table["arch"], KEYS["arch"])
    if "extends" in table and table["extends"] not in tables:
        near = get_close_matches(table["extends"], tables, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise _problem(place, "extends", table["extends"], ", ".join(tables), hint)


def _resolve(path: Path, name: str, tables: Mapping[str, Any]) -> Profile:
    """A profile with what it inherits: a key of its own replaces the inherited one, lists included."""
    chain = [name]
    while (parent := tables[chain[-1]].get("extends")) is not None:
        if parent in chain:
            circle = " → ".join([*chain[chain.index(parent) :], parent])
            raise UsageError(f"{path}: profiles extend each other in a circle: {circle}", remedy="break it")
        chain.append(parent)
    merged: dict[str, Any] = {}
    for link in reversed(chain):
        merged |= tables[link]
    merged.pop("extends", None)
    for key in ("compiler", "toolkit"):
        if key not in merged:
            raise UsageError(f"{path}: [profile.{name}] has no {key}", allowed=KEYS[key])
    try:
        specifier(merged["toolkit"])
        merged["extra"] = flags.check(merged["compiler"], merged.get("extra", []))
    except UsageError as error:
        raise UsageError(
            f"{path}: [profile.{name}] {error.problem}", allowed=error.allowed, remedy=error.remedy
        ) from None
    return Profile(name=name, **merged)
