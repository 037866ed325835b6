"""NVRTC: the compiler as a library, loaded by absolute path, one version a process."""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import sys
from pathlib import Path

from reprodb.domain import BuildRequest, Pairs, Profile, Toolchain
from reprodb.errors import ToolchainError
from reprodb.toolchains import headers, options, sources
from reprodb.toolchains.process import clip
from reprodb.toolchains.protocol import CompileOutput

# The exact version stands in the PTX that a compiler emits; the library's own query gives two numbers.
EXACT_VERSION = re.compile(r"release \d+\.\d+, V(\d+\.\d+\.\d+)")

_SUCCESS = 0
_COMPILATION_ERROR = 6
_NOTHING = b'extern "C" __global__ void nothing() {}\n'


class Library:
    """One loaded libnvrtc. Raises ToolchainError if it cannot be loaded or another one is already there."""

    def __init__(self, path: str) -> None:
        library = Path(path)
        others = [name for name in _loaded() if not _same_file(name, library)]
        if others:
            raise ToolchainError(
                f"{path} cannot be loaded beside {others[0]}: one process holds one NVRTC",
                remedy="compile through build.build_all, which keeps versions apart",
            )
        try:
            # Some versions do not find their builtins by themselves.
            for builtins in sorted(library.parent.glob("libnvrtc-builtins.so*")):
                if ".alt." not in builtins.name:
                    ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            self._dll = ctypes.CDLL(str(library))
            self._dll.nvrtcGetErrorString.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise ToolchainError(
                f"{path} cannot be loaded as NVRTC: {error}",
                remedy="reprodb toolchains list shows what works; install another version",
            ) from error

    def architectures(self) -> tuple[str, ...]:
        """Every `sm_XX` that this version compiles for, in ascending order."""
        count = ctypes.c_int()
        self._check(self._dll.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self._check(self._dll.nvrtcGetSupportedArchs(numbers))
        return tuple(f"sm_{number}" for number in sorted(numbers))

    def compile(self, name: str, source: bytes, flags: tuple[str, ...]) -> CompileOutput:
        """Compile one program to PTX and cubin; relative includes resolve from the program's name."""
        program = ctypes.c_void_p()
        self._check(self._dll.nvrtcCreateProgram(ctypes.byref(program), source, name.encode(), 0, None, None))
        try:
            array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
            code = self._dll.nvrtcCompileProgram(program, len(flags), array)
            log = self._bytes("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
            if code != _SUCCESS:
                if code != _COMPILATION_ERROR:
                    log = f"{self._error(code)}\n{log}"
                return CompileOutput(False, None, None, clip(log))
            ptx = self._bytes("PTX", program).rstrip(b"\0").decode()
            return CompileOutput(True, ptx, self._bytes("CUBIN", program), clip(log))
        finally:
            self._dll.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._dll, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._dll, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _error(self, code: int) -> str:
        text: bytes = self._dll.nvrtcGetErrorString(code)
        return text.decode(errors="replace")

    def _check(self, code: int) -> None:
        if code != _SUCCESS:
            raise ToolchainError(f"NVRTC failed: {self._error(code)}")


class Nvrtc:
    """The `nvrtc` compiler of profiles."""

    def options(self, profile: Profile, arch: str, defines: Pairs, toolchain: Toolchain) -> tuple[str, ...]:
        del toolchain  # every version is told the same
        return options.resolved(profile, arch, defines)

    def compile(self, request: BuildRequest, folder: Path) -> CompileOutput:
        library = Library(request.toolchain.path)
        name = sources.write(request, folder)
        source = (folder / request.source).read_bytes()
        flags = self.options(request.profile, request.arch, request.defines, request.toolchain)
        places = headers.folders(request.toolchain)
        with contextlib.chdir(folder):
            output = library.compile(name, source, (*flags, *(f"-I{place}" for place in places)))
        ptx = output.ptx and sources.relative(output.ptx)
        return CompileOutput(output.ok, ptx, output.cubin, sources.relative(output.log))


def _loaded() -> list[str]:
    """The NVRTC libraries of this process."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        names = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/libnvrtc.so" in line}
    return sorted(names)


def _same_file(name: str, library: Path) -> bool:
    return Path(name).resolve() == library.resolve()


def main() -> None:
    """Probe one library in a process of its own; prints `{"version": …, "architectures": […]}`."""
    library = Library(sys.argv[1])
    architectures = library.architectures()
    output = library.compile("nothing.cu", _NOTHING, (f"-arch={architectures[-1]}",))
    match = EXACT_VERSION.search(output.ptx or "")
    if not output.ok or match is None:
        raise ToolchainError(f"{sys.argv[1]} does not compile an empty kernel", detail=output.log)
    sys.stdout.write(json.dumps({"version": match[1], "architectures": architectures}))
