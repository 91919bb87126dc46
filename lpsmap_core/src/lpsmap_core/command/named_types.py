"""Factor types that are named on the command line, and what is wrong with a name."""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Sequence

import click

from lpsmap_core.plugins.disabled_plugins import normalised
from lpsmap_core.plugins.hookspecs import PROJECT
from lpsmap_core.plugins.registry import (
    Contributions,
    DuplicateNameError,
    Registration,
    installed,
)

__all__ = ["chosen_types", "complete_types", "misspelt_groups"]

TYPO_SIMILARITY = 0.6
"""Similarity above which the name of a group counts as a misspelling; 1 is equality."""


def complete_types(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    """Return the names of installed factor types that begin with what was typed."""
    return [name for name in installed().factors if name.startswith(typed)]


def chosen_types(names: Sequence[str]) -> list[Registration]:
    """Return the factor types for `names` of types or distributions.

    Raises
    ------
    click.ClickException
        If there is none, or two plugins register one of them. The message suggests similar names,
        or says what a distribution of that name lacks.
    """
    factors = installed().factors
    try:
        return [r for name in names for r in _registrations_of(factors, name)]
    except DuplicateNameError as error:
        raise click.ClickException(str(error)) from error


def _registrations_of(factors: Contributions, name: str) -> list[Registration]:
    """Return the factor type called `name`, or all types of the distribution called `name`."""
    if name in factors:
        return [factors[name]]
    plain = normalised(name)
    for contested, claims in factors.conflicts.items():
        if plain in {normalised(claim.plugin.distribution) for claim in claims}:
            raise DuplicateNameError(factors.conflict_message(contested))
    pack = [r for r in factors.values() if normalised(r.plugin.distribution) == plain]
    if pack:
        return pack
    others = (*factors, *(r.plugin.distribution for r in factors.values()))
    by_plain = {normalised(other): other for other in others}
    near = [by_plain[x] for x in difflib.get_close_matches(plain, by_plain, 3)]
    advice = f" Did you mean {' or '.join(near)}?" if near else ""
    script = " For a class of a script, call lpsmap_core.testing.check_factor(instance)."
    raise click.BadParameter(
        f"{name!r} {_missing_reason(name)}{advice} `lpsmap factors` lists them."
        f"{script if ':' in name else ''}"
    )


def _missing_reason(name: str) -> str:
    """Return why there are no factor types for a name, or what its distribution has instead."""
    try:
        distribution = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "is neither an installed factor type, nor a distribution that has one."
    groups = {entry_point.group for entry_point in distribution.entry_points}
    if PROJECT in groups:
        return "is installed, but has no factor types; `lpsmap plugins` lists what it has."
    typos = difflib.get_close_matches(PROJECT, groups, 1, cutoff=0.5)
    has = f"; its group {typos[0]!r} is ignored. Rename the group" if typos else ""
    return f"is installed, but has no entry point in the group {PROJECT!r}{has}."


def misspelt_groups() -> list[tuple[str, str]]:
    """Return distributions with a group of entry points that resembles that of plugins."""
    groups = importlib.metadata.entry_points().groups - {PROJECT}
    return sorted(
        {
            (entry_point.dist.metadata["Name"] if entry_point.dist else "unknown", typo)
            for typo in difflib.get_close_matches(PROJECT, groups, 10, TYPO_SIMILARITY)
            for entry_point in importlib.metadata.entry_points(group=typo)
        }
    )
