"""Every arithmetic instruction of the table against an H200, bit for bit, specials and random operands.

`h200_instructions.json` holds digests of what the GPU gave: 8,192 results an instruction.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reprodb.domain import Arg, ArgKind, Buffer, Role, Stage
from reprodb.executors.model.engine import ModelExecutor, run_stages
from tests.model.instructions import CASES, COUNT, Group, Words, groups, operands, ptx

EVIDENCE: dict[str, Any] = json.loads((Path(__file__).parent / "h200_instructions.json").read_text())
GROUPS = groups()


def digest(*arrays: Words) -> str:
    return sha256(b"".join(a.astype("<u8").tobytes() for a in arrays)).hexdigest()[:16]


def results(executor: ModelExecutor, group: Group, inputs: dict[str, Words]) -> list[Words]:
    """What the model gives for each case of a group."""
    args = tuple(Arg(ArgKind.INPUT, name) for name in "abcd")
    stage = Stage(group.name, (COUNT // 256, 1, 1), (256, 1, 1), (*args, Arg(ArgKind.BUFFER, "out")))
    out = Buffer("out", "uint64", (COUNT * len(group.cases),), Role.RESULT)
    raw = run_stages(ptx((group,)), [stage], [out], inputs, COUNT, executor=executor)["out"][0]
    return list(np.frombuffer(raw, np.uint64).reshape(len(group.cases), COUNT))


def wrong(executor: ModelExecutor, group: Group) -> list[str]:
    """The opcodes of a group whose results are not the GPU's."""
    inputs = operands(group)
    assert digest(*inputs.values()) == EVIDENCE["operands"][group.name], "NumPy draws other operands"
    found = zip(group.cases, results(executor, group, inputs), strict=True)
    return [c.opcode for c, words in found if digest(words) != EVIDENCE["results"][c.opcode + c.tail]]


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
def test_the_h200s_bits(executor: ModelExecutor, group: Group) -> None:
    assert wrong(executor, group) == []


def test_the_evidence_covers_every_case() -> None:
    assert set(EVIDENCE["results"]) == {c.opcode + c.tail for c in CASES}
    assert len(CASES) == 937


FUSED = [g for g in GROUPS if g.cases[0].opcode.startswith("fma.")]


@pytest.mark.parametrize("group", FUSED, ids=lambda g: g.name)
def test_the_same_bits_without_avx_and_without_fma(plain_executor: ModelExecutor, group: Group) -> None:
    assert wrong(plain_executor, group) == []
