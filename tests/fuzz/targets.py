"""What is fuzzed: each reader of foreign text, valid texts to begin with, and how it may refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reprodb.errors import ReprodbError, StoreError, UnsupportedError, UsageError
from reprodb.pipes import ForeignValueError
from reprodb.suite.expressions import ExpressionError
from reprodb.suite.tables import Problem
from tests.fuzz import readers, seeds
from tests.fuzz.mutation import Mutator, mutated
from tests.fuzz.structure import values_exchanged

MOST_REFUSED = 0.4  # of the valid texts: with more, fuzzing them would try nothing behind the first check


@dataclass(frozen=True, slots=True)
class Target:
    """A reader: `read` returns, or raises one of `refusals`. Anything else is a finding.

    `weight` is its share of the cases: large for what the machine is entrusted with, small for what is slow.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    weight: int
    spoilt: Mutator = mutated


def unusable(target: Target) -> str | None:
    """Why a target cannot run on this machine: what it needs is not here, or its valid texts are refused."""
    taken, said = 0, ""
    try:
        texts = target.seeds()
        for text in texts:
            try:
                target.read(text)
                taken += 1
            except target.refusals as refusal:
                said = str(refusal)
    except ImportError as error:
        return str(error)
    if taken < (1 - MOST_REFUSED) * len(texts):
        return f"it takes {taken} of {len(texts)} valid texts: {said}"
    return None


def targets() -> tuple[Target, ...]:
    return (
        Target("manifest", seeds.manifests, readers.read_manifest, (Problem,), 24),
        Target("size", seeds.sizes, readers.read_size, (ExpressionError,), 4),
        Target("source includes", seeds.sources, readers.read_sources, (UsageError,), 3),
        Target("cuda source", seeds.cuda_sources, readers.read_cuda, (UsageError,), 2),
        Target("profiles", seeds.profile_files, readers.read_profiles, (UsageError,), 4),
        Target("flags", seeds.flag_lists, readers.read_flags, (UsageError,), 3),
        Target("policy", seeds.policies, readers.read_policy, (UsageError,), 4),
        Target("ledger", seeds.ledgers, readers.read_ledger, (UsageError,), 4),
        Target("database url", seeds.urls, readers.read_url, (UsageError,), 3),
        Target("run reference", seeds.references, readers.read_reference, (UsageError,), 3),
        Target("order tree", seeds.trees, readers.read_tree, (ValueError,), 3),
        Target("atlas", seeds.atlases, readers.read_atlas, (UsageError,), 2),
        Target("worker answer", seeds.answers, readers.read_answer, (ForeignValueError,), 4),
        Target("ptx", seeds.ptx_texts, readers.read_ptx, (UnsupportedError,), 20),
        Target("ptx lowered", seeds.ptx_texts, readers.lower_ptx, (ReprodbError,), 4),
        Target("ptx normalised", seeds.ptx_texts, readers.read_ptx_code, (), 2),
        Target("sass", seeds.sass_texts, readers.read_sass_code, (), 16),
        Target("bundle", seeds.bundles, readers.read_bundle, (StoreError,), 12),
        Target("bundle manifest", seeds.heads, readers.read_head, (StoreError,), 4),
        Target("bundle members", seeds.members, readers.read_members, (StoreError,), 2),
        Target("bundle values", seeds.members, readers.read_members, (StoreError,), 3, values_exchanged),
    )
