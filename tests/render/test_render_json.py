"""The JSON documents: their schemas, the keys the design fixes, and numbers that JSON cannot hold."""

import json
from dataclasses import replace
from typing import Any

import pytest

from reprodb.claims import claim
from reprodb.domain import Accuracy, Judgement
from reprodb.findings import Diff
from reprodb.policy import parse_policy
from reprodb.render import json as render
from tests import command
from tests.render import samples


def valid(document: dict[str, Any]) -> dict[str, Any]:
    """The document as a reader gets it, checked against its schema of docs/schemas."""
    read: dict[str, Any] = json.loads(render.dumps(document))
    name, version = read["schema"].removeprefix("reprodb.").split("/")
    assert version == "1"
    checked: dict[str, Any] = command.valid(read, name)
    return checked


def test_show_has_the_published_tree() -> None:
    read = valid(render.show(samples.run(), samples.night(), samples.matrix()))
    (row,) = [r for r in read["results"] if r["kernel"] == "sum_squares_tree" and r["profile"] == "default"]
    assert row["first_bits"] == "0x4b25426d"
    assert row["run_hash"] == "0x8189389fe1bc0a65"
    assert row["distinct"] == 1
    assert row["determinism"] == "run_to_run"
    assert row["toolchain"] == "nvrtc 13.5.37"
    assert row["outputs"]["partials"]["shape"] == [1024]
    assert row["outputs"]["partials"]["first_bits"] is None
    assert read["run"]["started_at"] == "2026-03-03T04:30:00Z"
    assert len(read["results"]) == 15
    assert [m["kernel"] for m in read["matrix"]] == sorted(m["kernel"] for m in read["matrix"])


def test_the_order_of_results_does_not_depend_on_the_order_given() -> None:
    night = samples.night()
    assert render.dumps(render.show(samples.run(), night)) == render.dumps(
        render.show(samples.run(), night[::-1])
    )


def test_diff_says_what_moved() -> None:
    read = valid(render.diff(samples.contraction()))
    row = read["comparisons"][0]
    assert (read["baseline"], read["candidate"], read["exit_code"], read["compared"]) == (1, 1, 0, 3)
    assert (row["verdict"], row["moved"], row["first_layer"]) == ("latent", ["build"], "flags")
    assert row["outputs"]["total"]["changed"] == 0
    partials = row["outputs"]["partials"]
    assert {k: partials[k] for k in ("changed", "of", "first", "max_ulp")} == {
        "changed": 73,
        "of": 1024,
        "first": 8,
        "max_ulp": 2,
    }
    assert (row["baseline_profile"], row["candidate_profile"]) == ("default", "no-fmad")
    assert partials["elements"][0]["before"] == "0x461f8aed"


@pytest.mark.parametrize("diff", [samples.quiet(), samples.eventful(), samples.hostile()])
def test_every_sort_of_diff_fits_its_schema(diff: Diff) -> None:
    read = valid(render.diff(diff))
    assert len(read["comparisons"]) == len(diff.comparisons)


def test_the_composite_reference_is_named_baseline() -> None:
    read = valid(render.diff(samples.quiet()))
    assert read["baseline"] == "baseline"
    assert {row["reference_run"] for row in read["comparisons"]} == {1}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_has_not_are_strings(value: float) -> None:
    result = replace(samples.tree(), accuracy=Judgement(Accuracy.OUTSIDE, value, value))
    read = valid(render.show(samples.run(), [result]))
    assert read["results"][0]["max_rel_err"] == str(value)


def test_a_failed_result_has_no_bits() -> None:
    failed = samples.failed().candidate
    assert failed is not None
    row = valid(render.show(samples.run(), [failed]))["results"][0]
    assert (row["status"], row["first_bits"], row["outputs"]) == ("build_failed", None, {})
    assert "partialz" in row["error"]


def test_claims() -> None:
    card = claim(samples.run(), samples.tree(), samples.past())
    read = valid(render.claims([card]))
    assert [p["standing"] for p in read["claims"][0]["promises"]] == ["held", "not promised", "not promised"]


def test_history_and_runs() -> None:
    pairs = [(samples.run(n), samples.tree()) for n in (1, 2)]
    read = valid(render.history("sum_squares_tree", pairs))
    assert [e["run"]["id"] for e in read["entries"]] == [1, 2]
    assert [r["id"] for r in valid(render.runs([run for run, _ in pairs]))["runs"]] == [1, 2]


def test_the_policy_that_a_run_was_judged_by_can_be_read() -> None:
    policy = parse_policy('[gate]\nverdicts = ["latent"]\n[[expect]]\nkernel = "k"\nreason = "r"\n')
    judged = replace(samples.run(), policy=policy.text())
    assert parse_policy(render.run_record(judged)["policy"]) == policy
    assert render.run_record(replace(judged, policy=""))["policy"] is None
