"""JUnit XML: one test case a comparison, so that any CI shows what moved; churn passes with output."""

from xml.etree import ElementTree as Tree

from reprodb.domain import Accuracy, Status
from reprodb.findings import Comparison, Diff, Verdict
from reprodb.render.text import count, lines, name, utc, visible
from reprodb.render.words import (
    ACCURACY,
    LANES,
    VERDICTS,
    bits_of,
    headline,
    profiles_of,
    reference_of,
    run_name,
    worst_first,
)

# Without gating, these say that nobody knows; the others passed.
_SKIPPED = frozenset({Verdict.NO_RESULT, Verdict.NOT_COMPARABLE, Verdict.NO_BASELINE})


def diff(value: Diff) -> str:
    """The XML document of a diff. No element holds a clock: the time is when the run started."""
    run = value.candidate
    suite = Tree.Element(
        "testsuite", name=name(f"reprodb {run.suite}"), timestamp=(utc(run.started_at) or "")[:-1]
    )
    _properties(suite, value)
    for canary in value.canaries or run.canaries:
        case = Tree.SubElement(suite, "testcase", classname="canary", name=name(canary.name))
        if canary.ok or not canary.fatal:
            _output(case, [canary.sentence])
        else:
            _problem(case, "error", "canary", canary.sentence, [])
    for comparison in worst_first(value.comparisons):
        _case(suite, comparison)
    found = next((e for e in suite.iter() if e.tag in ("failure", "error")), None)
    if value.exit_code and found is None:
        case = Tree.SubElement(suite, "testcase", classname="reprodb", name="verdict")
        _problem(case, "error", f"exit {value.exit_code}", headline(value), list(value.reasons))
    counts = {
        "tests": len(suite.findall("testcase")),
        "failures": len(list(suite.iter("failure"))),
        "errors": len(list(suite.iter("error"))),
        "skipped": len(list(suite.iter("skipped"))),
    }
    suite.attrib |= {key: str(n) for key, n in counts.items()}
    root = Tree.Element("testsuites", suite.attrib | {"name": "reprodb"})
    del root.attrib["timestamp"]
    root.append(suite)
    Tree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Tree.tostring(root, encoding="unicode") + "\n"


def _properties(suite: Tree.Element, value: Diff) -> None:
    properties = Tree.SubElement(suite, "properties")
    baseline = run_name(value.baseline) if value.baseline else "the reference of each row"
    for key, text in (
        ("verdict", headline(value)),
        ("exit_code", str(value.exit_code)),
        ("lane", LANES[value.candidate.lane][0].lower()),
        ("baseline", baseline),
        ("candidate", run_name(value.candidate)),
    ):
        Tree.SubElement(properties, "property", name=key, value=visible(text))


def _case(suite: Tree.Element, c: Comparison) -> None:
    either, word = c.either, VERDICTS[c.verdict]
    condition = "" if either.condition == "plain" else f", {either.condition}"
    case = Tree.SubElement(
        suite,
        "testcase",
        classname=name(f"{c.kernel}.{c.case}"),
        name=visible(f"{c.kernel}[{profiles_of(c)}, {either.arch}{condition}]"),
    )
    told = _told(c)
    message = c.attribution.sentence if c.attribution and c.attribution.sentence else word.meaning
    if c.gated and c.verdict is Verdict.NO_RESULT:
        _problem(case, "error", c.verdict.value, message, told)
    elif c.gated:
        _problem(case, "failure", c.verdict.value, message, told)
    elif c.accuracy is Accuracy.OUTSIDE:
        _problem(case, "failure", "accuracy_outside", "The answer is outside its tolerance.", told)
    elif c.verdict in _SKIPPED:
        Tree.SubElement(case, "skipped", message=visible(f"{word.label}: {c.note or word.meaning}"))
        _output(case, told)
    else:
        _output(case, told)


def _told(c: Comparison) -> list[str]:
    """What a reader needs beside the message, a line each."""
    told = [
        f"verdict: {VERDICTS[c.verdict].label}",
        f"accuracy: {ACCURACY[c.accuracy][1]}",
        f"bits: {bits_of(c.baseline) or '–'} → {bits_of(c.candidate) or '–'}",
        f"compared with: {reference_of(c) or 'nothing'}",
    ]
    if c.attribution and c.attribution.moved:
        told.append("moved: " + ", ".join(c.attribution.moved))
    if c.attribution and c.attribution.first_layer:
        told.append(f"first layer: {c.attribution.first_layer}")
    told += [f"{d.name}: {d.changed:,} of {d.of:,} elements differ" for d in c.outputs if d.changed]
    if c.churn:
        told.append(
            f"churn: {count(c.churn.baseline.distinct, 'pattern')} before, {c.churn.candidate.distinct} now, "
            f"{c.churn.relation}; {c.churn.mode}; does not gate"
        )
    if c.loss:
        told.append(f"{c.loss.odd} of {c.loss.of} repetitions of {c.loss.output} differ: {c.loss.where}")
        told += c.loss.advice
    told += [text for text in (c.gate_reason, c.note) if text]
    if c.candidate is not None and c.candidate.status is not Status.OK:
        told += lines(c.candidate.error)
    return told


def _problem(case: Tree.Element, tag: str, kind: str, message: str, told: list[str]) -> None:
    element = Tree.SubElement(case, tag, type=kind, message=visible(message))
    element.text = _block(told)


def _output(case: Tree.Element, told: list[str]) -> None:
    Tree.SubElement(case, "system-out").text = _block(told)


def _block(told: list[str]) -> str:
    return "\n".join(visible(line) for line in told)
