"""Runs, results and diffs as JSON-ready data under the schemas of docs/json.md."""

import json
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from reprodb.digest import hex64
from reprodb.domain import CanaryOutcome, Environment, Fingerprint, Output, Result, Role, Run
from reprodb.findings import (
    Attribution,
    BatchEffect,
    Churn,
    Comparison,
    Diff,
    ElementDelta,
    Layer,
    Loss,
    MatrixRow,
    OutputDelta,
    Support,
)
from reprodb.render.text import utc
from reprodb.render.words import sort_results

if TYPE_CHECKING:
    from reprodb.claims import Claim
    from reprodb.dossier import Dossier

# Differing indices listed a buffer; `changed` has the full count.
INDEX_LIMIT = 1024


def dumps(document: dict[str, Any]) -> str:
    """The text of a document, ready to print: keys in schema order, a field or a record of a list a line.

    One record a line is found with grep and compared with diff; deep indentation would triple the time.
    """
    return _fields(document, "") + "\n"


def _fields(record: dict[str, Any], margin: str) -> str:
    inner = margin + "  "
    fields = [f"{inner}{_encode(key)}: {_field(value, inner)}" for key, value in record.items()]
    return "{\n" + ",\n".join(fields) + f"\n{margin}}}" if fields else "{}"


def _field(value: Any, margin: str) -> str:
    if isinstance(value, dict) and len(margin) == len("  "):
        return _fields(value, margin)
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        lines = [f"{margin}  {_encode(each)}" for each in value]
        return "[\n" + ",\n".join(lines) + f"\n{margin}]"
    return _encode(value)


_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False).encode


def number(value: float | int | str | None) -> float | int | str | None:
    """Finite numbers as they are; `nan`, `inf` and `-inf` as strings, which JSON numbers cannot say."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def show(run: Run, results: Iterable[Result], matrix: Iterable[MatrixRow] = ()) -> dict[str, Any]:
    """`reprodb.show/1`: a run and its results, by kernel, case, profile and architecture."""
    return {
        "schema": "reprodb.show/1",
        "run": run_record(run),
        "results": [result_record(r) for r in sort_results(results)],
        "matrix": [_matrix(row) for row in matrix],
    }


def diff(value: Diff) -> dict[str, Any]:
    """`reprodb.diff/1`: every comparison in the diff's own order. Baseline `baseline` is the composite."""
    return {
        "schema": "reprodb.diff/1",
        "baseline": value.baseline.id if value.baseline else "baseline",
        "candidate": value.candidate.id,
        "lane": value.candidate.lane.value,
        "exit_code": value.exit_code,
        "headline": value.headline,
        "compared": value.compared,
        "comparisons": [_comparison(c) for c in value.comparisons],
        "matrix": [_matrix(row) for row in value.matrix],
        "canaries": [_canary(c) for c in value.canaries],
        "reasons": list(value.reasons),
        "notes": list(value.notes),
    }


def dossier(value: "Dossier") -> dict[str, Any]:
    """`reprodb.dossier/1`: the pairs of an upgrade, each with its toolchains and its comparisons."""
    return {
        "schema": "reprodb.dossier/1",
        "baseline": value.baseline.id,
        "candidate": value.candidate.id,
        "lane": value.candidate.lane.value,
        "exit_code": value.exit_code,
        "headline": value.headline,
        "upgrades": list(value.steps),
        "pairs": [
            {
                "baseline_profile": leg.profiles[0],
                "candidate_profile": leg.profiles[1],
                "baseline_toolchain": leg.toolchains[0].label if leg.toolchains[0] else None,
                "candidate_toolchain": leg.toolchains[1].label if leg.toolchains[1] else None,
                "parts": [{"name": n, "before": a, "after": b} for n, a, b in leg.parts],
                "options": {"gone": list(leg.options[0]), "new": list(leg.options[1])},
                "exit_code": leg.diff.exit_code,
                "comparisons": [_comparison(c) for c in leg.diff.comparisons],
            }
            for leg in value.legs
        ],
        "reasons": list(value.reasons),
        "notes": list(value.notes),
    }


def history(kernel: str, entries: Iterable[tuple[Run, Result]]) -> dict[str, Any]:
    """`reprodb.history/1`: the results of one kernel over the runs, in the order given."""
    rows = [{"run": run_record(run), "result": result_record(result)} for run, result in entries]
    return {"schema": "reprodb.history/1", "kernel": kernel, "entries": rows}


def runs(values: Sequence[Run]) -> dict[str, Any]:
    """`reprodb.runs/1`: the runs of a database, in the order given."""
    return {"schema": "reprodb.runs/1", "runs": [run_record(run) for run in values]}


