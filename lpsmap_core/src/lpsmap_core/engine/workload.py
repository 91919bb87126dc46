"""What a solve by core's own engine takes: numbers in memory, and work that is worth a thread."""

from __future__ import annotations

from lpsmap_core.engine.anderson import MAX_ACCELERATED_LINKS, MAX_MOVES
from lpsmap_core.engine.polish import MAX_POLISHED_LINKS
from lpsmap_core.engine.state import ONE_PASS_CHEAPER
from lpsmap_core.layout.layout import Part
from lpsmap_jit.threads import COUPLED_WORK

__all__ = ["numbers_of", "relative_work"]

PER_LINK, PER_LINK_POLISHED = 4, 6
PER_VARIABLE, PER_VARIABLE_POLISHED = 5, 6
PER_ADDITIONAL, PER_ADDITIONAL_POLISHED = 3, 3
PER_FACTOR = 1
PER_LINK_ACCELERATED = 2 * MAX_MOVES + 3
"""Numbers that a solve takes beside the layout: always, additionally in a polished graph, and per
thread for the largest component after many iterations. The test for contradictions, which only runs
for slow components, temporarily takes about ten more per link. A test compares these numbers with
the memory of solves."""


def numbers_of(part: Part, n_variables: int, threads: int) -> int:
    """Return how many numbers a solve keeps in memory.

    Parameters
    ----------
    part, n_variables
        The part of a graph, and the graph's number of variables.
    threads
        The number of threads.
    """
    accelerated = part.sizes[~part.direct & (part.sizes <= MAX_ACCELERATED_LINKS)].max(initial=0)
    polished = bool((~part.direct & (part.sizes <= MAX_POLISHED_LINKS)).any())
    numbers = PER_VARIABLE * n_variables
    numbers += (PER_LINK + PER_LINK_POLISHED * polished) * part.n_links
    numbers += PER_VARIABLE_POLISHED * polished * part.n_variables
    numbers += (PER_ADDITIONAL + PER_ADDITIONAL_POLISHED * polished) * part.n_additionals
    numbers += PER_FACTOR * sum(bucket.n_factors for bucket in part.buckets)
    return numbers + PER_LINK_ACCELERATED * threads * int(accelerated)


def relative_work(part: Part, one_pass: bool) -> int:
    """Return how many links of a part are as much work as one of a factor that iterates.

    Parameters
    ----------
    part
        The part.
    one_pass
        Whether closed forms solve all factors in one pass.
    """
    if one_pass and part.all_direct:
        return ONE_PASS_CHEAPER
    return 1 if part.all_direct else COUPLED_WORK
