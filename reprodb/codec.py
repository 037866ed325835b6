"""Frozen dataclasses to JSON text and back, for the database, the artifact store and bundles."""

import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _converter() -> Any:
    from cattrs.preconf.json import make_converter

    # Unknown keys are refused: a record from a newer reprodb must not lose a field silently.
    converter = make_converter(forbid_extra_keys=True)
    # An int in a float's place (`rel_tol = 0` in a manifest) reads back as a float: write it as one.
    converter.register_unstructure_hook(float, float)
    converter.register_unstructure_hook_factory(_has_later, lambda kind: _without_defaults(kind, converter))
    return converter


def _has_later(kind: Any) -> bool:
    return is_dataclass(kind) and any(f.metadata.get("later") for f in fields(kind))


def _without_defaults(kind: Any, converter: Any) -> Callable[[Any], Any]:
    """Writes a class without its `domain.later` fields at their defaults: older records stay canonical."""
    from cattrs.gen import make_dict_unstructure_fn, override

    names = [f.name for f in fields(kind) if f.metadata.get("later")]
    left_out: Any = {name: override(omit_if_default=True) for name in names}
    write: Callable[[Any], Any] = make_dict_unstructure_fn(kind, converter, **left_out)
    return write


def encode(value: Any) -> Any:
    """The value as JSON-ready data: enums by value, bytes as base85 text, times as ISO 8601."""
    return _converter().unstructure(value)


def decode(kind: type[T], data: Any) -> T:
    """The frozen value of `kind` from what `encode` made. Raises cattrs' errors on wrong shapes."""
    result: T = _converter().structure(data, kind)
    return result


def dumps(value: Any) -> str:
    """Canonical JSON text: keys sorted, no spaces, so that equal values give equal bytes."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"), allow_nan=True)


def loads(kind: type[T], text: str) -> T:
    return decode(kind, json.loads(text))
