"""Take the order fingerprint of a kernel: the ordinary executor on many probing inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reprodb.domain import Case, Fingerprint, Input, Kernel, OrderProbe, OutputSamples
from reprodb.executors.base import Executor
from reprodb.executors.task import Task
from reprodb.ordering import POWERS, PROBED, ROUNDS, Triple, fingerprint_of, misfit, pairs, sample


def probe(executor: Executor, task: Task) -> Fingerprint:
    """The fingerprint of the task's kernel and case, or why there is none.

    A kernel that guarantees no order is asked until two repetitions differ, and about a few pairs at most,
    unless the task asks for every pair. Every probe of one round runs in the same modelled order. On a GPU
    each is an execution of its own, so the round of an arrival-order kernel mixes several orders. Raises
    ExecutionError as the executor does.
    """
    kernel = task.kernel
    wanted = kernel.fingerprint
    problem = misfit(kernel)
    if wanted is None or problem:
        return Fingerprint(reason=problem)
    n = next(i.n for i in task.case.inputs if i.name == wanted.input)
    fixed = kernel.determinism.guaranteed
    rounds = 1 if fixed else ROUNDS

    def answers(case: Case, repetitions: int) -> list[float]:
        samples = executor.execute(task.artifact, kernel, case, repetitions, seed=task.seed)
        output = next(o for o in samples.outputs if o.buffer.name == wanted.output)
        return _answers(output, wanted)

    (ones,) = answers(_case(kernel, wanted, None), 1)
    if ones != n:
        return Fingerprint(
            reason=f"of {n:,} ones {wanted.output} is {ones:g}, so it is not the sum of {wanted.input}"
        )
    found: list[list[Triple]] = [[] for _ in range(rounds)]
    for pair in pairs(n) if fixed or task.every_pair else sample(n):
        for triples, answer in zip(found, answers(_case(kernel, wanted, pair), rounds), strict=True):
            if not (0 <= answer <= n - 2 and answer == int(answer)):
                return Fingerprint(
                    reason=f"elements {pair[0]} and {pair[1]} give {answer:g}: no count of ones"
                )
            triples.append((*pair, n - int(answer)))
        if not (fixed or task.every_pair) and len({triples[-1] for triples in found}) > 1:
            break
    launches = 0 if fixed else 1 + rounds * len(found[0])
    return fingerprint_of(n, tuple(tuple(triples) for triples in found), launches)


def _case(kernel: Kernel, probe: OrderProbe, pair: tuple[int, int] | None) -> Case:
    """The kernel's case on a probing input; its other inputs of floats are ones, whole numbers stay."""

    def input_of(declared: Input) -> Input:
        if declared.dtype not in (*PROBED, "float16"):
            return declared
        if declared.name != probe.input or pair is None:
            return replace(declared, pattern="ones", params=())
        params = (("i", pair[0]), ("j", pair[1]), ("power", POWERS[kernel.accumulator]))
        return replace(declared, pattern="probe", params=params)

    case = kernel.cases[0]
    return replace(case, inputs=tuple(input_of(i) for i in case.inputs))


def _answers(output: OutputSamples, probe: OrderProbe) -> list[float]:
    """The probed element in each repetition."""
    values = [np.frombuffer(p, np.dtype(output.buffer.dtype).newbyteorder("<")) for p in output.patterns]
    return [float(values[index][probe.element]) for index in output.sequence]
