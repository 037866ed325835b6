"""One model executor for all tests of the model, so that machine code is compiled once a session."""

from __future__ import annotations

import pytest

from reprodb.executors.model.engine import ModelExecutor
from reprodb.executors.model.machine import Host


@pytest.fixture(scope="session")
def executor() -> ModelExecutor:
    return ModelExecutor()


@pytest.fixture(scope="session")
def plain_executor() -> ModelExecutor:
    """An executor for a CPU without AVX and without fused multiply-add."""
    return ModelExecutor(host=Host("x86-64-v2", "", fma=False))
