"""A suite's default selection: what it leaves out is neither run nor missed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reprodb.findings import Verdict
from tests.builders import make_result
from tests.nights import Nights, verdicts


def test_a_kernel_that_the_night_leaves_out_is_not_missing_and_one_that_is_gone_is(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    quick = make_result()
    slow = replace(quick, kernel=replace(quick.kernel, name="slow"))
    nights.night(quick, slow)
    both = (quick.kernel, slow.kernel)
    assert verdicts(nights.night(quick, kernels=both)) == {"sum_squares_tree": Verdict.SAME}
    gone = nights.night(quick, kernels=(quick.kernel,))
    assert verdicts(gone) == {"sum_squares_tree": Verdict.SAME, "slow": Verdict.MISSING}
    assert gone.exit_code == 1
