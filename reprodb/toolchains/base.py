"""The explicit table of compilers. A new one is a module that follows the protocol, and one line here."""

from reprodb.toolchains.nvcc import Nvcc
from reprodb.toolchains.nvrtc import Nvrtc
from reprodb.toolchains.options import flags_of
from reprodb.toolchains.process import dropped_variables
from reprodb.toolchains.protocol import CompileOutput, Compiler

COMPILERS: dict[str, Compiler] = {"nvrtc": Nvrtc(), "nvcc": Nvcc()}

__all__ = ["COMPILERS", "CompileOutput", "Compiler", "dropped_variables", "flags_of"]
