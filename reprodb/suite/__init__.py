"""Kernel folders: manifests read and validated whole before anything compiles, and the sources they name."""

from reprodb.suite.loader import bundled_suite, load_suite, no_kernel, read_suite, resized, select_kernels
from reprodb.suite.sources import source_files

__all__ = [
    "bundled_suite",
    "load_suite",
    "no_kernel",
    "read_suite",
    "resized",
    "select_kernels",
    "source_files",
]
