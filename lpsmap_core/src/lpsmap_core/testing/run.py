"""Run the checks on an instance, and compare their results with the expected failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lpsmap_core.model.factor import Factor
from lpsmap_core.plugins.error_origin import error_with_origin
from lpsmap_core.testing.checks import FIRST, checks_of
from lpsmap_core.testing.declarations import declarations_of
from lpsmap_core.testing.draws import DRAWS
from lpsmap_core.testing.rules import ConformanceError
from lpsmap_jit.tiers import compile_now

OF_EXAMPLES = ("check_row_alone", "check_lengths", "check_lists", "check_larger")
"""Checks that declare a type's examples again, with other arguments."""


class Result(NamedTuple):
    """The result of one check.

    Attributes
    ----------
    check
        Name of the check.
    error
        The error that it raised, or None.
    expected
        The reason of an expected failure, or None.
    skipped
        The reason why the check did not run, or None.
    """

    check: str
    error: Exception | None
    expected: str | None
    skipped: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the check passed, failed as expected, or did not run."""
        return self.skipped is not None or (self.error is None) == (self.expected is None)

    @property
    def message(self) -> str:
        """Description of the failure, or of why the check was skipped; empty if it passed."""
        if self.skipped is not None:
            return f"skipped: {self.skipped}"
        if self.error is None and self.expected is None:
            return ""
        if self.error is None:
            return (
                "passes, though it was expected to fail: "
                f"{self.expected}. Remove it from expected_failures."
            )
        if isinstance(self.error, ConformanceError):
            return str(self.error)
        return error_with_origin(self.error)


def run_checks(
    factor: Factor,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    expected_failures: Mapping[str, str] | None = None,
) -> Iterator[Result]:
    """Yield the result of every check of a factor, in order.

    `factor`, `seed`, `draws` and `expected_failures` are as in `check_factor`.

    Checks that declare the type's ``examples()`` again are skipped for an instance that resembles
    none of them. The generator ends after a failure of a check that the others depend on; see
    `checks.FIRST`.
    """
    compile_now()  # check the compiled code, which users run
    expected = expected_reasons(factor, expected_failures)
    first = {check.__name__ for check in FIRST}
    skipped = reasons_to_skip(factor)
    for check in checks_of(factor):
        name, error = check.__name__, None
        if name in skipped:
            yield Result(name, None, expected.get(name), skipped[name])
            continue
        try:
            check(factor, seed=seed, draws=draws)
        except Exception as caught:
            error = caught
        yield Result(name, error, expected.get(name))
        if error is not None and name in first:
            return


def check_factor(
    factor: Factor,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    expected_failures: Mapping[str, str] | None = None,
) -> None:
    """Check one instance of a factor type against the whole protocol.

    Parameters
    ----------
    factor
        A declaration of one or many factors, each with at most about a dozen variables. Its scores
        are not used: the checks draw scores, and declare the factor again in new graphs.
    seed
        Seed of the random problems.
    draws
        Number of random problems for every check.
    expected_failures
        Names of checks that fail, with reasons, in addition to the type's ``expected_failures``.

    Raises
    ------
    ConformanceError
        If a check fails that should pass, or passes that should fail; the message names each, with
        the rule, what was got and what was expected.
    ValueError
        If `expected_failures` has an unknown name or an empty reason.

    Examples
    --------
    >>> from lpsmap import FactorGraph, Xor
    >>> from lpsmap_core.testing import check_factor
    >>> check_factor(Xor(FactorGraph().variable((2, 3))))
    """
    results = run_checks(factor, seed=seed, draws=draws, expected_failures=expected_failures)
    failed = [result for result in results if not result.ok]
    if failed:
        messages = "\n\n".join(failure_texts([("", failed)]))
        raise ConformanceError(
            f"{factor!r} fails {len(failed)} of the checks:\n\n{messages}"
        ) from failed[0].error


def failure_texts(failed: Sequence[tuple[str, Sequence[Result]]]) -> Iterator[str]:
    """Yield texts about failures: one for a broken rule, of the first example and check.

    Parameters
    ----------
    failed
        Examples in words, and their failed checks.
    """
    same: dict[str, list[tuple[str, Result]]] = {}
    for example, results in failed:
        for result in results:
            same.setdefault(result.message.partition("\n")[0], []).append((example, result))
    for (example, first), *others in same.values():
        names = dict.fromkeys([first.check, *(other.check for _, other in others)])
        n_more = len({other for other, _ in others} - {example})
        more = f"The same in {n_more} more of its examples." if n_more else ""
        yield "\n".join(filter(None, [example, ", ".join(names), first.message, more]))


def reasons_to_skip(factor: Factor) -> dict[str, str]:
    """Return the names of checks that cannot run on an instance, with reasons."""
    try:
        if declarations_of(factor):
            return {}
    except Exception:  # the checks report it
        return {}
    reason = "the instance resembles none of the type's examples(), so it cannot be declared again"
    return dict.fromkeys(OF_EXAMPLES, reason)


def expected_reasons(factor: Factor, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the reasons of a factor's expected failures by the names of the checks.

    Raises
    ------
    ValueError
        If a name is not that of a check of the type, or if a reason is empty.
    """
    names = {check.__name__ for check in checks_of(factor)}  # refuses what is no declaration
    reasons = {**type(factor).expected_failures, **(more or {})}
    for name, reason in reasons.items():
        if name not in names:
            raise ValueError(
                f"expected_failures: {name!r} is not a check of {type(factor).__name__}; expected "
                f"some of {', '.join(sorted(names))}."
            )
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(
                f"expected_failures: {name!r} has the reason {reason!r}; expected a text that says "
                "why the type cannot pass it."
            )
    return reasons
