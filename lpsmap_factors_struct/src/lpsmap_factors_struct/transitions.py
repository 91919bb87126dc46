"""Scores of a sequence's transitions, in any array library, as one flat row of additionals."""

from __future__ import annotations

from typing import Any

from lpsmap_factors_struct.scores import as_array, flat_scores

__all__ = ["flat_transitions"]


def flat_transitions(
    name: str,
    batch_shape: tuple[int, ...],
    length: int,
    n_states: int,
    transitions: Any,
    initial: Any = None,
    final: Any = None,
) -> Any:
    """Return ``[initial, transitions, final]`` flattened behind the batch axes.

    Parameters
    ----------
    name
        The factor type, for messages.
    batch_shape, length, n_states
        Shape of the variables: ``batch_shape + (length, n_states)``.
    transitions
        Scores of state j after state i, as an array that broadcasts to ``batch_shape + (length - 1,
        n_states, n_states)``; or all scores already flat.
    initial, final
        Scores of the first and of the last state, which broadcast to ``batch_shape + (n_states,)``;
        None for zeros.

    Returns
    -------
    array
        Of shape ``batch_shape + (2 * n_states + (length - 1) * n_states ** 2,)``.

    Raises
    ------
    TypeError
        If the scores are arrays of different libraries.
    ValueError
        If a shape does not fit.
    """
    steps = max(length - 1, 0)
    transitions = as_array(f"{name}: transitions", transitions)
    flat_shape = (*batch_shape, 2 * n_states + steps * n_states**2)
    if tuple(transitions.shape) == flat_shape:
        if initial is not None or final is not None:
            raise ValueError(
                f"{name}: transitions has the flat shape {flat_shape}, which holds initial and "
                "final scores already; expected no others. Leave out initial and final."
            )
        return transitions
    scores = {"initial": initial, "transitions": transitions, "final": final}
    square = (steps, n_states, n_states)
    events = {"initial": (n_states,), "transitions": square, "final": (n_states,)}
    return flat_scores(name, batch_shape, scores, events)
