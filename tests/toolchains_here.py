"""The real compilers that tests use: those of this environment, or installed once into a cache folder."""

from __future__ import annotations

import os
from functools import cache

from reprodb.domain import Profile, Toolchain
from reprodb.toolchains import catalog, install
from tests import shared


@cache
def here(compiler: str, toolkit: str, to_install: str = "") -> Toolchain:
    """The newest toolchain of a specifier, installed where none is found and `to_install` names a version.

    REPRODB_TEST_CACHE names the folder that tests install into; the user's cache folder otherwise.
    """
    environ = dict(os.environ)
    if "REPRODB_TEST_CACHE" in environ:
        environ["REPRODB_CACHE"] = environ["REPRODB_TEST_CACHE"]
    wanted = Profile("here", compiler, toolkit)
    found = catalog.match(wanted, catalog.find(environ))
    if found is None and to_install:
        with shared.alone("install"):
            found = catalog.match(wanted, catalog.find(environ))  # another worker was first
            found = found or install.install(compiler, to_install, environ=environ)
    assert found is not None, f"{compiler} {toolkit} is missing: {to_install or 'install the cpu extra'}"
    return found


def nvrtc12() -> Toolchain:
    return here("nvrtc", ">=12.6,<12.7")


def nvrtc13() -> Toolchain:
    return here("nvrtc", ">=13,<14")


def nvcc12() -> Toolchain:
    return here("nvcc", ">=12,<13", "12.4")


def nvcc13() -> Toolchain:
    return here("nvcc", ">=13,<14", "13.0")
