"""Components whose factors all bound the number of their variables that are on.

Other packs have starts of core's loop and searches for them.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpsmap_core import kernel, leaf
from lpsmap_core.api import (
    BoolArray,
    Bucket,
    CountBounds,
    FloatArray,
    FloatTable,
    IntArray,
    Links,
    Part,
    Spans,
)

ONE = np.uint64(1)
"""Unsigned 1, to add to a variable's number."""


class Counts(NamedTuple):
    """The bounds on counts of a part's components, for kernels.

    The factors of a component are numbered from 0. Those of the largest bucket come first: they
    seldom share variables with each other, so equations with all factors stay sparse.
    """

    covered: BoolArray
    """For each component, whether all its factors bound counts."""
    first: IntArray
    """(components + 1,) component c has the entries ``first[c]:first[c + 1]`` of the next four."""
    begin: IntArray
    """First link of a factor."""
    end: IntArray
    """End of the links of a factor."""
    low: FloatArray
    """Lower bound on the sum of a factor's variables, in which negated variables count -1."""
    high: FloatArray
    """Upper bound on the same sum."""
    number: npt.NDArray[np.uint32]
    """For each link, in the order of the variables, its factor's number in the component."""
    variable: IntArray
    """For each link, in the order of the factors, its variable."""
    negated: BoolArray
    """For each link, in the order of the factors, whether its slot is negated."""


def counts_of(part: Part) -> Counts:
    """Return the bounds on counts of a part's components, computed once for a part."""
    return part.derived(_find_counts)


def _find_counts(part: Part) -> Counts:
    if part.all_direct:
        return _no_counts(part.n_components)
    spans, covered, n = part.spans, ~part.direct, len(part.spans.component)
    of_bucket = [slice(*spans.first_factor[b : b + 2]) for b in range(len(part.buckets))]
    all_bounds = [count_bounds(bucket) for bucket in part.buckets]
    for bounds, mine in zip(all_bounds, of_bucket, strict=True):
        if bounds is None:
            covered[spans.component[mine]] = False
    if not covered.any():
        return _no_counts(part.n_components)
    of_all, first_link = np.zeros((2, n)), np.empty(n, dtype=np.int64)
    for b, (bounds, mine) in enumerate(zip(all_bounds, of_bucket, strict=True)):
        np.add(part.buckets[b].offsets[:-1], spans.first_link[b], out=first_link[mine])
        if bounds is not None:
            of_all[:, mine] = bounds
    first, (begin, end) = np.empty(part.n_components + 1, np.int64), np.empty((2, n), np.int64)
    number, (low, high) = np.empty(part.n_links, np.uint32), np.empty((2, n))
    of_links = number, part.link_variable, part.negated
    counts = Counts(covered, first, begin, end, low, high, *of_links)
    order = np.argsort([-bucket.n_factors for bucket in part.buckets], kind="stable")
    _fill(order, first_link, of_all, spans, part.links, counts)
    return counts


def count_bounds(bucket: Bucket) -> FloatTable | None:
    """Return the bounds on the number of slots that are on in each factor, a (2, F) array.

    It is None unless these bounds are the only linear constraints of the type.

    Parameters
    ----------
    bucket
        The factors.
    """
    constraints = []
    for d in bucket.declarations:
        of_sums = None if d.n_additionals else d.linear_constraints()
        if not isinstance(of_sums, CountBounds):
            return None
        constraints.append(of_sums)
    first = [0, *itertools.accumulate(d.n_factors for d in bucket.declarations)]
    bounds = np.empty((2, first[-1]))
    for of_sums, (begin, end) in zip(constraints, itertools.pairwise(first), strict=True):
        bounds[0, begin:end], bounds[1, begin:end] = of_sums.least, of_sums.most
    return bounds.take(np.array(first)[bucket.declaration] + bucket.row, axis=1)


@functools.lru_cache(maxsize=8)
def _no_counts(n_components: int) -> Counts:
    """Return the counts of a part without covered components, which all these parts share."""
    integers, floats = np.empty(0, np.int64), np.empty(0)
    by_link = np.empty(0, np.uint32), integers, np.empty(0, np.bool_)
    none = np.zeros(n_components, np.bool_)
    return Counts(none, integers, integers, integers, floats, floats, *by_link)


@kernel
def _fill(
    bucket_order: IntArray,
    first_link: IntArray,
    bounds: FloatTable,
    spans: Spans,
    links: Links,
    counts: Counts,
) -> None:
    """Fill the arrays of `Counts`; `bounds` are in the order of the factors."""
    first, n_links, i = counts.first, len(counts.variable), 0
    number = np.empty(n_links, dtype=np.uint32)  # in the order of the factors
    for c in range(len(counts.covered)):
        first[c] = i
        for b in bucket_order:
            for row in range(spans.first_row[c, b], spans.first_row[c + 1, b]):
                f, n_negated = spans.first_factor[b] + row, 0
                begin = first_link[f]
                end = first_link[f + 1] if f + 1 < len(first_link) else n_links
                for link in range(begin, end):
                    number[link] = i - first[c]
                    n_negated += counts.negated[link]
                counts.begin[i], counts.end[i] = begin, end
                counts.low[i] = max(bounds[0, f], 0.0) - n_negated
                counts.high[i] = min(bounds[1, f], np.float64(end - begin)) - n_negated
                i += 1
    first[-1] = i
    for e in range(n_links):
        counts.number[e] = number[links.order[e]]


@leaf
def write_point(
    first: np.uint64,
    x: FloatArray,
    y: FloatArray,
    links: Links,
    number: npt.NDArray[np.uint32],
    u: FloatArray,
    duals: FloatArray,
) -> None:
    """Write the means and duals of a `Start` at the multipliers of a component's sums.

    A link of variable v and factor k has the dual ``delta_v y_k``, with the sign of its slot.

    Parameters
    ----------
    first
        The first variable of the component.
    x, y
        Its variables, which are clipped to [0, 1], and the multipliers of its factors.
    links, number
        As in `Part` and `Counts`.
    u, duals
        The means and duals of all variables, as in `WarmStart`.
    """
    for i in range(np.uint64(len(x))):
        v = first + i
        delta = links.root_degree[v]
        u[v] = min(1.0, max(0.0, x[i])) / delta
        for e in range(links.offsets[v], links.offsets[v + ONE]):
            dual = delta * y[number[e]]
            duals[e] = -dual if links.negated[e] else dual
