"""Records of kernels: one list of fields for docs and signatures; integers that are shared."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

from environments import ROOT
from lpsmap import FactorGraph
from lpsmap_core import Factor, kernel, leaf
from lpsmap_core.api import row_view
from lpsmap_core.kernels.entries import address_of
from lpsmap_core.kernels.records import KERNELS, Factors
from lpsmap_core.layout.layout import Bucket, build_layout
from lpsmap_factors_logic import Xor
from lpsmap_jit.arrays import FloatTable
from lpsmap_jit.by_address import by_value, record_at
from lpsmap_jit.compile import COMPILED
from lpsmap_jit.memory import hold, kinds_of

PAGE = (ROOT / "docs" / "how-to" / "kernels.md").read_text(encoding="utf-8")
RECORDS = sorted({record for records in KERNELS.values() for record in records}, key=str)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_page_has_every_field_and_its_type(record: Any) -> None:
    table = PAGE[PAGE.index(f"| field of `{record.__name__}` |") :].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+), (\d)-d \|", table, flags=re.MULTILINE)
    fields = kinds_of(record).items()
    assert rows == [(name, str(field.dtype), str(field.ndim)) for name, field in fields]


@pytest.mark.parametrize("name", KERNELS)
def test_the_page_has_every_signature(name: str) -> None:
    records = [record.__name__ for record in KERNELS[name]]
    (line,) = re.findall(rf"^{name}\((.*)\)$", PAGE, flags=re.MULTILINE)
    assert re.findall(r"\w+: (\w+)", line) == records


class Listed(Factor):
    """One of the variables that the declaration lists is on."""

    def __init__(self, variables: Any, allowed: Any, per_factor: bool = False) -> None:
        super().__init__(variables)
        self.allowed = self.integers("allowed", allowed, per_factor=per_factor)

    def solve_map(self, eta_u: Any, eta_v: Any) -> int:
        return int(self.allowed[np.argmax(eta_u[self.allowed])])

    def vertex(self, y: int) -> Any:
        return np.arange(*self.event_shape) == y, np.empty(0)


def integers_of(bucket: Bucket) -> list[list[int]]:
    factors = bucket.factors
    return [factors.integers[begin:end].tolist() for begin, end in factors.integer_ranges]


def test_integers_that_factors_share_are_there_once() -> None:
    graph = FactorGraph()
    table = [[0, 1], [2, 3]]
    shared = Listed(graph.variable((1000, 4)), table)
    own = Listed(graph.variable((3, 4)), [[1], [], [3, 2, 1]], per_factor=True)
    empty = Listed(graph.variable((0, 4)), [], per_factor=True)
    bucket = build_layout(graph.n_variables, [shared, own, empty]).buckets[0]
    assert integers_of(bucket) == [[0, 1, 2, 3]] * 1000 + [[1], [], [3, 2, 1]]
    assert len(bucket.factors.integers) == 8
    chosen = bucket.select(np.array([1002, 5]))
    assert integers_of(chosen) == [[3, 2, 1], [0, 1, 2, 3]]
    assert chosen.factors.integers is bucket.factors.integers
    assert row_view(shared, 7).allowed.shape == (2, 2)
    assert row_view(own, 2).allowed.tolist() == [3, 2, 1]


def test_types_without_integers_pay_nothing_for_them() -> None:
    graph = FactorGraph()

    bucket = build_layout(4, [Xor(graph.variable((2, 2)))]).buckets[0]
    assert bucket.factors.integers.size == bucket.factors.integer_ranges.size == 0


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([0.5], ValueError, "Listed: allowed holds 0.5; expected whole numbers"),
        ([np.nan], ValueError, "allowed holds a value that is not finite"),
        (["a"], TypeError, "Listed: allowed"),
    ],
)
def test_what_is_no_integer_is_refused(given: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Listed(FactorGraph().variable((2, 3)), given)


def test_an_array_for_each_factor() -> None:
    with pytest.raises(ValueError, match="allowed has 1 arrays; expected one for each factor"):
        Listed(FactorGraph().variable((2, 3)), [[0]], per_factor=True)


# -------------------------------------------------------------------- in compiled code


factors_at = record_at(Factors)


@leaf
def _copy(handle, to):
    factors = by_value(factors_at(handle))
    _copy_numbers(factors.offsets, to.offsets)
    _copy_numbers(factors.additional_offsets, to.additional_offsets)
    _copy_numbers(factors.parameters, to.parameters)
    _copy_numbers(factors.link_parameter, to.link_parameter)
    _copy_numbers(factors.integers, to.integers)
    _copy_numbers(factors.integer_ranges, to.integer_ranges)


@leaf
def _copy_numbers(numbers, to):
    for i in range(numbers.size):
        to.flat[i] = numbers.flat[i]


@kernel
def kernel_of_version_1(rows, offsets, eta_u, additional_offsets, eta_v):
    """Do nothing."""


@pytest.mark.compiled
@pytest.mark.skipif(not COMPILED, reason="nothing is called by address")
def test_a_record_comes_back_from_its_addresses() -> None:
    factors = Factors(
        np.array([0, 2, 3]),
        np.array([0, 0, 1]),
        np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]]),
        np.empty(0),
        np.array([7, 8, 9]),
        np.array([[0, 1], [1, 3]]),
    )
    copies = Factors(*map(np.zeros_like, factors))
    _copy(hold(factors).handle, copies)
    for array, copied in zip(factors, copies, strict=True):
        assert array.shape == copied.shape
        np.testing.assert_array_equal(array, copied)


class Numbers(NamedTuple):
    count: int
    table: FloatTable


@pytest.mark.parametrize(
    "wrong",
    [
        Numbers(1.5, np.ones((2, 2))),
        Numbers(1, np.ones(2)),
        Numbers(1, np.ones((2, 2), dtype=int)),
        Numbers(1, np.ones((2, 3)).T),
    ],
)
def test_other_fields_than_the_annotations_say_are_refused(wrong: Numbers) -> None:
    hold(Numbers(1, np.ones((2, 2))))
    with pytest.raises(TypeError):
        hold(wrong)


@pytest.mark.compiled
@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
def test_a_kernel_of_version_1_is_refused_in_words() -> None:
    words = "kernel_of_version_1: takes 5 arguments; expected 4: the rows, then the records Factors"
    with pytest.raises(TypeError, match=words):
        address_of(kernel_of_version_1, "map_kernel")
