"""Scores of a sequence's transitions in any array library, flattened to rows of additionals."""

from __future__ import annotations

from typing import Any

import array_api_compat

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
    argument: str = "transitions",
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
        n_states, n_states)``; or the same flat; or all scores flat, ``[initial, transitions,
        final]``.
    initial, final
        Scores of the first and of the last state, which broadcast to ``batch_shape + (n_states,)``;
        None for zeros.
    argument
        Name of the argument that holds the transitions, for messages.

    Returns
    -------
    array
        An array of shape ``batch_shape + (2 * n_states + (length - 1) * n_states ** 2,)``.

    Raises
    ------
    TypeError
        If the scores are arrays of different libraries.
    ValueError
        If a shape does not fit.
    """
    steps = max(length - 1, 0)
    transitions = as_array(f"{name}: {argument}", transitions)
    square, shape = (steps, n_states, n_states), tuple(transitions.shape)
    flat_shape = (*batch_shape, 2 * n_states + steps * n_states**2)
    if shape == flat_shape:
        if initial is not None or final is not None:
            raise ValueError(
                f"{name}: {argument} has the flat shape {flat_shape}, which includes initial and "
                "final scores; expected no others. Leave out initial and final."
            )
        return transitions
    if shape == (*batch_shape, steps * n_states**2):
        library = array_api_compat.array_namespace(transitions)
        transitions = library.reshape(transitions, (*batch_shape, *square))
    elif argument == "additionals" and shape[-2:] != (n_states, n_states):
        raise ValueError(
            f"{name}: {argument} has shape {shape}; expected {flat_shape}: initial scores, "
            f"transitions, final scores, flat; or transitions alone, {square} or {square[1:]}."
        )
    scores = {"initial": initial, argument: transitions, "final": final}
    events = {"initial": (n_states,), argument: square, "final": (n_states,)}
    return flat_scores(name, batch_shape, scores, events)
