"""The checks as tests of pytest, one for every instance and check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from lpsmap_core.model.factor import Factor
from lpsmap_core.testing.checks import checks_of
from lpsmap_core.testing.run import expected_reasons

if TYPE_CHECKING:
    import pytest

__all__ = ["parametrize_with_checks"]


def parametrize_with_checks(
    instances: Iterable[Factor], expected_failures: Mapping[str, str] | None = None
) -> pytest.MarkDecorator:
    """Parametrise a test of ``factor`` and ``check`` with all checks of some instances.

    Parameters
    ----------
    instances
        Declarations, such as a type's ``examples()``; see `check_factor`.
    expected_failures
        Reasons by the names of checks that fail, for all instances that have such a check; besides
        those of the types' own ``expected_failures``. A check that passes against expectation fails
        its test.

    Returns
    -------
    pytest.MarkDecorator
        Tests are called ``Xor-0-check_ties``: the type, its how-manieth instance, the check.

    Raises
    ------
    TypeError
        If an instance is not a Factor.
    ValueError
        If there is no instance or an empty one, or if `expected_failures` has a name that is no
        check of any, or an empty reason.

    Examples
    --------
    A test module of a pack::

        @parametrize_with_checks(Path.examples())
        def test_protocol(factor, check):
            check(factor)
    """
    import pytest  # a pack needs it for its tests only

    factors = list(instances)
    if not factors:
        raise ValueError(
            "instances: got none; expected declarations, such as those that a factor type's "
            "examples() returns."
        )
    given = expected_failures or {}
    parameters, numbers, known = [], Counter[str](), set[str]()
    for factor in factors:
        checks = {check.__name__: check for check in checks_of(factor)}
        known |= set(checks)
        reasons = expected_reasons(factor, {k: v for k, v in given.items() if k in checks})
        cls = type(factor).__name__
        for name, check in checks.items():
            marks = (
                [pytest.mark.xfail(reason=reasons[name], strict=True)] if name in reasons else []
            )
            parameters.append(
                pytest.param(factor, check, id=f"{cls}-{numbers[cls]}-{name}", marks=marks)
            )
        numbers[cls] += 1
    for name in sorted(set(given) - known):
        raise ValueError(
            f"expected_failures: {name!r} is not a check of any of the instances; expected some of "
            f"{', '.join(sorted(known))}."
        )
    return pytest.mark.parametrize(("factor", "check"), parameters)