def claims(cards: "Iterable[Claim]") -> dict[str, Any]:
    """`reprodb.claim/1`: the claim cards of the results that were asked for, in the order given."""
    return {"schema": "reprodb.claim/1", "claims": [_claim(card) for card in cards]}


def _claim(card: "Claim") -> dict[str, Any]:
    return {
        "run": run_record(card.run),
        "result": result_record(card.result),
        "sentence": card.sentence,
        "pins": [{"name": p.name, "value": p.value, "more": list(p.more)} for p in card.pins],
        "promises": [
            {"scope": p.scope, "standing": p.standing.value, "evidence": p.evidence} for p in card.promises
        ],
        "not_covered": list(card.not_covered),
    }


def run_record(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "uid": run.uid,
        "label": run.label,
        "started_at": utc(run.started_at),
        "finished_at": utc(run.finished_at),
        "complete": run.complete,
        "kind": run.kind,
        "exit_code": run.exit_code,
        "lane": run.lane.value,
        "suite": run.suite,
        "seed": run.seed,
        "policy": run.policy or None,
        "environment": _environment(run.environment),
        "canaries": [_canary(c) for c in run.canaries],
        "skipped": [{"profile": s.profile, "reason": s.reason, "remedy": s.remedy} for s in run.skipped],
        "left_out": [{"kernel": k.kernel, "reason": k.reason, "remedy": k.remedy} for k in run.left_out],
        "not_stressed": [{"condition": name, "reason": reason} for name, reason in run.not_stressed],
    }


def _environment(env: Environment) -> dict[str, Any]:
    device = env.device
    return {
        "host": env.host,
        "os": env.os,
        "python": env.python,
        "cpu": env.cpu,
        "reprodb": env.reprodb,
        "device": None
        if device is None
        else {
            "name": device.name,
            "uuid": device.uuid,
            "compute_capability": device.compute_capability,
            "sm_count": device.sm_count,
            "memory": device.memory,
            "index": device.index,
        },
        "driver": env.driver,
        "cuda_driver": env.cuda_driver,
        "cuda_runtime": env.cuda_runtime,
        "libraries": dict(env.libraries),
        "variables": dict(env.variables),
        "dropped": list(env.dropped),
    }


def row_record(result: Result) -> dict[str, Any]:
    """What a result of another run is matched by, as Result.row has it."""
    return {
        "kernel": result.kernel.name,
        "case": result.case.name,
        "profile": result.profile,
        "arch": result.arch,
        "condition": result.condition,
    }


def result_record(result: Result) -> dict[str, Any]:
    single = result.results[0] if len(result.results) == 1 and result.results[0].elements == 1 else None
    build = result.build
    return {
        "id": result.id,
        **row_record(result),
        "lane": result.lane.value,
        "determinism": result.kernel.determinism.value,
        "status": result.status.value,
        "repetitions": result.repetitions,
        "distinct": single.distinct if single else None,
        "first_bits": single.first_bits if single else None,
        "run_hash": hex64(single.run_hash) if single else None,
        "outputs": {o.name: _output(o) for o in result.outputs if o.role is not Role.SCRATCH},
        "accuracy": result.accuracy.verdict.value,
        "max_rel_err": number(result.accuracy.max_rel_err),
        "reference": number(result.accuracy.reference),
        "accuracy_note": result.accuracy.note,
        "toolchain": build.toolchain.label if build else None,
        "options": list(build.options) if build else [],
        "artifact": build.key if build else None,
        "code": None
        if build is None or build.code is None
        else {"ptx": build.code.ptx, "sass": build.code.sass, "constants": build.code.constants},
        "origin": result.origin.value if result.origin else None,
        "input_digest": result.input_digest,
        "fingerprint": fingerprint_record(result.fingerprint) if result.fingerprint else None,
        "error": result.error,
        "notes": list(result.notes),
        "batches": list(result.batches),
        "seconds": number(result.seconds),
    }


def fingerprint_record(found: Fingerprint) -> dict[str, Any]:
    return {
        "digest": found.digest,
        "n": found.n,
        "pairs": len(found.pairs),
        "repetitions": len(found.rounds),
        "distinct": found.distinct,
        "launches": found.launches or None,
        "tree": found.tree or None,
        "reason": found.reason,
    }


def _output(output: Output) -> dict[str, Any]:
    return {
        "role": output.role.value,
        "dtype": output.dtype,
        "shape": list(output.shape),
        "determinism": output.determinism.value,
        "distinct": output.distinct,
        "first_bits": output.first_bits,
        "run_hash": hex64(output.run_hash),
        "sha256": output.sha256 if output.patterns else None,
        "patterns": [{"sha256": p.sha256, "count": p.count, "first": p.first} for p in output.patterns],
    }


