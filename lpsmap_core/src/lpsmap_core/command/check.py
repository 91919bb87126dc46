"""The command ``lpsmap check``: installed factor types on their own examples."""

from __future__ import annotations

import difflib
import importlib.metadata
import re
from collections.abc import Sequence
from typing import NamedTuple

import click

from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins.error_origin import error_with_origin
from lpsmap_core.plugins.hookspecs import PROJECT
from lpsmap_core.plugins.registry import DuplicateNameError, Registration, Registry
from lpsmap_core.solution.table_rendering import text_table
from lpsmap_core.testing.run import Result, run_checks

__all__ = ["check_registered", "misspelt_groups", "registrations_of"]

TYPO_SIMILARITY = 0.6
"""From how alike on the name of a group is taken for a slip of the pen; 1 is the same."""


class ExampleReport(NamedTuple):
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
    for conflicts, claims in registry.factors.conflicts.items():
        if _plain(name) in {_plain(claim.plugin.distribution) for claim in claims}:
            raise DuplicateNameError(registry.factors.conflict_message(conflicts))
    for pack, registrations in packs.items():
        if _plain(pack) == _plain(name):
            return registrations
    known = {*registry.factors, *packs}
    by_plain = {_plain(other): other for other in known}
    near = [by_plain[x] for x in difflib.get_close_matches(_plain(name), by_plain, 3)]
    advice = f"Did you mean {' or '.join(near)}? " if near else ""
    raise click.BadParameter(
        f"{name!r} {_missing_reason(name)} {advice}`lpsmap factors` lists them."
    )


def _missing_reason(name: str) -> str:
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
            for slip in difflib.get_close_matches(PROJECT, groups, 10, TYPO_SIMILARITY)
            for entry_point in importlib.metadata.entry_points(group=slip)
        }
    )


def check_registered(registrations: Sequence[Registration], seed: int, draws: int) -> bool:
    """Run the kit on the examples of factor types, tell what came of it; return if all is well."""
    reports = [
        report for registration in registrations for report in _reports(registration, seed, draws)
    ]
    click.echo(text_table([_cells(report) for report in reports], ["PASSED", "EXPECTED", "FAILED"]))
    for report in reports:
        for result in report.failed:
            click.echo(f"\n{report.example}\n{result.check}\n{result.message}")
        if report.error is not None:
            click.echo(f"\n{report.registration.name}\n{report.error}")
    reasons = {
        (report.registration.name, result.check): result.expected
        for report in reports
        for result in report.results
        if result.ok and result.expected is not None
    }
    for (name, check), reason in reasons.items():
        click.echo(f"\nExpected: {name} fails {check}: {reason}.")
    return all(report.ok for report in reports)


def _reports(registration: Registration, seed: int, draws: int) -> list[ExampleReport]:
    """Return what came of every example of a type."""
    try:
        examples = list(registration.value.examples())
        wrong = _examples_error(registration, examples)
        if wrong is None:
            return [_report(registration, factor, seed, draws) for factor in examples]
    except Exception as error:
        wrong = error_with_origin(error)
    return [ExampleReport(registration, "", [], f"examples: {wrong}")]


def _examples_error(registration: Registration, examples: Sequence[object]) -> str | None:
    """Return what is wrong with the examples that a type offers."""
    if not examples:
        return "got none; expected a class method that returns small declarations"
    for factor in examples:
        if not isinstance(factor, registration.value):
            return f"got {factor!r}; expected instances of {registration.name}"
    return None


def _report(registration: Registration, factor: Factor, seed: int, draws: int) -> ExampleReport:
    return ExampleReport(
        registration, repr(factor), list(run_checks(factor, seed=seed, draws=draws))
    )


def _cells(report: ExampleReport) -> dict[str, str]:
    expected = sum(result.ok and result.expected is not None for result in report.results)
    return {
        "FACTOR": report.registration.name,
        "EXAMPLE": report.example or "none",
        "PASSED": str(len(report.results) - len(report.failed) - expected),
        "EXPECTED": str(expected) if expected else "",
        "FAILED": str(len(report.failed) + (report.error is not None)) if not report.ok else "",
    }


def _plain(name: str) -> str:
    """Return a distribution's name as the package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
