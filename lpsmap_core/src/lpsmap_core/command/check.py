"""The command ``lpsmap check``: the conformance kit on the examples of installed factor types."""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Sequence
from typing import NamedTuple

import click

from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins.disabled_plugins import normalised
from lpsmap_core.plugins.error_origin import error_with_origin
from lpsmap_core.plugins.hookspecs import PROJECT
from lpsmap_core.plugins.registry import DuplicateNameError, Registration, Registry
from lpsmap_core.solution.table_rendering import text_table
from lpsmap_core.testing.run import Result, run_checks

__all__ = ["check_types", "misspelt_groups", "registrations_of"]

TYPO_SIMILARITY = 0.6
"""Similarity above which the name of a group counts as a misspelling; 1 is equality."""


class ExampleReport(NamedTuple):
    """The results of one example, or the reason why there are none."""

    registration: Registration
    example: str
    results: Sequence[Result]
    error: str | None = None

    @property
    def failed(self) -> list[Result]:
        """The failed checks."""
        return [result for result in self.results if not result.ok]

    @property
    def ok(self) -> bool:
        """Whether all checks pass."""
        return self.error is None and not self.failed


def registrations_of(registry: Registry, name: str) -> list[Registration]:
    """Return the factor type called `name`, or all types of the distribution called `name`.

    Raises
    ------
    DuplicateNameError
        If two plugins register the name, or a name of the distribution.
    click.BadParameter
        If there is neither. The message suggests similar names, or says what a distribution of
        that name lacks.
    """
    if name in registry.factors:
        return [registry.factors[name]]
    packs: dict[str, list[Registration]] = {}
    for registration in registry.factors.values():
        packs.setdefault(registration.plugin.distribution, []).append(registration)
    for conflicts, claims in registry.factors.conflicts.items():
        if normalised(name) in {normalised(claim.plugin.distribution) for claim in claims}:
            raise DuplicateNameError(registry.factors.conflict_message(conflicts))
    for pack, registrations in packs.items():
        if normalised(pack) == normalised(name):
            return registrations
    by_plain = {normalised(other): other for other in (*registry.factors, *packs)}
    near = [by_plain[x] for x in difflib.get_close_matches(normalised(name), by_plain, 3)]
    advice = f" Did you mean {' or '.join(near)}?" if near else ""
    reason = _missing_reason(name) + advice
    raise click.BadParameter(f"{name!r} {reason} `lpsmap factors` lists them.")


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


def check_types(registrations: Sequence[Registration], seed: int, draws: int) -> bool:
    """Run the kit on the examples of factor types, print the results; return if all passed."""
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
    """Return the reports of all examples of a type."""
    try:
        examples = list(registration.value.examples())
        wrong = _examples_error(registration, examples)
        if wrong is None:
            return [_report(registration, factor, seed, draws) for factor in examples]
    except Exception as error:
        wrong = error_with_origin(error)
    return [ExampleReport(registration, "", [], f"examples: {wrong}")]


def _examples_error(registration: Registration, examples: Sequence[object]) -> str | None:
    """Return what is wrong with a type's examples, or None."""
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
        "PASSED": str(sum(r.ok and not (r.expected or r.skipped) for r in report.results)),
        "EXPECTED": str(expected) if expected else "",
        "FAILED": str(len(report.failed) + (report.error is not None)) if not report.ok else "",
    }
