"""Gradients of expected costs by the score function."""

from __future__ import annotations

from torch import Tensor

__all__ = ["score_function_loss"]

LEAVE_ONE_OUT = "leave-one-out"


def score_function_loss(
    costs: Tensor, log_probabilities: Tensor, *, baseline: str | Tensor | None = LEAVE_ONE_OUT
) -> Tensor:
    """Return mean costs of samples whose gradient estimates that of the expected cost.

    The gradient of ``sum_y p(y) c(y)`` is estimated without bias by the mean of ``(c(y) - b) d log
    p(y) + d c(y)`` over samples y (Williams 1992). The samples and their log-probabilities come
    from `Layer.sample`.

    Parameters
    ----------
    costs
        ``(n, ...)`` the costs of n samples; gradients also flow to parameters that they depend on.
    log_probabilities
        ``(n, ...)`` the log-probabilities of the samples, with gradients.
    baseline
        The baseline b. ``"leave-one-out"``: the mean cost of the other samples, at least two
        samples (Kool et al. 2019). Or a tensor that broadcasts to the costs: for self-critical
        training, the costs of the best structures (Rennie et al. 2017). None for zero.

    Returns
    -------
    Tensor
        ``(...)`` the mean costs.

    Raises
    ------
    ValueError
        If the shapes differ, if there is no sample, or a single one with the baseline
        ``"leave-one-out"``; or if the baseline is unknown.
    """
    if costs.shape != log_probabilities.shape or not costs.ndim:
        raise ValueError(
            f"score_function_loss: costs has shape {tuple(costs.shape)} and log_probabilities "
            f"{tuple(log_probabilities.shape)}; expected equal shapes, the samples first."
        )
    n, fixed = len(costs), costs.detach()
    if isinstance(baseline, str):
        if baseline != LEAVE_ONE_OUT:
            raise ValueError(
                f"score_function_loss: baseline is {baseline!r}; expected {LEAVE_ONE_OUT!r}, a "
                "tensor, or None."
            )
        if n < 2:
            raise ValueError(
                f"score_function_loss: baseline {LEAVE_ONE_OUT!r} needs at least 2 samples, got "
                f"{n}. Draw more, or pass another baseline."
            )
        baseline = (fixed.sum(0) - fixed) / (n - 1)
    elif not n:
        raise ValueError("score_function_loss: costs has no sample; expected at least one.")
    advantage = fixed if baseline is None else fixed - baseline.detach()
    surrogate = advantage * (log_probabilities - log_probabilities.detach())
    return (costs + surrogate).mean(0)
