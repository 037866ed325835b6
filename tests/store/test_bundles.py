"""Bundles: what goes in comes out, merging has no order, and nothing of a bad bundle is taken."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from reprodb.domain import Artifact, CanaryOutcome, Determinism, Result, Run
from reprodb.errors import Exit, StoreError, UsageError
from reprodb.store import open_store
from reprodb.store.bundles import Imported, export, import_bundle
from reprodb.store.store import Store
from tests.builders import STARTED, make_build, make_output, make_result
from tests.store.things import LATER, new_run, rich_result, text

ARTIFACT = Artifact(make_build(), ptx=".version 9.0\n", cubin=b"\x7fELF", sass="FADD R0, R1, R2 ;\n")


def fill(store: Store, run: Run, *results: Result, accept: bool = False) -> int:
    """A finished run with these results."""
    run_id = store.begin(run)
    ids = store.record_many(run_id, [(result, replace(ARTIFACT, build=result.build)) for result in results
                                     if result.build is not None])  # fmt: skip
    if accept:
        store.accept(ids)
    store.finish(run_id, 0, LATER)
    return run_id


def exported(store: Store, path: Path) -> bytes:
    """Everything in the database, as a bundle: equal databases give equal bytes."""
    export(store, [run.id for run in store.runs() if run.id is not None], path)
    return path.read_bytes()


def test_export_and_import_are_the_identity(database: str, tmp_path: Path) -> None:
    churn = make_result(
        ["0x4b25426d", "0x4b25426e"] * 50, determinism=Determinism.NOT_GUARANTEED, profile="b"
    )
    with open_store(str(tmp_path / "a.db"), write=True) as a, open_store(database, write=True) as b:
        run_id = fill(a, new_run(label="night"), rich_result(), churn, accept=True)
        export(a, [run_id], tmp_path / "one.reprodb")
        assert import_bundle(b, [tmp_path / "one.reprodb"]) == Imported(1, 0, 2, 0)
        found = b.resolve("night").run_id
        assert found is not None
        assert replace(b.run(found), id=None) == replace(a.run(run_id), id=None)
        # In a bundle results stand by row, so their order may differ from that of recording.
        assert sorted(map(text, b.results(found))) == sorted(map(text, a.results(run_id)))
        assert b.code_texts(ARTIFACT.build.key) == (ARTIFACT.ptx, ARTIFACT.sass)
        for output in rich_result().outputs:
            for pattern in output.patterns:
                assert b.pattern(pattern.sha256) == pattern.data
        assert b.check() == ()
        assert exported(b, tmp_path / "two.reprodb") == (tmp_path / "one.reprodb").read_bytes()


def test_importing_again_changes_nothing(database: str, tmp_path: Path) -> None:
    with open_store(database, write=True) as store:
        run_id = fill(store, new_run(), rich_result(), accept=True)
        bundle = tmp_path / "a.reprodb"
        export(store, [run_id], bundle)
        assert import_bundle(store, [bundle, bundle]) == Imported(0, 1, 0, 1)
        assert [run.id for run in store.runs()] == [run_id]
        assert exported(store, tmp_path / "b.reprodb") == bundle.read_bytes()


def test_merging_has_no_order(tmp_path: Path) -> None:
    """Four runs of three runners, some of them in two bundles, in 12 orders: always the same database."""
    bundles = []
    with open_store(str(tmp_path / "source.db"), write=True) as store:
        ids = []
        for number, bits in enumerate(("0x4b25426d", "0x4b25426e", "0x4b25426d", "0x4b25426c")):
            results = [make_result([bits] * 100, profile=profile) for profile in "ab"]
            ids.append(fill(store, new_run(number + 1), *results, accept=number % 2 == 0))
        for number, some in enumerate((ids[:2], ids[1:3], ids[3:], [ids[0], ids[3]])):
            bundles.append(tmp_path / f"{number}.reprodb")
            export(store, some, bundles[-1])
        expected = exported(store, tmp_path / "all.reprodb")
    for seed in range(12):
        order = random.Random(seed).sample(bundles, len(bundles))
        with open_store(str(tmp_path / f"{seed}.db"), write=True) as merged:
            cut = seed % 3
            if cut:
                import_bundle(merged, order[:cut])
            import_bundle(merged, order[cut:])
            assert exported(merged, tmp_path / "merged.reprodb") == expected
            assert [run.uid for run in merged.runs()] == ["run-4", "run-3", "run-2", "run-1"]
            scope_results = merged.history("sum_squares_tree", profile="a")
            assert [run.uid for run, _ in scope_results] == ["run-4", "run-3", "run-2", "run-1"]


def test_a_run_grows_from_bundle_to_bundle(database: str, tmp_path: Path) -> None:
    """A bundle of the unfinished run, then one of the finished run; and the other way round."""
    canaries = (CanaryOutcome("integer_sum", True, "as expected"),)
    early, late = tmp_path / "early.reprodb", tmp_path / "late.reprodb"
    with open_store(str(tmp_path / "source.db"), write=True) as source:
        run_id = source.begin(new_run())
        first = source.record(run_id, make_result(profile="a"))
        export(source, [run_id], early)
        source.record(run_id, make_result(profile="b"))
        source.accept([first])
        source.finish(run_id, 1, LATER, canaries=canaries)
        export(source, [run_id], late)
    with open_store(database, write=True) as store:
        import_bundle(store, [early])
        assert not store.runs()[0].complete
        assert import_bundle(store, [late]) == Imported(0, 1, 1, 1)
        run = store.runs()[0]
        assert (run.exit_code, run.finished_at, run.canaries) == (1, LATER, canaries)
        assert exported(store, tmp_path / "x.reprodb") == late.read_bytes()
        import_bundle(store, [early])  # what is older changes nothing
        assert exported(store, tmp_path / "x.reprodb") == late.read_bytes()


def test_a_conflict_names_both_sources(database: str, tmp_path: Path) -> None:
    good, evil = tmp_path / "good.reprodb", tmp_path / "evil.reprodb"
    for path, bits in ((good, "0x4b25426d"), (evil, "0x4b25426e")):
        with open_store(str(path.with_suffix(".db")), write=True) as source:
            export(source, [fill(source, new_run(), make_result([bits] * 100))], path)
    with open_store(database, write=True) as store:
        with pytest.raises(StoreError) as caught:
            import_bundle(store, [good, evil])
        assert f"bundle {good}" in str(caught.value)
        assert f"bundle {evil}" in str(caught.value)
        assert store.runs() == ()
        import_bundle(store, [good])
        before = exported(store, tmp_path / "before.reprodb")
        with pytest.raises(StoreError, match="other bits") as caught:
            import_bundle(store, [evil])
        assert f"bundle {evil}" in str(caught.value)
        assert "(run 1)" in str(caught.value)
        assert exported(store, tmp_path / "after.reprodb") == before
        assert store.check() == ()


def test_one_uid_with_two_beginnings_is_a_conflict(tmp_path: Path) -> None:
    paths = []
    for number, label in enumerate(("a", "b")):
        paths.append(tmp_path / f"{label}.reprodb")
        with open_store(str(tmp_path / f"{number}.db"), write=True) as source:
            export(source, [fill(source, new_run(label=label), make_result())], paths[-1])
    with (
        open_store(str(tmp_path / "x.db"), write=True) as store,
        pytest.raises(StoreError, match="other settings"),
    ):
        import_bundle(store, paths)


def test_a_bundle_holds_no_binary_and_no_address(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "a.db"), write=True) as store:
        export(store, [fill(store, new_run(), rich_result())], tmp_path / "a.reprodb")
    with zipfile.ZipFile(tmp_path / "a.reprodb") as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
        assert all(info.date_time == (1980, 1, 1, 0, 0, 0) for info in archive.infolist())
    assert b"\x7fELF" not in content
    assert b"a.db" not in content


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "a.db"), write=True) as store:
        with pytest.raises(UsageError, match="no run to export"):
            export(store, [], tmp_path / "a.reprodb")
        with pytest.raises(UsageError, match="no run 7"):
            export(store, [7], tmp_path / "a.reprodb")
        run_id = fill(store, new_run(), make_result())
        with pytest.raises(StoreError, match="no folder"):
            export(store, [run_id], tmp_path / "absent" / "a.reprodb")
        with pytest.raises(UsageError, match="no bundle"):
            import_bundle(store, [])
    assert not (tmp_path / "a.reprodb").exists()


# --- Bad bundles -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("bundle")
    with open_store(str(folder / "a.db"), write=True) as store:
        export(store, [fill(store, new_run(), rich_result(), make_result())], folder / "a.reprodb")
    return (folder / "a.reprodb").read_bytes()


Members = dict[str, bytes]


def repack(
    sample: bytes, change: Callable[[Members], None], *, sign: bool = True, fill: bytes = b""
) -> bytes:
    """The bundle with members changed; `sign` makes the manifest agree with them again."""
    with zipfile.ZipFile(io.BytesIO(sample)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    if sign:
        manifest = json.loads(members["manifest.json"])
        manifest["members"] = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            for name, data in members.items()
            if name != "manifest.json"
        }
        members["manifest.json"] = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def edit(name: str, old: str, new: str) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        before = members[name].decode()
        assert old in before
        members[name] = before.replace(old, new, 1).encode()

    return change


def drop(name: str) -> Callable[[Members], None]:
    def change(members: Members) -> None:
        del members[name]

    return change


def add(name: str, data: bytes = b"") -> Callable[[Members], None]:
    return lambda members: members.update({name: data})


RUN = "runs/run-1.jsonl"
BAD = {
    "other bits": (edit("patterns.jsonl", '"data":"bUIlSw=="', '"data":"bkIlSw=="'), "damaged"),
    "other first bits": (edit(RUN, '"first_bits":"0x4b25426d"', '"first_bits":"0x4b25426e"'), "first bits"),
    "other run hash": (
        edit(RUN, '"run_hash":"0x8189389fe1bc0a65"', '"run_hash":"0x8189389fe1bc0a66"'),
        "run hash",
    ),
    "other repetitions": (edit(RUN, '"repetitions":100', '"repetitions":99'), "damaged"),
    "endless repetitions": (edit(RUN, '"repetitions":100', '"repetitions":100000000000'), "damaged"),
    "other case": (edit("cases.jsonl", '"n":4194915', '"n":4194916'), "damaged|out of order"),
    "other build": (edit("builds.jsonl", '"arch":"sm_90"', '"arch":"sm_91"'), "damaged|out of order"),
    "text of another name": (edit("builds.jsonl", '"ptx":"', '"ptx":"0'), "nothing refers to|damaged"),
    "no patterns": (drop("patterns.jsonl"), "damaged"),
    "extra text": (add("texts/" + "0" * 64), "other bytes"),
    "unused text": (add("texts/" + hashlib.sha256(b"").hexdigest()), "nothing refers to"),
    "path up": (add("../evil"), "which no bundle has"),
    "absolute path": (add("/etc/passwd"), "which no bundle has"),
    "backslashes": (add("runs\\..\\evil.jsonl"), "which no bundle has"),
    "run outside its folder": (add("runs/..%2fevil.jsonl"), "which no bundle has"),
    "unlisted run": (add("runs/other.jsonl"), "other runs"),
    "not canonical": (edit(RUN, '"accepted":false', '"accepted": false'), "canonical"),
    "unknown key": (edit(RUN, '"accepted":false', '"accepted":false,"zeal":1'), "cannot be read"),
    "wrong type": (edit(RUN, '"repetitions":100', '"repetitions":"100"'), "canonical"),
    "text for a list": (edit(RUN, '"notes":[]', '"notes":7'), "cannot be read"),
    "deep nesting": (edit(RUN, '"notes":[]', '"notes":' + "[" * 100_000 + "]" * 100_000), "cannot be read"),
    "huge number": (edit(RUN, '"repetitions":100', '"repetitions":' + "9" * 5000), "cannot be read"),
    "infinite seconds": (edit(RUN, '"seconds":0.0', '"seconds":Infinity'), "damaged"),
    "unknown status": (edit(RUN, '"status":"ok"', '"status":"splendid"'), "cannot be read"),
    "unknown type": (edit(RUN, '"dtype":"float32"', '"dtype":"float33"'), "unknown type"),
    "negative shape": (edit(RUN, '"shape":[1]', '"shape":[-1]'), "shape"),
    "shape without end": (edit(RUN, '"shape":[1]', '"shape":[' + "1," * 32 + "1]"), "shape"),
    "number in other figures": (edit(RUN, '"reference":"-0.0"', '"reference":"-.0"'), "is not how"),
    "other shape": (edit(RUN, '"shape":[1]', '"shape":[2]'), "not of 8 bytes"),
    "other lane": (edit(RUN, '"lane":"modelled"', '"lane":"guessed"'), "cannot be read"),
    "other uid": (edit(RUN, '"uid":"run-1"', '"uid":"run-2"'), "under the name"),
    "reserved label": (edit(RUN, '"label":null', '"label":"latest"'), "cannot be a run's label"),
    "naive time": (edit(RUN, "+00:00", ""), "UTC"),
    "other zone": (edit(RUN, "+00:00", "+09:00"), "UTC"),
    "position out of range": (edit(RUN, '"position":', '"position":9999'), "position .* out of range"),
    "position before its start": (edit(RUN, '"position":1', '"position":'), "position .* out of range"),
    "result twice": (lambda m: m.update({RUN: m[RUN] + m[RUN].split(b"\n")[1] + b"\n"}), "twice"),
    "run cut short": (lambda m: m.update({RUN: m[RUN][:-2]}), "truncated"),
    "empty run": (lambda m: m.update({RUN: b""}), "cannot be read"),
    "newer format": (
        edit("manifest.json", "reprodb.bundle/1", "reprodb.bundle/2"),
        "format 'reprodb.bundle/2'",
    ),
    "manifest not first": (
        lambda m: m.update({"manifest.json": m.pop("manifest.json")}),
        "manifest in front",
    ),
    "no manifest": (drop("manifest.json"), "manifest in front"),
}


def refused(tmp_path: Path, data: bytes, words: str) -> None:
    """The bundle is refused with exit code 4 and these words, and the database is as it was."""
    path = tmp_path / "bad.reprodb"
    path.write_bytes(data)
    with open_store(str(tmp_path / "x.db"), write=True) as store:
        with pytest.raises(StoreError, match=words) as caught:
            import_bundle(store, [path])
        assert caught.value.code is Exit.NO_ANSWER
        assert store.runs() == ()


@pytest.mark.parametrize("name", BAD)
def test_a_bundle_that_lies_is_refused(tmp_path: Path, sample: bytes, name: str) -> None:
    change, words = BAD[name]
    refused(tmp_path, repack(sample, change, sign="manifest" not in name), words)


def test_a_changed_member_does_not_match_its_manifest(tmp_path: Path, sample: bytes) -> None:
    refused(
        tmp_path, repack(sample, edit(RUN, '"accepted":false', '"accepted":true'), sign=False), "size|SHA-256"
    )
    refused(tmp_path, repack(sample, drop(RUN), sign=False), "other members")


def test_good_bundles_pass_the_same_repacking(tmp_path: Path, sample: bytes) -> None:
    """Else the tests above would prove nothing."""
    (tmp_path / "good.reprodb").write_bytes(repack(sample, lambda members: None))
    with open_store(str(tmp_path / "x.db"), write=True) as store:
        assert import_bundle(store, [tmp_path / "good.reprodb"]).new_results == 2


def test_what_is_no_bundle(tmp_path: Path, sample: bytes) -> None:
    for data in (b"", b"PK", b"SQLite format 3\0" + bytes(1000), sample[:-1], sample[: len(sample) // 2]):
        refused(tmp_path, data, "not a bundle, or truncated|not laid out")
    refused(tmp_path, b"#!/bin/sh\n" + sample, "not laid out")
    refused(tmp_path, sample + b"\0", "not a bundle")
    with open_store(str(tmp_path / "x.db"), write=True) as store:
        os.mkfifo(tmp_path / "pipe")
        for path, words in (
            ("absent", "No such file"),
            ("", "cannot be opened|not a file"),
            ("pipe", "not a file"),
        ):
            with pytest.raises(StoreError, match=words):
                import_bundle(store, [tmp_path / path])


def test_every_single_damaged_byte_is_noticed_or_harmless(tmp_path: Path, sample: bytes) -> None:
    """300 random bytes: the bundle is refused, or holds what it held (some zip fields mean nothing)."""
    generator = random.Random(4)
    path = tmp_path / "bad.reprodb"
    with open_store(str(tmp_path / "good.db"), write=True) as store:
        path.write_bytes(sample)
        import_bundle(store, [path])
        expected = exported(store, tmp_path / "good.reprodb")
    with open_store(str(tmp_path / "x.db"), write=True) as store:
        for _ in range(300):
            data = bytearray(sample)
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            path.write_bytes(data)
            try:
                import_bundle(store, [path])
            except StoreError:
                continue
            assert exported(store, tmp_path / "x.reprodb") == expected


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, sample: bytes) -> None:
    """Its directory says 2 GB; not a byte of them is read. One that says less than there is fails."""
    grown = repack(sample, add("large/" + "0" * 64, bytes(4 << 20)))
    place = grown.rfind(b"large/" + b"0" * 64) - 46
    assert grown[place : place + 4] == b"PK\1\2"
    lying = bytearray(grown)
    lying[place + 24 : place + 28] = struct.pack("<L", 2 << 30)
    refused(tmp_path, bytes(lying), "too much")
    lying[place + 24 : place + 28] = struct.pack("<L", 100)
    refused(tmp_path, bytes(lying), "size|damaged|cannot be read")
    many = bytearray(sample)
    many[-14:-10] = struct.pack("<2H", 65_000, 65_000)
    refused(tmp_path, bytes(many), "members")


def test_an_encrypted_or_oddly_packed_member_is_refused(tmp_path: Path, sample: bytes) -> None:
    place = sample.rfind(b"PK\1\2")
    encrypted = bytearray(sample)
    encrypted[place + 8] |= 1
    refused(tmp_path, bytes(encrypted), "packed as no bundle")
    bzip2 = bytearray(sample)
    bzip2[place + 10] = 12
    refused(tmp_path, bytes(bzip2), "packed as no bundle")


def test_large_patterns_travel_whole_or_as_page_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reprodb.store.patterns.LARGEST_KEPT", 200_000)
    kept, unkept = bytes(range(256)) * 400, bytes(range(255, -1, -1)) * 1000
    results = [
        make_result(outputs=(make_output([data] * 2, dtype="uint8"),), profile=profile)
        for profile, data in (("kept", kept), ("unkept", unkept))
    ]
    with (
        open_store(str(tmp_path / "a.db"), write=True) as a,
        open_store(str(tmp_path / "b.db"), write=True) as b,
    ):
        export(a, [fill(a, new_run(), *results)], tmp_path / "a.reprodb")
        import_bundle(b, [tmp_path / "a.reprodb"])
        first, second = (result.outputs[0].sha256 for result in b.results(1))
        assert b.pattern(first) == kept
        assert b.pages(second) == a.pages(second) != ()
        with pytest.raises(StoreError, match="not kept"):
            b.pattern(second)
        assert b.check() == ()
        assert exported(b, tmp_path / "b.reprodb") == (tmp_path / "a.reprodb").read_bytes()
        # A bundle that has the bytes fills them in.
        with open_store(str(tmp_path / "c.db"), write=True) as c:
            run_id = c.begin(new_run())
            c.record_many(run_id, [(result, ARTIFACT) for result in results], keep=True)
            c.finish(run_id, 0, LATER)
            export(c, [run_id], tmp_path / "c.reprodb")
        import_bundle(b, [tmp_path / "c.reprodb"])
        assert b.pattern(second) == unkept
        assert b.check() == ()


def test_two_runners_far_apart_are_ordered_by_utc(tmp_path: Path) -> None:
    from datetime import timezone

    tokyo, zurich = timezone(timedelta(hours=9)), timezone(timedelta(hours=1))
    paths = []
    for number, (name, zone) in enumerate((("tokyo", tokyo), ("zurich", zurich))):
        started = (STARTED + timedelta(minutes=number)).astimezone(zone)
        paths.append(tmp_path / f"{name}.reprodb")
        with open_store(str(tmp_path / f"{name}.db"), write=True) as store:
            run = new_run(uid=name, started_at=started)
            export(store, [fill(store, run, make_result())], paths[-1])
    with open_store(str(tmp_path / "x.db"), write=True) as store:
        import_bundle(store, reversed(paths))
        assert [run.uid for run in store.runs()] == ["zurich", "tokyo"]
