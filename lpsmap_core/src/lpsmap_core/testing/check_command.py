"""The command ``lpsmap check``: the conformance kit on the examples of installed factor types."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import click

from lpsmap_core.command.cli import chosen_types, complete_types
from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins.error_origin import error_with_origin
from lpsmap_core.plugins.registry import Registration
from lpsmap_core.solution.table_rendering import text_table
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.run import Result, failure_texts, run_checks


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


@click.command()
@click.argument(
    "names", metavar="PACKAGE_OR_FACTOR...", nargs=-1, required=True, shell_complete=complete_types
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of the random problems.",
)
@click.option(
    "--draws",
    type=click.IntRange(1),
    default=DRAWS,
    show_default=True,
    help="Random problems per check.",
)
def check(names: tuple[str, ...], seed: int, draws: int) -> None:
    """Check factor types against the factor protocol.

    PACKAGE_OR_FACTOR is the name of an installed factor type, or of a distribution that has some.
    Types are checked on their own examples. The exit code is 1 if a check fails.
    """
    if not _check_types(chosen_types(names), seed, draws):
        raise SystemExit(1)


def _check_types(registrations: Sequence[Registration], seed: int, draws: int) -> bool:
    """Run the kit on the examples of factor types, print the results; return if all passed."""
    reports = [
        report for registration in registrations for report in _reports(registration, seed, draws)
    ]
    click.echo(text_table([_cells(report) for report in reports], ["PASSED", "EXPECTED", "FAILED"]))
    for name, some in groupby(reports, key=lambda report: report.registration.name):
        of_type = list(some)
        for text in failure_texts([(report.example, report.failed) for report in of_type]):
            click.echo(f"\n{text}")
        for report in of_type:
            if report.error is not None:
                click.echo(f"\n{name}\n{report.error}")
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
