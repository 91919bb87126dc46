"""Samples of whole graphs."""

from __future__ import annotations

from typing import Any, NamedTuple


class GraphSamples(NamedTuple):
    """Independent assignments of a graph, drawn from its Gibbs distribution.

    Of components without an assignment, values and additionals are zeros, and log-probabilities
    NaN. Of components with a score that is NaN or +inf, all are NaN.
    """

    values: Any
    """``(n, n_variables)`` zeros and ones; zeros for variables in no factor. ``values[:, u.index]``
    are those of the variables `u`."""
    additionals: list[Any]
    """The additionals of all declarations, ``(n, ...)`` in the shapes of their scores."""
    log_probabilities: Any
    """``(n, n_components)`` log-probabilities of the assignments of components."""
