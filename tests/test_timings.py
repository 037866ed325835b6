"""`nightly --timings`: stages in order on the clock, and what the workers did."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from reprodb.cli.progress import Silent
from reprodb.cli.timings import Timed
from reprodb.domain import Artifact
from tests.builders import make_build, make_result


class Heard(Silent):
    """Notes what is passed on to it."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def said(self, sentence: str) -> None:
        self.words.append(sentence)

    def stage(self, name: str) -> None:
        self.words.append(name)


def test_stages_are_timed_in_order_and_passed_on() -> None:
    ticks = count()
    heard = Heard()
    timed = Timed(heard, clock=lambda: float(next(ticks)))
    timed.stage("device")
    timed.said("a sentence")
    timed.stage("results")
    artifact = Artifact(make_build())
    timed.built(None, artifact)  # type: ignore[arg-type]
    timed.built(None, replace(artifact, cached=True))  # type: ignore[arg-type]
    timed.finished(replace(make_result(), seconds=2.5))
    assert heard.words == ["device", "a sentence", "results"]
    assert timed.lines() == [
        "start           1.00 s   33 %",
        "device          1.00 s   33 %",
        "results         1.00 s   33 %",
        "in all          3.00 s",
        "1 result: 2.50 s in workers; 1 artifact compiled, 1 reused",
    ]


def test_no_time_at_all_divides_by_nothing() -> None:
    assert Timed(Silent(), clock=lambda: 5.0).lines()[0] == "start           0.00 s"
