"""What is fuzzed: each reader of foreign text, valid texts to begin with, and how it may refuse."""

from __future__ import annotations

import functools
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from reprodb.errors import ReprodbError, StoreError, UnsupportedError, UsageError

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "reports" / "evidence"


@dataclass(frozen=True, slots=True)
class Target:
    """A reader: `read` returns, or raises one of `refusals`. Anything else is a finding.

    `weight` is its share of the cases, the more the quicker it is.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    weight: int


# --- Seeds -------------------------------------------------------------------------------------


@functools.cache
def manifests() -> tuple[bytes, ...]:
    files = [*ROOT.glob("kernels/*/kernel.toml"), *ROOT.glob("tests/suites/*/*/kernel.toml")]
    return tuple(path.read_bytes() for path in sorted(files))


@functools.cache
def code_texts(sign: bytes, most: int = 24, longest: int = 12_000) -> tuple[bytes, ...]:
    """Distinct code texts of the committed evidence that hold `sign`, the shortest first."""
    found: set[bytes] = set()
    for bundle in sorted(EVIDENCE.glob("*.reprodb")):
        with zipfile.ZipFile(bundle) as archive:
            for info in archive.infolist():
                if info.filename.startswith("texts/") and info.file_size <= longest:
                    text = archive.read(info)
                    if sign in text:
                        found.add(text)
    return tuple(sorted(found, key=lambda text: (len(text), text)))[:most]


def ptx_texts() -> tuple[bytes, ...]:
    return code_texts(b".address_size", longest=2_900)


def sass_texts() -> tuple[bytes, ...]:
    """Beginnings and ends of disassembled code: a whole one takes twenty milliseconds to normalise."""
    return tuple(
        b"\n".join((*lines[:40], *lines[-30:]))
        for lines in (text.split(b"\n") for text in code_texts(b".text.", longest=20_000, most=8))
    )


def policies() -> tuple[bytes, ...]:
    return (
        b'[gate]\nverdicts = ["changed", "missing"]\naccuracy = true\nrequire_baseline = false\n'
        b'new_history = "gate"\nprofiles = ["default"]\nrel_tol = 1e-5\n\n[nightly]\nevery = "24h"\n\n'
        b'[project]\nsuite = "kernels"\nprofiles = "builds/profiles.toml"\n',
        b'[[kernel]]\nname = "sin_*"\nverdicts = ["determinism_lost"]\nrel_tol = 1e-4\n',
        b'[[expect]]\nkernel = "a*"\nprofile = "*"\nverdict = "changed"\nmoved = "build"\nreason = "x"\n'
        b"until = 2026-12-31\n",
        b'[[require_equal]]\nprofiles = ["a", "b"]\nkernels = ["sum_*"]\n',
    )


@functools.cache
def ledgers() -> tuple[bytes, ...]:
    from dataclasses import replace
    from datetime import timedelta

    from reprodb.domain import scope_of
    from reprodb.ledger import Ledger
    from tests.builders import STARTED, make_result, make_run

    run, result = make_run(), make_result()
    one = Ledger().bless(run, result, who="Ada", why="measured twice", now=STARTED, expires=timedelta(days=9))
    two = one.bless(run, replace(result, profile="other"), who="Bob", why="known", now=STARTED)
    late = STARTED + timedelta(days=1)
    whole = two.withdraw(one.blessings[0].id, who="Ada", why="wrong", now=late)
    return (
        one.text().encode(),
        whole.retire(scope_of(run, result), who="A", why="b", now=late).text().encode(),
    )


def profile_files() -> tuple[bytes, ...]:
    return (
        (ROOT / "builds/profiles.toml").read_bytes(),
        (ROOT / "tests/suites/cases/profiles.toml").read_bytes(),
    )


def sources() -> tuple[bytes, ...]:
    files = sorted(ROOT.glob("kernels/_lib/*.cu*"))
    return (
        *(path.read_bytes() for path in files),
        b'#include "block_reduce.cuh"\n#import <cuda_fp16.h>\n%: include /* x */ "sum.cu"\n#include MACRO\n',
        b'#if __has_include("sum.cu")\n#  include_next "sum_squares.cu"\n#endif\n',
    )


def cuda_sources() -> tuple[bytes, ...]:
    folders = ("kernels/_lib", "tests/suites/*/_lib", "tests/suites/conformance/*", "reprodb/starting/files")
    files = sorted(path for folder in folders for path in ROOT.glob(f"{folder}/*.cu"))
    return tuple(text for text in (path.read_bytes() for path in files) if b'extern "C"' in text)


def urls() -> tuple[bytes, ...]:
    return (
        b"postgresql://ada:s3cr3t@host:5432/db", b"postgresql+psycopg://u:p%40w@/d?host=/run", b"sqlite:////srv/a.db",
        b"/srv/reprodb.db", b"postgresql://host/db?user=ada&password=s3cr3t", b"postgres://u@[::1]:5432/d#x",
    )  # fmt: skip


@functools.cache
def bundles() -> tuple[bytes, ...]:
    """A small bundle of two runs."""
    from reprodb.store import open_store
    from reprodb.store.bundles import export
    from tests.builders import make_result
    from tests.store.things import LATER, new_run, rich_result

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.reprodb")
        with open_store(str(Path(folder, "a.db")), write=True) as store:
            for number, results in enumerate(((rich_result(), make_result()), (make_result(),)), 1):
                run_id = store.begin(new_run(number))
                for result in results:
                    store.record(run_id, result)
                store.finish(run_id, 0, LATER)
            export(store, [1, 2], path)
        return (path.read_bytes(),)


@functools.cache
def members() -> tuple[bytes, ...]:
    """The members of that bundle but its manifest, one text: `name NUL data` each, joined by 0x1e."""
    with zipfile.ZipFile(io.BytesIO(bundles()[0])) as archive:
        parts = [n.encode() + b"\0" + archive.read(n) for n in archive.namelist() if n != "manifest.json"]
    return (b"\x1e".join(parts),)


# --- Readers -----------------------------------------------------------------------------------


@functools.cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where there is one: its files are written for every case."""
    shm = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="reprodb-fuzz-", dir=shm if shm.is_dir() else None)


