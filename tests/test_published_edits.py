"""The published exercise: three edits of the two-pass tree move the shape, the order and the build.

Once as three kernels of one suite compared with each other, and once as one kernel that is edited from night
to night, all of it compiled and executed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from reprodb.cli.flow import RunOptions, record_run
from reprodb.cli.progress import listener
from reprodb.store import open_store
from tests import shared
from tests.command import Said, reprodb

SUITE = Path(__file__).parent / "suites" / "edits"
TOTAL = "0x4b25426d"  # published for the unedited tree


@pytest.fixture(name="lab", scope="module", params=["model", pytest.param("gpu", marks=pytest.mark.gpu)])
def one_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(request.param, tmp_path_factory.mktemp(f"edits-{request.param}"))


class Lab:
    """The baseline and its edits, 10 times each, in one database; and nights of an edited copy."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device = device
        self.folder = folder
        self.database = folder / "reprodb.db"
        options = RunOptions(
            suite=SUITE,
            profiles=("default", "no-fmad"),
            device=device,
            store=shared.store(),
            repetitions=10,
            label="edits",
        )
        with open_store(str(self.database), write=True) as store:
            record_run(options, store, listener(quiet=True))

    def compared(self, before: str, after: str) -> dict[str, Any]:
        said = reprodb("diff", f"edits:{before}", f"edits:{after}", "--json", "--db", self.database)
        (row,) = said.json["comparisons"]
        return {**row, "exit_code": said.code}

    def night(self, suite: Path, *args: object, database: str = "nights.db") -> Said:
        return reprodb(
            *("nightly", "--suite", suite, "--kernel", "tree", "--device", self.device, "-n", 3),
            *("--profile", "default", "--store", shared.store(), "--db", self.folder / database),
            *("--out", self.folder / "reports", "--json", *args),
            folder=self.folder,
        )


def causes(row: dict[str, Any]) -> dict[str, str]:
    return {layer["name"]: layer["state"] for layer in row["attribution"]["causes"]}


def test_every_variant_keeps_one_pattern(lab: Lab) -> None:
    document = reprodb("show", "edits", "--json", "--db", lab.database).json
    assert len(document["results"]) == 6
    for result in document["results"]:
        assert (result["status"], result["accuracy"]) == ("ok", "ok")
        assert [output["distinct"] for output in result["outputs"].values()] == [1, 1]
        if result["kernel"] == "tree":
            assert result["first_bits"] == TOTAL


def test_twice_the_blocks_move_the_shape(lab: Lab) -> None:
    row = lab.compared("default:tree", "default:tree_2048_blocks")
    assert (row["moved"], row["first_layer"]) == (["shape"], "launch shape")
    assert causes(row) == {
        "input": "same",
        "launch shape": "differs",
        "source": "same",
        "flags": "same",
        "toolchain": "same",
        "architecture": "same",
        "environment": "same",
    }
    assert row["verdict"] == "changed" if row["outputs"]["total"]["changed"] else "latent"


def test_a_reversed_second_pass_moves_the_order(lab: Lab) -> None:
    row = lab.compared("default:tree", "default:tree_reversed")
    assert (row["moved"], row["first_layer"]) == (["order"], "source")
    assert (causes(row)["launch shape"], causes(row)["flags"]) == ("same", "same")
    assert row["outputs"]["partials"]["changed"] == 0
    assert row["verdict"] == ("changed" if row["outputs"]["total"]["changed"] else "same")


def test_no_contraction_moves_the_build_and_73_partials(lab: Lab) -> None:
    row = lab.compared("default:tree", "no-fmad:tree")
    assert (row["verdict"], row["exit_code"], row["gated"]) == ("latent", 0, False)
    assert (row["moved"], row["first_layer"]) == (["build"], "flags")
    partials, total = row["outputs"]["partials"], row["outputs"]["total"]
    assert (partials["changed"], partials["of"], partials["max_ulp"]) == (73, 1024, 2)
    assert (total["changed"], total["of"]) == (0, 1)
    assert "73 of 1,024 partials moved, the total did not" in row["attribution"]["sentence"]


def test_the_three_in_their_order(lab: Lab) -> None:
    edits = ("default:tree_2048_blocks", "default:tree_reversed", "no-fmad:tree")
    assert [lab.compared("default:tree", edit)["moved"] for edit in edits] == [
        ["shape"],
        ["order"],
        ["build"],
    ]


