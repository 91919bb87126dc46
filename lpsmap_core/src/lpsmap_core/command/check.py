"""The command ``lpsmap check``: installed factor types on their own examples."""

from __future__ import annotations

import difflib
import importlib.metadata
import re
from collections.abc import Sequence
from typing import NamedTuple

import click

from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins.blame import error_with_origin
from lpsmap_core.plugins.hookspecs import PROJECT
from lpsmap_core.plugins.registry import DuplicateNameError, Registration, Registry
from lpsmap_core.solution.tables import text_table
from lpsmap_core.testing.run import Result, run_checks

__all__ = ["check_registered", "misspelt_groups", "registrations_of"]

SLIP = 0.6
"""From how alike on the name of a group is taken for a slip of the pen; 1 is the same."""


class Line(NamedTuple):
    """What came of one example: its results, or why there are none."""

    registration: Registration
    example: str
    results: Sequence[Result]
    error: str | None = None

    @property
    def failed(self) -> list[Result]:
        """Results that are not as they should be."""
        return [result for result in self.results if not result.ok]

    @property
    def ok(self) -> bool:
        """Whether everything is as it should be."""
        return self.error is None and not self.failed


def registrations_of(registry: Registry, name: str) -> list[Registration]:
    """Return the factor types of a name, or of a distribution of that name.

    Raises
    ------
    DuplicateNameError
        If another plugin claims the name, or one of the distribution's.
    click.BadParameter
        If there is neither; the message suggests names that are near, or says what a distribution
        of that name lacks.
    """
    if name in registry.factors:
        return [registry.factors[name]]
    packs: dict[str, list[Registration]] = {}
    for registration in registry.factors.values():
        packs.setdefault(registration.plugin.distribution, []).append(registration)
    for contested, claims in registry.factors.contested.items():
        if _plain(name) in {_plain(claim.plugin.distribution) for claim in claims}:
            raise DuplicateNameError(registry.factors.quarrel(contested))
    for pack, registrations in packs.items():
        if _plain(pack) == _plain(name):
            return registrations
    known = {*registry.factors, *packs}
    by_plain = {_plain(other): other for other in known}
    near = [by_plain[x] for x in difflib.get_close_matches(_plain(name), by_plain, 3)]
    advice = f"Did you mean {' or '.join(near)}? " if near else ""
    raise click.BadParameter(
        f"{name!r} {_without_factors(name)} {advice}`lpsmap factors` lists them."
    )


def _without_factors(name: str) -> str:
    """Return why nothing of a name is found, or what its distribution has instead."""
    try:
        distribution = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "is no installed factor type, and no distribution that brings one."
    groups = {entry_point.group for entry_point in distribution.entry_points}
    if PROJECT in groups:
        return "is installed, but offers no factor types; `lpsmap plugins` lists what it offers."
    slips = difflib.get_close_matches(PROJECT, groups, 1, cutoff=0.5)
    has = f"; its group {slips[0]!r} is not looked at. Rename it" if slips else ""
    return f"is installed, but has no entry point in the group {PROJECT!r}{has}."


def misspelt_groups() -> list[tuple[str, str]]:
    """Return installed distributions with a group of entry points that is nearly the plugins'."""
    groups = importlib.metadata.entry_points().groups - {PROJECT}
    return sorted(
        {
            (entry_point.dist.metadata["Name"] if entry_point.dist else "unknown", slip)
            for slip in difflib.get_close_matches(PROJECT, groups, 10, SLIP)
            for entry_point in importlib.metadata.entry_points(group=slip)
        }
    )


def check_registered(registrations: Sequence[Registration], seed: int, draws: int) -> bool:
    """Run the kit on the examples of factor types, tell what came of it; return if all is well."""
    lines = [line for registration in registrations for line in _lines(registration, seed, draws)]
    click.echo(text_table([_cells(line) for line in lines], ["PASSED", "EXPECTED", "FAILED"]))
    for line in lines:
        for result in line.failed:
            click.echo(f"\n{line.example}\n{result.check}\n{result.message}")
        if line.error is not None:
            click.echo(f"\n{line.registration.name}\n{line.error}")
    reasons = {
        (line.registration.name, result.check): result.expected
        for line in lines
        for result in line.results
        if result.ok and result.expected is not None
    }
    for (name, check), reason in reasons.items():
        click.echo(f"\nExpected: {name} fails {check}: {reason}.")
    return all(line.ok for line in lines)


def _lines(registration: Registration, seed: int, draws: int) -> list[Line]:
    """Return what came of every example of a type."""
    try:
        examples = list(registration.value.examples())
        wrong = _wrong(registration, examples)
        if wrong is None:
            return [_checked(registration, factor, seed, draws) for factor in examples]
    except Exception as error:
        wrong = error_with_origin(error)
    return [Line(registration, "", [], f"examples: {wrong}")]


def _wrong(registration: Registration, examples: Sequence[object]) -> str | None:
    """Return what is wrong with the examples that a type offers."""
    if not examples:
        return "got none; expected a class method that returns small declarations"
    for factor in examples:
        if not isinstance(factor, registration.value):
            return f"got {factor!r}; expected instances of {registration.name}"
    return None


def _checked(registration: Registration, factor: Factor, seed: int, draws: int) -> Line:
    return Line(registration, repr(factor), list(run_checks(factor, seed=seed, draws=draws)))


def _cells(line: Line) -> dict[str, str]:
    expected = sum(result.ok and result.expected is not None for result in line.results)
    return {
        "FACTOR": line.registration.name,
        "EXAMPLE": line.example or "none",
        "PASSED": str(len(line.results) - len(line.failed) - expected),
        "EXPECTED": str(expected) if expected else "",
        "FAILED": str(len(line.failed) + (line.error is not None)) if not line.ok else "",
    }


def _plain(name: str) -> str:
    """Return a distribution's name as the package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
