"""The readers under test: each takes bytes, and returns what it read or raises its own refusal."""

from __future__ import annotations

import functools
import io
import json
import tempfile
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path

from tests.fuzz.seeds import ROOT, bundles, manifests
from tests.fuzz.structure import split


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
    """A suite folder with an empty file for every source and include that the valid manifests name."""
    root = _folder() / "suite"
    (root / "_lib").mkdir(parents=True)
    (root / "k").mkdir()
    for path in (*ROOT.glob("kernels/_lib/*"), *ROOT.glob("tests/suites/cases/_lib/*")):
        (root / "_lib" / path.name).write_bytes(path.read_bytes())
    (root / "k" / "k.cu").write_text('extern "C" __global__ void f(float* x) {}\n')
    for text in manifests():
        for word in tomllib.loads(text.decode())["kernel"].values():
            place = (root / "k" / word).resolve() if isinstance(word, str) and "." in word else root
            if place.is_relative_to(root) and not place.exists():
                place.parent.mkdir(exist_ok=True)
                place.touch()
    return root


def read_manifest(data: bytes) -> object:
    from reprodb.suite.loader import parse_toml
    from reprodb.suite.manifest import read_kernel

    kernel, problems = read_kernel(_suite_root(), "k/kernel.toml", parse_toml(data, "k/kernel.toml"))
    assert (kernel is None) == bool(problems)
    assert all(str(problem).isprintable() for problem in problems)
    if kernel is None:
        raise problems[0]
    assert ".." not in kernel.source.split("/")
    return kernel


def read_cuda(data: bytes) -> object:
    """What `kernels add` makes of a source: whatever it reads at all, its manifest is valid."""
    from reprodb.starting.guesses import guess, manifest
    from reprodb.starting.signatures import read_signatures, without_comments
    from reprodb.suite.tables import Problem

    text = data.decode("utf-8", "replace")
    signatures = read_signatures(text, "k.cu")
    made = manifest(guess("k", "k.cu", without_comments(text), signatures))
    try:
        return read_manifest(made.encode())
    except Problem as problem:
        raise AssertionError(f"the manifest of a guess is not valid: {problem}") from None


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


def read_ptx_code(data: bytes) -> object:
    """Normalising, the digest of every part and the counts."""
    from reprodb.codegen import code_of

    return code_of(data.decode("utf-8", "replace"), None)


def read_sass_code(data: bytes) -> object:
    """Normalising, digests, counts, constants and what a stage takes of a multiprocessor."""
    from reprodb.codegen import code_of, nan_literals
    from reprodb.resources import resources

    text = data.decode("utf-8", "replace")
    nan_literals("mov.f32 %f1, 0f7FFFFFFF;", text)
    return code_of(None, text), resources(text, ("votes", "total"))


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


def _archive(manifest: bytes, parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("manifest.json", manifest)
        for member in sorted(parts):
            archive.writestr(member, parts[member])
    return out.getvalue()


def read_members(data: bytes) -> object:
    """A bundle whose manifest agrees with its spoilt members: what is behind the checksums is reached."""
    parts = {name or "runs/x.jsonl": body for name, body in split(data).items()}
    uids = [n[5:-6] for n in sorted(parts) if n.startswith("runs/") and n.endswith(".jsonl")]
    listed = {n: {"sha256": sha256(d).hexdigest(), "size": len(d)} for n, d in parts.items()}
    head = {"schema": "reprodb.bundle/1", "runs": uids, "members": listed}
    text = json.dumps(head, sort_keys=True, separators=(",", ":"))
    return read_bundle(_archive(text.encode(), parts))


@functools.cache
def _smallest() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(bundles()[-1])) as archive:
        return {n: archive.read(n) for n in archive.namelist() if n != "manifest.json"}


def read_head(data: bytes) -> object:
    """A bundle of whole members under a spoilt manifest."""
    return read_bundle(_archive(data, _smallest()))


def read_reference(data: bytes) -> object:
    """A run reference; what is taken as a label is told from every other kind."""
    from reprodb.store.refs import check_label, parse

    text = data.decode("utf-8", "replace")
    parsed = parse(text)
    if parsed.back is None and parsed.number is None:
        check_label(parsed.name)
    return parsed.uid_prefix


def read_flags(data: bytes) -> object:
    """Flags of both compilers; none that is taken holds what a shell reads."""
    from reprodb.toolchains.flags import check

    flags = data.decode("utf-8", "replace").split("\n")
    taken = check("nvcc", flags)
    assert not any(mark in flag for flag in taken for mark in "\x00;|`")
    return check("nvrtc", flags)


def read_tree(data: bytes) -> object:
    """What is read is written the same way again."""
    from reprodb.ordering import read, written

    tree = read(data.decode("utf-8", "replace"))
    assert read(written(tree)) == tree
    return tree


def read_answer(data: bytes) -> object:
    """What a worker sends: values of this program's classes, whatever the bytes are."""
    from reprodb import pipes

    return pipes.loads(data)


def read_atlas(data: bytes) -> object:
    from reprodb.atlas.reading import read

    return read(_file("atlas.json", data))
