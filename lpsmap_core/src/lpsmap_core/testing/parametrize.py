"""The checks as parametrized pytest tests, one for every instance and check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.checks import checks_of
from lpsmap_core.testing.run import expected_reasons, reasons_to_skip

if TYPE_CHECKING:
    import pytest


def parametrize_with_checks(
    instances: Iterable[Factor], expected_failures: Mapping[str, str] | None = None
) -> pytest.MarkDecorator:
    """Parametrise a test of ``factor`` and ``check`` with all checks of some instances.

    Parameters
    ----------
    instances
        Declarations, such as a type's ``examples()``; see `check_factor`.
    expected_failures
        Names of checks that fail, with reasons, for all instances to which they apply; in addition
        to the ``expected_failures`` of the types. An expected failure that passes fails its test.
        Checks that `run_checks` skips are skipped.

    Returns
    -------
    pytest.MarkDecorator
        Tests have names such as ``Xor-0-check_ties``: the type, the number of the instance among
        those of the type, and the check.

    Raises
    ------
    TypeError
        If an instance is not a Factor.
    ValueError
        If there are no instances, if an instance has no factors, or if `expected_failures` has an
        unknown name or an empty reason.

    Examples
    --------
    A test module of a pack::

        @parametrize_with_checks(Path.examples())
        def test_protocol(factor, check):
            check(factor)
    """
    import pytest  # not a dependency of core

    factors = list(instances)
    if not factors:
        raise ValueError(
            "instances: got none; expected declarations, such as the examples() of a factor type."
        )
    failures = expected_failures or {}
    parameters, numbers, names = [], Counter[str](), set[str]()
    for factor in factors:
        checks = {check.__name__: check for check in checks_of(factor)}
        names |= set(checks)
        reasons = expected_reasons(factor, {k: v for k, v in failures.items() if k in checks})
        cls = type(factor).__name__
        skipped = reasons_to_skip(factor)
        for name, check in checks.items():
            marks = []
            if name in skipped:
                marks = [pytest.mark.skip(reason=skipped[name])]
            elif name in reasons:
                marks = [pytest.mark.xfail(reason=reasons[name], strict=True)]
            parameters.append(
                pytest.param(factor, check, id=f"{cls}-{numbers[cls]}-{name}", marks=marks)
            )
        numbers[cls] += 1
    for name in sorted(set(failures) - names):
        raise ValueError(
            f"expected_failures: {name!r} is not a check of the instances; expected some of "
            f"{', '.join(sorted(names))}."
        )
    return pytest.mark.parametrize(("factor", "check"), parameters)
