"""Selection of the learning rate on held-out data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.runs import Job, Row

__all__ = ["choose_rate"]

MAX_EXPANSIONS = 3
"""Maximum number of expansions of a grid, for losses that diverge only later."""


def choose_rate(job: Job, trial: Callable[[float], Row], grid: Sequence[float]) -> float:
    """Return the rate of the trial with the best held-out measure.

    The grid grows by a factor of 2 while the best rate is at one of its ends.

    Parameters
    ----------
    job
        Runs the trials, which are separate rows.
    trial
        The row that trains with a given rate; the result's "dev" is compared.
    grid
        Rates in increasing order.
    """
    rates = list(grid)
    found = {rate: float(job.result_of(trial(rate))["dev"]) for rate in rates}
    for _ in range(MAX_EXPANSIONS):
        best = max(rates, key=found.__getitem__)
        if best not in (rates[0], rates[-1]):
            break
        further = best / 2 if best == rates[0] else best * 2
        rates = sorted([*rates, further])
        found[further] = float(job.result_of(trial(further))["dev"])
    return max(rates, key=found.__getitem__)
