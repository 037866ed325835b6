"""LLVM on this machine: IR text to object code, kept on disk, and to callable functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from reprodb.codec import dumps, loads
from reprodb.digest import content_key
from reprodb.executors.model import runtime
from reprodb.executors.model.lower import Lowered
from reprodb.files import keep_file

MODEL_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Host:
    """The CPU that object code is for. `fma` says whether its fused multiply-add may be used.

    Results are the same bits for every host; only speed differs.
    """

    cpu: str
    features: str
    fma: bool

    @classmethod
    def this(cls) -> Host:
        import llvmlite.binding as llvm

        features = llvm.get_host_cpu_features()
        text = features.flatten()
        return cls(llvm.get_host_cpu_name(), text, bool(features.get("fma") or "+neon" in text))


@cache
def llvm_version() -> str:
    import llvmlite.binding as llvm

    return ".".join(map(str, llvm.llvm_version_info))


@cache
def engine_digest() -> str:
    """A digest of the engine's own source: object code of another engine is never reused."""
    digest = sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _target_machine(host: Host) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=host.cpu, features=host.features, opt=2, reloc="pic", codemodel="default"
    )


def object_code(text: str, machine: Any) -> bytes:
    """IR text as machine code. Three passes suffice; none of them may change what floats compute."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return bytes(machine.emit_object(module))


@cache
def runtime_object(host: Host) -> bytes:
    """The machine code that all stages share, for one CPU."""
    return object_code(runtime.text(), _target_machine(host))


@dataclass(frozen=True, slots=True)
class Compiled:
    """A stage that can run: what lowering found, its warp's code, and the runtime's entry points.

    `keep` holds what owns the code.
    """

    lowered: Lowered
    warp: int  # address
    run: Callable[[int, int, int, int, int], int]
    again: Callable[[int, int], int]
    replay: Callable[[int, int, int, int, int], int]  # as `run`, of what was recorded
    recorder: int  # addresses of what the scheduler calls in place of the warp's code
    replayer: int
    keep: object


class Compiler:
    """Compiles IR for one host. With a `folder` object code is read from and written to it."""

    def __init__(self, host: Host, folder: Path | None) -> None:
        self.host = host
        self.folder = folder
        self._jit: Any = None
        self._machine: Any = None
        self._runtime: Any = None
        self._count = 0

    def key(self, *content: str) -> str:
        """What identifies object code: its content, LLVM, the CPU and the engine itself."""
        host = self.host
        return content_key(
            "reprodb.model/1", *content, llvm_version(), host.cpu, host.features, str(host.fma),
            engine_digest(),
        )  # fmt: skip

    def stage(self, key: str, lower: Callable[[], tuple[Lowered, str]]) -> Compiled:
        """The stage of that key: loaded where its object code is kept, else lowered and compiled.

        `lower` gives what lowering found and the IR text.
        """
        kept = self._load(key)
        if kept is None:
            lowered, text = lower()
            code = object_code(text, self._target())
            self._save(key, dumps(lowered), code)
        else:
            lowered, code = loads(Lowered, kept[0]), kept[1]
        return self._link(lowered, code)

    def _shared_code(self) -> Any:
        """The runtime, linked once a process."""
        import llvmlite.binding as llvm

        if self._runtime is None:
            key = self.key("runtime")
            kept = self._load(key)
            if kept is None:
                code = runtime_object(self.host)
                self._save(key, "{}", code)
            else:
                code = kept[1]
            self._jit = llvm.create_lljit_compiler(self._target(), use_jit_link=False, suppress_errors=False)
            builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
            for name in ("run", "again", "play.blocks", "record", "replay"):
                builder.export_symbol(name)
            self._runtime = builder.link(self._jit, "runtime")
        return self._runtime

    # Object code.

    def _target(self) -> Any:
        if self._machine is None:
            self._machine = _target_machine(self.host)
        return self._machine

    def _link(self, lowered: Lowered, code: bytes) -> Compiled:
        import llvmlite.binding as llvm

        shared = self._shared_code()
        self._count += 1
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_jit_library("runtime")
        builder.add_current_process().export_symbol("warp")
        tracker = builder.link(self._jit, f"stage{self._count}")
        word = ctypes.c_uint64
        run = ctypes.CFUNCTYPE(word, word, word, word, word, word)(shared["run"])
        again = ctypes.CFUNCTYPE(ctypes.c_uint32, word, word)(shared["again"])
        play = ctypes.CFUNCTYPE(word, word, word, word, word, word)(shared["play.blocks"])
        keep = (self._jit, shared, tracker)
        return Compiled(
            lowered, tracker["warp"], cast(Any, run), cast(Any, again), cast(Any, play),
            shared["record"], shared["replay"], keep,
        )  # fmt: skip

    # The folder. A damaged or half-written file counts as absent.

    def _path(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / key[:2] / f"{key[2:]}.stage"

    def _load(self, key: str) -> tuple[str, bytes] | None:
        path = self._path(key)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, _, rest = data.partition(b"\n")
        if digest.decode("ascii", "replace") != sha256(rest).hexdigest():
            return None
        text, _, code = rest.partition(b"\n")
        return text.decode(), code

    def _save(self, key: str, meta: str, code: bytes) -> None:
        path = self._path(key)
        if path is None:
            return
        body = meta.encode() + b"\n" + code
        keep_file(path, sha256(body).hexdigest().encode() + b"\n" + body)