def _comparison(c: Comparison) -> dict[str, Any]:
    either, told = c.either, c.attribution
    return {
        "kernel": c.kernel,
        "case": c.case,
        "baseline_profile": c.baseline.profile if c.baseline else None,
        "candidate_profile": c.candidate.profile if c.candidate else None,
        "arch": either.arch,
        "condition": either.condition,
        "determinism": either.kernel.determinism.value,
        "verdict": c.verdict.value,
        "accuracy": c.accuracy.value,
        "moved": [m.value for m in told.moved] if told else [],
        "first_layer": told.first_layer if told else None,
        "gated": c.gated,
        "may_gate": c.may_gate,
        "gate_reason": c.gate_reason,
        "reference_run": c.reference_run,
        "reference_kind": c.reference_kind,
        "outputs": {delta.name: _delta(delta) for delta in c.outputs},
        "sides": {"baseline": _side(c.baseline), "candidate": _side(c.candidate)},
        "attribution": _attribution(told) if told else None,
        "churn": _churn(c.churn) if c.churn else None,
        "loss": _loss(c.loss) if c.loss else None,
        "batch": [_batch(effect) for effect in c.batch],
        "note": c.note,
    }


def _side(result: Result | None) -> dict[str, Any] | None:
    """What a reader needs of one side without a second command."""
    if result is None:
        return None
    whole = result_record(result)
    keys = ("id", "profile", "arch", "lane", "status", "repetitions", "distinct", "first_bits", "run_hash",
            "accuracy", "max_rel_err", "toolchain", "artifact", "error")  # fmt: skip
    return {key: whole[key] for key in keys}


def _delta(d: OutputDelta) -> dict[str, Any]:
    return {
        "role": d.role.value,
        "dtype": d.dtype,
        "shape": list(d.shape),
        "changed": d.changed,
        "of": d.of,
        "first": d.first,
        "max_ulp": d.max_ulp,
        "max_rel": number(d.max_rel),
        "max_abs": number(d.max_abs),
        "note": d.note,
        "indices": list(d.moved[:INDEX_LIMIT]),
        "elements": [_element(e) for e in d.elements],
    }


def _element(e: ElementDelta) -> dict[str, Any]:
    return {
        "index": e.index,
        "field": e.field,
        "before": e.before,
        "after": e.after,
        "before_value": number(e.before_value),
        "after_value": number(e.after_value),
        "ulp": e.ulp,
    }


def _layer(layer: Layer) -> dict[str, Any]:
    return {"name": layer.name, "state": layer.state.value, "detail": layer.detail}


def _attribution(a: Attribution) -> dict[str, Any]:
    return {
        "sentence": a.sentence,
        "causes": [_layer(layer) for layer in a.causes],
        "effects": [_layer(layer) for layer in a.effects],
        "alarms": [alarm.value for alarm in a.alarms],
        "notes": list(a.notes),
        "new_history": a.new_history,
    }


def _support(s: Support) -> dict[str, Any]:
    return {
        "distinct": s.distinct,
        "repetitions": s.repetitions,
        "patterns": [{"bits": bits, "count": n, "ulp": ulp} for bits, n, ulp in s.patterns],
    }


def _churn(c: Churn) -> dict[str, Any]:
    return {
        "relation": c.relation,
        "baseline": _support(c.baseline),
        "candidate": _support(c.candidate),
        "common": c.common,
        "spread_ulp": c.spread_ulp,
        "mode": c.mode,
        "note": c.note,
    }


def _batch(effect: BatchEffect) -> dict[str, Any]:
    return {
        "output": effect.output,
        "moved": [effect.moved.value],
        "against": effect.against,
        "batch": effect.batch,
        "probe": effect.probe,
        "probes": effect.probes,
        "of": effect.of,
        "sizes": list(effect.sizes),
        "odd": effect.odd,
        "compositions": effect.compositions,
        "promised": effect.promised,
    }


def _loss(value: Loss) -> dict[str, Any]:
    return {
        "output": value.output,
        "distinct": value.distinct,
        "odd": value.odd,
        "of": value.of,
        "where": value.where,
        "advice": list(value.advice),
    }


def _matrix(row: MatrixRow) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "case": row.case,
        "guaranteed": row.guaranteed,
        "groups": [
            {
                "profiles": list(g.profiles),
                "bits": g.bits,
                "run_hash": g.run_hash,
                "witness": g.witness,
                "distinct": g.distinct,
                "reference": g.reference,
            }
            for g in row.groups
        ],
        "code_groups": [list(group) for group in row.code_groups],
        "inert": [list(group) for group in row.inert],
        "no_result": [{"profile": profile, "status": status} for profile, status in row.no_result],
    }


def _canary(c: CanaryOutcome) -> dict[str, Any]:
    return {"name": c.name, "ok": c.ok, "fatal": c.fatal, "sentence": c.sentence}
