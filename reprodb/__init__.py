"""reprodb tells whether a rebuild of CUDA code changed the bits, and what moved."""

from reprodb.version import __version__

__all__ = ["__version__"]