def test_the_measured_order_tells_a_moved_sum_from_another_rounding(lab: Lab) -> None:
    """The fingerprint moves with the blocks and with the reversed pass, and not with the contraction."""
    layers = {}
    for edit in ("default:tree_2048_blocks", "default:tree_reversed", "no-fmad:tree"):
        (layer,) = (
            layer
            for layer in lab.compared("default:tree", edit)["attribution"]["effects"]
            if layer["name"] == "order fingerprint"
        )
        layers[edit] = (layer["state"], layer["detail"])
    assert layers == {
        "default:tree_2048_blocks": ("differs", "58 of 92 pairs meet elsewhere"),
        "default:tree_reversed": ("differs", "8 of 92 pairs meet elsewhere"),
        "no-fmad:tree": ("same", ""),
    }
    row = lab.compared("default:tree", "no-fmad:tree")
    assert "code differs; the order is the same; 73 of 1,024 partials moved" in row["attribution"]["sentence"]
    shown = reprodb("show", "edits:default:tree", "--json", "--db", lab.database).json["results"][0]
    assert (shown["fingerprint"]["pairs"], shown["fingerprint"]["distinct"]) == (92, 1)


def edited(lab: Lab, tmp_path: Path, name: str, manifest: str, *args: object) -> tuple[Said, dict[str, Any]]:
    """A first night of the tree, then one whose manifest is this one: the second night and its row."""
    suite = tmp_path / "edits"
    shutil.copytree(SUITE, suite)
    first = lab.night(suite, database=f"{name}.db")
    assert (first.code, [c["verdict"] for c in first.json["comparisons"]]) == (0, ["no_baseline"])
    (suite / "tree" / "kernel.toml").write_text(manifest)
    said = lab.night(suite, *args, database=f"{name}.db")
    (row,) = said.json["comparisons"]
    return said, row


MANIFEST = (SUITE / "tree" / "kernel.toml").read_text()


def test_the_same_kernel_with_twice_the_blocks(lab: Lab, tmp_path: Path) -> None:
    said, row = edited(lab, tmp_path, "shape", MANIFEST.replace("BLOCKS = 1024", "BLOCKS = 2048"))
    assert (row["moved"], row["first_layer"]) == (["shape"], "launch shape")
    assert row["attribution"]["notes"] == []
    assert said.code == (1 if row["verdict"] == "changed" else 0)


def test_the_same_kernel_with_its_second_pass_reversed(lab: Lab, tmp_path: Path) -> None:
    """Another source: the order moved, and it is said to be a new history rather than a regression."""
    manifest = MANIFEST.replace("../_lib/tree.cu", "../_lib/tree_reversed.cu").replace(
        "partials first to last", "partials last to first"
    )
    said, row = edited(lab, tmp_path, "order", manifest)
    assert (row["moved"], row["first_layer"]) == (["order"], "source")
    assert row["attribution"]["notes"] == [
        "new history: source changed (_lib/tree.cu, _lib/tree_reversed.cu)"
    ]
    if row["verdict"] == "changed":
        assert row["gate_reason"] == f"{row['attribution']['notes'][0]}, changed"
    assert said.code == (1 if row["verdict"] == "changed" else 0)


def test_the_same_kernel_without_contraction(lab: Lab, tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text('[profile.default]\ncompiler = "nvrtc"\ntoolkit = ">=13,<14"\nfmad = false\n')
    said, row = edited(lab, tmp_path, "build", MANIFEST, "--profiles-file", profiles)
    assert (row["verdict"], row["moved"], said.code) == ("latent", ["build"], 0)
    assert (row["outputs"]["partials"]["changed"], row["outputs"]["partials"]["of"]) == (73, 1024)
    assert row["attribution"]["notes"] == ["profile redefined: flags -fmad=true → -fmad=false"]


def test_an_edit_is_accepted_where_the_policy_says_so(lab: Lab, tmp_path: Path) -> None:
    suite, policy = tmp_path / "edits", tmp_path / "reprodb.toml"
    shutil.copytree(SUITE, suite)
    policy.write_text('[gate]\nnew_history = "accept"\n')
    source = suite / "_lib" / "tree.cuh"
    nights = []
    for constant in ("0.25f", "0.75f", "0.75f"):
        source.write_text((SUITE / "_lib" / "tree.cuh").read_text().replace("0.25f", constant))
        manifest = (SUITE / "tree" / "kernel.toml").read_text()
        lines = [line for line in manifest.splitlines() if not line.startswith(("reference", "rel_tol"))]
        (suite / "tree" / "kernel.toml").write_text("\n".join(lines))
        said = lab.night(suite, "--policy", policy, database="accept.db")
        (row,) = said.json["comparisons"]
        nights.append((said.code, row["verdict"], row["gated"]))
    assert nights == [(0, "no_baseline", False), (0, "changed", False), (0, "same", False)]
