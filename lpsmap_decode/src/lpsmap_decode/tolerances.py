"""Tolerances that several modules of the exact search share."""

__all__ = ["BOUND_ROUNDING", "INTEGRAL", "MAX_SUM"]

BOUND_ROUNDING = 1e-13
"""Safety margin for rounding errors of bounds, relative to the sum of the absolute scores."""

INTEGRAL = 1e-6
"""Distance from 0 and 1 within which a marginal counts as integral."""

MAX_SUM = 1e9
"""Maximum sum of absolute scores for message passing: beyond it, messages lose too many digits."""
