"""The conformance kit: what plugins promise, as checks that anybody can run.

>>> from lpsmap import FactorGraph, Xor
>>> from lpsmap_core.testing import check_factor
>>> check_factor(Xor(FactorGraph().variable((2, 3))))

In a pack's tests, one test for every instance and check::

    @parametrize_with_checks(Path.examples())
    def test_protocol(factor, check):
        check(factor)

On the command line, for what is installed: ``lpsmap check Xor`` or ``lpsmap check PACKAGE``. File
formats, solvers and engines have a check each.
"""

from lpsmap_core.testing.checks import Check, checks_of
from lpsmap_core.testing.engines import check_engine
from lpsmap_core.testing.file_formats import check_format
from lpsmap_core.testing.map_solvers import check_map_solver
from lpsmap_core.testing.parametrize import parametrize_with_checks
from lpsmap_core.testing.rules import ConformanceError
from lpsmap_core.testing.run import Result, check_factor, run_checks

__all__ = [
    "Check",
    "ConformanceError",
    "Result",
    "check_engine",
    "check_factor",
    "check_format",
    "check_map_solver",
    "checks_of",
    "parametrize_with_checks",
    "run_checks",
]
