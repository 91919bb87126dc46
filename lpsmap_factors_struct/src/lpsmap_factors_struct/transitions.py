"""Scores of a sequence's transitions in any array library, flattened to rows of additionals."""

from __future__ import annotations

from typing import Any

import array_api_compat

from lpsmap_dynamic import as_scores
from lpsmap_factors_struct.flat_scores import flat_scores


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
        n_states, n_states)``, where all steps share the scores if their axis is missing or 1; or
        those of every step flat; or all scores flat, ``[initial, transitions, final]``.
    initial, final
        Scores of the first and of the last state, which broadcast to ``batch_shape + (n_states,)``;
        None for zeros.
    argument
        Name of the argument that holds the transitions, for messages.

    Returns
    -------
    array
        An array of shape ``batch_shape + (2 * n_states + k * n_states ** 2,)``, where k is 1 if all
        steps share the scores, and otherwise ``length - 1``.
    """
    steps = max(length - 1, 0)
    transitions = as_scores(f"{name}: {argument}", transitions)
    square, shape = (n_states, n_states), tuple(transitions.shape)
    flat_shape = (*batch_shape, 2 * n_states + steps * n_states**2)
    shared_shape = (*batch_shape, 2 * n_states + n_states**2)
    are_steps = shape == (*batch_shape, steps * n_states**2)
    if shape == flat_shape or (
        shape == shared_shape and not (are_steps and argument == "transitions")
    ):
        if initial is not None or final is not None:
            raise ValueError(
                f"{name}: {argument} has the flat shape {shape}, which includes initial and "
                "final scores; expected no others. Leave out initial and final."
            )
        return transitions
    event: tuple[int, ...] = (steps, *square)
    library = array_api_compat.array_namespace(transitions)
    if are_steps:
        transitions = library.reshape(transitions, (*batch_shape, *event))
    elif argument == "additionals" and shape[-2:] != square:
        raise ValueError(
            f"{name}: {argument} has shape {shape}; expected {flat_shape}, or {shared_shape} if "
            "all steps share transitions: initial scores, transitions, final scores, flat; or "
            f"transitions alone, {event} or {square}."
        )
    elif shape[-3:-2] in ((), (1,)):
        event, transitions = square, library.reshape(transitions, shape[:-3] + shape[-2:])
    scores = {"initial": initial, argument: transitions, "final": final}
    events = {"initial": (n_states,), argument: event, "final": (n_states,)}
    return flat_scores(name, batch_shape, scores, events)