def _folder() -> Path:
    return Path(_kept().name)


def _file(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(data)
    return path


@functools.cache
def _suite_root() -> Path:
    """A suite folder whose sources the manifests may name."""
    root = _folder() / "suite"
    (root / "_lib").mkdir(parents=True)
    (root / "k").mkdir()
    for path in (*ROOT.glob("kernels/_lib/*"), *ROOT.glob("tests/suites/cases/_lib/*")):
        (root / "_lib" / path.name).write_bytes(path.read_bytes())
    (root / "k" / "k.cu").write_text('extern "C" __global__ void f(float* x) {}\n')
    return root


def read_manifest(data: bytes) -> object:
    from reprodb.suite.loader import parse_toml
    from reprodb.suite.manifest import read_kernel

    kernel, problems = read_kernel(_suite_root(), "k/kernel.toml", parse_toml(data, "k/kernel.toml"))
    assert (kernel is None) == bool(problems)
    assert all(str(problem).isprintable() for problem in problems)
    if kernel is not None:
        assert ".." not in kernel.source.split("/")
    return kernel


def read_cuda(data: bytes) -> object:
    """What `kernels add` makes of a source: whatever it reads at all, its manifest is valid."""
    from reprodb.starting.guesses import guess, manifest
    from reprodb.starting.signatures import read_signatures, without_comments

    text = data.decode("utf-8", "replace")
    signatures = read_signatures(text, "k.cu")
    kernel = read_manifest(manifest(guess("k", "k.cu", without_comments(text), signatures)).encode())
    assert kernel is not None, "the manifest of a guess is not valid"
    return kernel


def read_sources(data: bytes) -> object:
    """The include scan: no file outside the suite is ever named."""
    from reprodb.domain import Determinism, Kernel, Suite
    from reprodb.suite.sources import source_files

    root = _suite_root()
    (root / "_lib" / "fuzzed.cu").write_bytes(data)
    kernel = Kernel("k", "_lib/fuzzed.cu", "", Determinism.RUN_TO_RUN, "float32", (), (), (), ())
    files = source_files(Suite("s", root, (kernel,)), kernel)
    assert all((root / f.path).resolve().is_relative_to(root.resolve()) for f in files)
    return files


def read_ptx(data: bytes) -> object:
    from reprodb.executors.model.ptx import parse

    return parse(data.decode("utf-8", "replace"))


def lower_ptx(data: bytes) -> object:
    from reprodb.executors.model.lower import lower
    from reprodb.executors.model.ptx import parse

    module = parse(data.decode("utf-8", "replace"))
    return [lower(module, f.name, fma=True) for f in module.functions[:1]]


def read_code(data: bytes) -> object:
    """Normalising, digests and counts of both languages, from the same text."""
    from reprodb.codegen import code_of, nan_literals, normalise_ptx, normalise_sass

    text = data.decode("utf-8", "replace")
    if b".address_size" in data or data.startswith(b"//"):
        normalise_ptx(text)
        return code_of(text, None)
    normalise_sass(text)
    nan_literals(None, text)
    return code_of(None, text)


def read_policy(data: bytes) -> object:
    from reprodb.policy import parse_policy

    policy = parse_policy(data.decode("utf-8", "replace"))
    assert parse_policy(policy.text()) == policy
    return policy


def read_ledger(data: bytes) -> object:
    from reprodb.ledger import parse_ledger

    return parse_ledger(data.decode("utf-8", "replace"))


def read_profiles(data: bytes) -> object:
    from reprodb.profiles import load_profiles

    return load_profiles(_file("profiles.toml", data))


def read_size(data: bytes) -> object:
    from reprodb.suite.expressions import evaluate, names_in

    text = data.decode("utf-8", "replace")
    names_in(text)
    return evaluate(text, {"BLOCKS": 4, "n": 100, "THREADS": 256})


def read_url(data: bytes) -> object:
    """No password of a well-formed beginning is shown."""
    from reprodb.store.location import locate, redact

    text = data.decode("utf-8", "replace")
    redact(text)
    return str(locate(text))


def read_bundle(data: bytes) -> object:
    from reprodb.store.bundle_read import Bundle

    with Bundle(_file("a.reprodb", data)) as bundle:
        return bundle.runs


def read_members(data: bytes) -> object:
    """A bundle whose manifest agrees with its spoilt members: what is behind the checksums is reached."""
    parts: dict[str, bytes] = {}
    for part in data.split(b"\x1e"):
        name, _, body = part.partition(b"\0")
        parts[name.decode("utf-8", "replace") or "runs/x.jsonl"] = body
    uids = [n[5:-6] for n in sorted(parts) if n.startswith("runs/") and n.endswith(".jsonl")]
    listed = {n: {"sha256": sha256(d).hexdigest(), "size": len(d)} for n, d in parts.items()}
    head = {"schema": "reprodb.bundle/1", "runs": uids, "members": listed}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("manifest.json", json.dumps(head, sort_keys=True, separators=(",", ":")))
        for member in sorted(parts):
            archive.writestr(member, parts[member])
    return read_bundle(out.getvalue())


def sizes() -> tuple[bytes, ...]:
    return (b"BLOCKS * 2", b"(n + 1) * 4", b"1 + 2 * (BLOCKS + 3 * (n + 4))", b"1048576")


def _problem() -> type[Exception]:
    from reprodb.suite.tables import Problem

    return Problem


def _expression_error() -> type[Exception]:
    from reprodb.suite.expressions import ExpressionError

    return ExpressionError


def targets() -> tuple[Target, ...]:
    return (
        Target("manifest", manifests, read_manifest, (_problem(),), 30),
        Target("size", sizes, read_size, (_expression_error(),), 10),
        Target("source includes", sources, read_sources, (UsageError,), 8),
        Target("cuda source", cuda_sources, read_cuda, (UsageError,), 8),
        Target("profiles", profile_files, read_profiles, (UsageError,), 10),
        Target("policy", policies, read_policy, (UsageError,), 10),
        Target("ledger", ledgers, read_ledger, (UsageError,), 6),
        Target("database url", urls, read_url, (UsageError,), 6),
        Target("ptx", ptx_texts, read_ptx, (UnsupportedError,), 12),
        Target("ptx lowered", ptx_texts, lower_ptx, (ReprodbError,), 2),
        Target("ptx normalised", ptx_texts, read_code, (), 4),
        Target("sass normalised", sass_texts, read_code, (), 6),
        Target("bundle", bundles, read_bundle, (StoreError,), 10),
        Target("bundle members", members, read_members, (StoreError,), 6),
    )
