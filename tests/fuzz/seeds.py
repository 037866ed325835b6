"""Valid texts to begin with: from the suites, the committed evidence, and what this program writes."""

from __future__ import annotations

import functools
import io
import json
import tempfile
import zipfile
from pathlib import Path

from tests.fuzz.pieces import ptx_pieces, sass_pieces
from tests.fuzz.structure import join

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "reports" / "evidence"


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


@functools.cache
def _conformance(sign: str) -> tuple[str, ...]:
    """Code texts of the bundle that holds most instructions, the shortest first."""
    with zipfile.ZipFile(EVIDENCE / "h200-conformance.reprodb") as archive:
        names = [i.filename for i in archive.infolist() if i.filename.startswith("texts/")]
        texts = [archive.read(name).decode() for name in names]
    return tuple(sorted((text for text in texts if sign in text), key=lambda text: (len(text), text)))


@functools.cache
def ptx_texts() -> tuple[bytes, ...]:
    """A few whole modules, and small ones of stretches that together hold every instruction."""
    pieces = [text.encode() for text in ptx_pieces(_conformance(".address_size"))]
    return (*code_texts(b".address_size", longest=2_900)[::4], *pieces)


@functools.cache
def sass_texts() -> tuple[bytes, ...]:
    """Beginnings and ends of disassembled code (a whole one takes twenty milliseconds), and small pieces."""
    whole = [text.split(b"\n") for text in code_texts(b".text.", longest=20_000, most=4)]
    pieces = [text.encode() for text in sass_pieces(_conformance(".text."))]
    return (*(b"\n".join((*lines[:40], *lines[-30:])) for lines in whole), *pieces)


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


@functools.cache
def profile_files() -> tuple[bytes, ...]:
    return (
        (ROOT / "builds/profiles.toml").read_bytes(),
        (ROOT / "tests/suites/cases/profiles.toml").read_bytes(),
    )


@functools.cache
def sources() -> tuple[bytes, ...]:
    files = sorted(ROOT.glob("kernels/_lib/*.cu*"))
    return (
        *(path.read_bytes() for path in files),
        b'#include "block_reduce.cuh"\n#import <cuda_fp16.h>\n%: include /* x */ "sum.cu"\n#include MACRO\n',
        b'#if __has_include("sum.cu")\n#  include_next "sum_squares.cu"\n#endif\n',
    )


@functools.cache
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
    """A small bundle of two runs, and the smallest of one."""
    from reprodb.store import open_store
    from reprodb.store.bundles import export
    from tests.builders import make_result
    from tests.store.things import LATER, new_run, rich_result

    made = []
    for runs in (((rich_result(), make_result()), (make_result(),)), ((make_result(),),)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.reprodb")
            with open_store(str(Path(folder, "a.db")), write=True) as store:
                for number, results in enumerate(runs, 1):
                    run_id = store.begin(new_run(number))
                    for result in results:
                        store.record(run_id, result)
                    store.finish(run_id, 0, LATER)
                export(store, range(1, len(runs) + 1), path)
            made.append(path.read_bytes())
    return tuple(made)


@functools.cache
def members() -> tuple[bytes, ...]:
    """The members of these bundles but their manifests, one text each."""
    texts = []
    for bundle in bundles():
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            texts.append(join({n: archive.read(n) for n in archive.namelist() if n != "manifest.json"}))
    return tuple(texts)


@functools.cache
def heads() -> tuple[bytes, ...]:
    """The manifest of the smallest bundle."""
    with zipfile.ZipFile(io.BytesIO(bundles()[-1])) as archive:
        return (archive.read("manifest.json"),)


def sizes() -> tuple[bytes, ...]:
    return (b"BLOCKS * 2", b"(n + 1) * 4", b"1 + 2 * (BLOCKS + 3 * (n + 4))", b"1048576")


def references() -> tuple[bytes, ...]:
    return (
        b"42",
        b"latest~3:default",
        b"baseline",
        b"nightly-a:cuda12:sum_squares_tree",
        b"0a1b2c3d-4e5f:no-fmad",
    )


def flag_lists() -> tuple[bytes, ...]:
    """A flag a line."""
    return (
        b"-lineinfo\n-maxrregcount=64",
        b"-std=c++17\n-DN=4\n-UN",
        b"-Xptxas\n-O3\n-Xptxas=-v",
        b"-Xcompiler=-O0",
    )


def trees() -> tuple[bytes, ...]:
    return (b"((0 1) (2 3))", b"(0 1 2 3)", b"((((0 1) 2) 3) (4 (5 6 7)))", b"0")


@functools.cache
def answers() -> tuple[bytes, ...]:
    """What workers send: pickles of results, artifacts and errors of this program."""
    from reprodb import pipes
    from tests.builders import make_build, make_result, make_run
    from tests.store.things import rich_result

    return tuple(pipes.dumps(v) for v in (make_build(), make_result(), rich_result(), make_run(), Path("/x")))


@functools.cache
def atlases() -> tuple[bytes, ...]:
    """The committed atlas with one function left in it."""
    import lzma

    document = json.loads(lzma.decompress((EVIDENCE / "atlas-h200.json.xz").read_bytes()))
    shortest = min(document["functions"], key=lambda function: len(json.dumps(function)))
    return (json.dumps(document | {"functions": [shortest]}).encode(),)
