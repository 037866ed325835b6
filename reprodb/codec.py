"""Frozen dataclasses to JSON text and back, for the database, the artifact store and bundles."""

import json
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
    return converter


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
