"""The conformance kit: checks of the rules that plugins must follow.

>>> from lpsmap import FactorGraph, Xor
>>> from lpsmap_core.testing import check_factor
>>> check_factor(Xor(FactorGraph().variable((2, 3))))

In the tests of a pack, a test for every instance and check::

    @parametrize_with_checks(Path.examples())
    def test_protocol(factor, check):
        check(factor)

On the command line, for installed packages: ``lpsmap check Xor`` or ``lpsmap check PACKAGE``.
Engines have one check.
"""

from lpsmap_core.testing.checks import Check, checks_of
from lpsmap_core.testing.engines import check_engine
from lpsmap_core.testing.parametrize import parametrize_with_checks
from lpsmap_core.testing.rules import ConformanceError, broken
from lpsmap_core.testing.run import Result, check_factor, run_checks

__all__ = [
    "Check",
    "ConformanceError",
    "Result",
    "broken",
    "check_engine",
    "check_factor",
    "checks_of",
    "parametrize_with_checks",
    "run_checks",
]
