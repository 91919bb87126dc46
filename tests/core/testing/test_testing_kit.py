"""The conformance kit: sound factors pass, and a named check catches every planted fault."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from environments import ROOT
from lpsmap import Sequence
from lpsmap_core import FactorGraph, kernel
from lpsmap_core.testing import (
    ConformanceError,
    check_factor,
    checks_of,
    parametrize_with_checks,
    run_checks,
)
from lpsmap_core.testing.compiled_oracle import require_equal_score
from lpsmap_core.testing.oracle import Oracle
from lpsmap_dynamic import DynamicProgram
from lpsmap_factors_logic import Knapsack
from lpsmap_jit.tiers import CAN_INTERPRET
from planted_faults import (
    FAULTS,
    ArrayOfAllRows,
    BonusOfTheFirstRow,
    DecodesToArrays,
    DropsLengths,
    DropsMask,
    Halves,
    HidesCounts,
    HidesUnused,
    KernelFarBeyondItsArrays,
    KernelOfNoNumbers,
    KernelOfTheFirstIntegers,
    KernelOfTheFirstParameters,
    KernelWritesIntoItsScores,
    KernelWritesTooMuch,
    Masked,
    MisspeltAxes,
    MisspeltLengths,
    NegatesAgain,
    NoCodes,
    NotANumber,
    ReplacesKeep,
    ReplacesOffsets,
    SameIntegersInAllExamples,
    TableOfAllRows,
    TwiceTheJacobian,
)
from sound_types import SOUND, Block, OneOf, Spaced


@parametrize_with_checks(SOUND)
def test_sound_factors_pass(factor, check):
    check(factor)


interprets = pytest.mark.skipif(
    not CAN_INTERPRET, reason="interpreted kernels, which validate indices, need NumPy 2"
)


@pytest.mark.parametrize(
    ("check", "cls"),
    [
        pytest.param(
            check, cls, id=cls.__name__, marks=interprets if check == "check_indices" else []
        )
        for check in FAULTS
        for cls in FAULTS[check]
    ],
)
def test_planted_faults_are_caught_by_the_named_check(check, cls):
    errors = {}
    if check == "check_devices":
        pytest.importorskip("torch")
    for factor in cls.examples():
        function = {c.__name__: c for c in checks_of(factor)}[check]
        try:
            function(factor)
        except ConformanceError as error:
            errors[factor] = str(error)
    assert errors, f"{check} passes {cls.__name__}"
    for message in errors.values():
        assert "Rule: " in message
        assert "because" in message
        assert "Got: " in message
        assert "Expected: " in message


def test_there_is_a_planted_fault_for_every_check():
    known = {check.__name__ for factor in SOUND for check in checks_of(factor)}
    assert set(FAULTS) == known
    assert sum(map(len, FAULTS.values())) >= 25


# -------------------------------------------------------------------- running the checks

ARRAYS = {"check_decode": "arrays are what it is about"}


def failing(factor, **options):
    return {result.check for result in run_checks(factor, **options) if not result.ok}


def test_one_error_names_every_failing_check():
    factor = DecodesToArrays.examples()[0]
    with pytest.raises(ConformanceError) as caught:
        check_factor(factor)
    assert str(caught.value).startswith(
        "DecodesToArrays(3 factors over variables of shape (3, 4)) fails 1 of the checks:\n\n"
        "check_decode\nRule: decode returns a dictionary of plain Python numbers and lists, because"
    )
    assert failing(TwiceTheJacobian.examples()[0]) == {"check_jvp", "check_jvp_is_projection"}


def test_an_error_of_the_type_is_a_failure_of_its_check():
    class Stuck(OneOf):
        def decode(self, variables, additionals):
            raise RuntimeError("out of words")

    words = "check_decode, check_distribution\nRuntimeError: out of words"
    with pytest.raises(ConformanceError, match=words):
        check_factor(Stuck.examples()[0])


def test_nothing_runs_after_a_kernel_that_writes_beyond_its_room():
    results = list(run_checks(KernelWritesTooMuch.examples()[0]))
    assert results[-1].check == "check_map_kernel"
    assert not results[-1].ok


class Unchecked(DynamicProgram):
    """Accepts any number of additionals, but uses one per variable."""

    @classmethod
    def hypergraph(cls, row, build):
        for i in range(row.event_shape[0]):
            build.edge("goal", slots=[i], additionals=[i])
        return "goal"

    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable(3), np.zeros(3))]


def test_a_size_that_init_should_have_refused_is_named():
    failed = [result for result in run_checks(Unchecked.examples()[0]) if not result.ok]
    assert [result.check for result in failed] == ["check_larger"]
    assert "additional 3 is out of range; expected 0 to 2" in failed[0].message
    assert "declared with 6 variables and 3 additionals" in failed[0].message
    assert "reject such a declaration in __init__" in failed[0].message


def test_a_kernel_that_reads_the_data_of_factor_0_gets_a_hint():
    for cls, words in (
        (KernelOfTheFirstIntegers, "factor 0's integers: read integer_ranges[r]"),
        (KernelOfTheFirstParameters, "factor 0's parameters: read parameters[r]"),
    ):
        results = {r.check: r for r in run_checks(cls.examples()[-1])}
        assert results["check_map_kernel"].message.endswith(
            f"Hint: this is the answer with {words}"
        )


def test_a_mask_is_kept():
    for factor in Masked.examples():
        assert not failing(factor)


def test_checks_of_examples_are_skipped_for_other_instances():
    factor, reason = (
        OneOf(FactorGraph().variable((2, 5))),
        "resembles none of the type's examples()",
    )
    skipped = {r.check: r for r in run_checks(factor) if r.skipped}
    of_examples = {"check_row_alone", "check_lengths", "check_lists", "check_larger"}
    assert set(skipped) == of_examples
    assert all(
        r.ok and re.match(f"skipped: .*{re.escape(reason)}", r.message) for r in skipped.values()
    )
    assert not any(r.skipped for r in run_checks(OneOf.examples()[0]))
    _, parameters = parametrize_with_checks([factor, OneOf.examples()[0]]).mark.args
    marked = {parameter.id for parameter in parameters if parameter.marks}
    assert marked == {f"OneOf-0-{check}" for check in of_examples}


def test_faults_of_kernels_are_described():
    for cls, words in (
        (KernelWritesIntoItsScores, "Got: map_kernel wrote into eta_u"),
        (KernelOfNoNumbers, "Rule: map_kernel .*\nGot: .*nan.* of score nan"),
    ):
        error = next(
            r for r in run_checks(cls.examples()[0]) if r.check == "check_map_kernel"
        ).error
        assert re.search(words, str(error)), error


@pytest.mark.compiled
def test_a_kernel_of_too_few_arguments_is_rejected_like_in_a_solve():
    class OfThree(OneOf):
        map_kernel = staticmethod(kernel(lambda rows, factors, scores: None))

    with pytest.raises(ConformanceError, match="takes 3 arguments; expected 4: the rows, then the"):
        check_factor(OfThree.examples()[0])


def test_a_vertex_of_no_numbers_is_one_fault():
    assert failing(NotANumber.examples()[0]) >= {"check_zero_one"}
    alike = {"check_labels", "check_determinism", "check_hidden_state"}
    assert not failing(NotANumber.examples()[0]) & alike


@parametrize_with_checks(Block.examples())
def test_a_type_of_two_axes_passes(factor, check):
    check(factor)


def test_declaring_again_leaves_the_type_as_it_was():
    for cls in (OneOf, NegatesAgain):
        before = dict(vars(cls))
        for name in ("check_lengths", "check_lists", "check_larger"):
            (check,) = (c for c in checks_of(cls.examples()[0]) if c.__name__ == name)
            check(cls.examples()[0])
        now = dict(vars(cls))
        now.pop("__slotnames__", None)  # written by copying
        before.pop("__slotnames__", None)
        assert now == before


def test_draws_and_seed():
    recorded = []

    class Recording(OneOf):
        def solve_map(self, eta_u, eta_v):
            recorded.append(eta_u.copy())
            return super().solve_map(eta_u, eta_v)

    factor = Recording(FactorGraph().variable(4))
    (check,) = (c for c in checks_of(factor) if c.__name__ == "check_shapes")
    scores = []
    for options in ({}, {}, {"seed": 1}, {"draws": 100}):
        recorded.clear()
        check(factor, **options)
        scores.append(np.array(recorded))
    np.testing.assert_array_equal(scores[0], scores[1])
    assert (scores[0] != scores[2]).any()
    assert len(scores[3]) == 100


class KnownToDecodeToArrays(DecodesToArrays):
    expected_failures = ARRAYS


def test_expected_failures_of_the_caller_and_of_the_type():
    for factor, more in (
        (DecodesToArrays.examples()[0], ARRAYS),
        (KnownToDecodeToArrays.examples()[0], None),
    ):
        assert failing(factor, expected_failures=more) == set()
        check_factor(factor, expected_failures=more)


def test_checks_that_pass_have_no_message():
    factor = Spaced.examples()[0]
    assert {(result.ok, result.message) for result in run_checks(factor)} == {(True, "")}


def test_a_mixture_of_a_type_that_counts_is_found():
    factor = Spaced(FactorGraph().variable(5), np.zeros(1), gap=2)
    oracle = Oracle(factor, 0)
    assert oracle.beaten_by(np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.0])) is not None
    assert oracle.beaten_by(np.array([1.0, 1.0, 0.0, 0.0, 1.0, 3.0])) is not None
    for y in ((), (0, 2), (0, 2, 4), (0, 3), (1, 3)):
        assert oracle.beaten_by(np.concatenate(factor.vertex(y))) is None


def test_a_kernel_that_returns_structures_with_counts_is_right():
    factor = Spaced.examples()[0]
    oracle = Oracle(factor, 0)
    seen = np.array([np.concatenate(factor.vertex(y)) for y in ((), (0, 2), (0, 2, 4), (1, 4))])
    for vertex in seen:
        require_equal_score(oracle, vertex, seen[:1], np.zeros(oracle.size))


def test_an_expected_failure_that_passes_is_an_error():
    with pytest.raises(ConformanceError, match="passes, though it was expected to fail: arrays"):
        check_factor(OneOf.examples()[0], expected_failures=ARRAYS)


@pytest.mark.parametrize("run", [check_factor, lambda f, **kw: parametrize_with_checks([f], **kw)])
def test_expected_failures_need_a_known_name_and_a_reason(run):
    factor = OneOf.examples()[0]
    for reason in ("", "  ", None):
        with pytest.raises(ValueError, match=r"'check_ties' has the reason .* expected a text"):
            run(factor, expected_failures={"check_ties": reason})
    with pytest.raises(ValueError, match="check_tie.*expected .*check_ties"):
        run(factor, expected_failures={"check_tie": "a slip"})


def test_a_test_for_every_instance_and_check():
    mark = parametrize_with_checks([*Halves.examples(), OneOf.examples()[0]], ARRAYS).mark
    names, parameters = mark.args
    assert names == ("factor", "check")
    by_id = {parameter.id: parameter for parameter in parameters}
    assert len(by_id) == len(parameters)
    assert {"Halves-0-check_decode", "Halves-1-check_ties", "OneOf-0-check_linear"} <= set(by_id)
    marked = {name for name, parameter in by_id.items() if parameter.marks}
    assert marked == {f"{name}-check_decode" for name in ("Halves-0", "Halves-1", "OneOf-0")}
    (xfail,) = by_id["Halves-0-check_decode"].marks
    assert xfail.name == "xfail"
    assert xfail.kwargs == {"reason": ARRAYS["check_decode"], "strict": True}


def test_parametrisation_rejects_other_values_than_instances():
    with pytest.raises(ValueError, match="instances: got none"):
        parametrize_with_checks([])
    with pytest.raises(TypeError, match="factor: got .*; expected a declaration"):
        parametrize_with_checks([OneOf])
    with pytest.raises(ValueError, match="has no factors"):
        check_factor(OneOf(FactorGraph().variable((0, 3))))


def test_pytest_is_imported_only_to_parametrise():
    program = "import lpsmap_core.testing, sys; raise SystemExit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (MisspeltAxes, "the class attribute 'variable_ndim' .*expected 'variables_ndim'"),
        (MisspeltLengths, "the class attribute 'lenght_axes' .*expected 'length_axes'"),
        (
            HidesUnused,
            "self.unused hides the method Factor.unused, which core calls; expected",
        ),
        (HidesCounts, "the class attribute counts = 0 hides the method Factor.counts, which core"),
    ],
)
def test_names_that_core_would_ignore_are_rejected_by_add(cls, words):
    graph = FactorGraph()
    with pytest.raises(TypeError, match=f"{cls.__name__}: {words}"):
        graph.add(cls(graph.variable((2, 3))))


@pytest.mark.parametrize("cls", [ReplacesKeep, ReplacesOffsets])
def test_overwritten_attributes_of_factor_are_named(cls):
    (result,) = list(run_checks(cls.examples()[0]))[-1:]
    assert result.check == "check_parameters"
    words = r"Got: \w+: self.\w+ is .*, which overwrites an attribute of Factor that core reads;"
    assert re.search(words, result.message)


@interprets
def test_a_kernel_far_out_of_bounds_is_named_and_its_line():
    factor = KernelFarBeyondItsArrays.examples()[0]
    results = list(run_checks(factor))
    assert results[-1].check == "check_indices"
    assert re.search(
        r"Got: KernelFarBeyondItsArrays.map_kernel: IndexError: index \d+ is out of bounds .*, in "
        r"line \d+ of kernels.py: structures.entry",
        results[-1].message,
    )


FAR_OUT = """
import numpy as np
from lpsmap_core import Factor, FactorGraph, kernel
from lpsmap_core.testing import check_factor

@kernel
def far(rows, factors, scores, structures):
    for r in rows:
        structures.entry[structures.start[r] + 10**9] = 1
        structures.size[r] = 1

class FarOut(Factor):
    map_kernel = staticmethod(far)
    def solve_map(self, eta_u, eta_v):
        return int(np.argmax(eta_u))
    def vertex(self, y):
        return np.eye(self.event_shape[0])[y], []

check_factor(FarOut(FactorGraph().variable((2, 3))))
"""


@interprets
@pytest.mark.compiled
def test_a_compiled_kernel_far_out_of_bounds_does_not_end_the_process(warm_server):
    done = warm_server.run(FAR_OUT)
    assert done.returncode == 1, done
    assert "check_indices\nRule: kernels and methods stay within their arrays" in done.stderr
    assert "Got: FarOut.map_kernel: IndexError" in done.stderr


def test_dropped_lengths_and_foreign_data_are_named():
    for cls, check, words in (
        (DropsLengths, "check_lengths", "a declaration with lengths of which DropsLengths covers"),
        (BonusOfTheFirstRow, "check_row_alone", "as alone; register data that differ by row with"),
        (SameIntegersInAllExamples, "check_integers", "the same allowed in all of"),
        (DropsMask, "check_lengths", "a declaration with mask of which DropsMask covers"),
        (ArrayOfAllRows, "check_shapes", "by row with self.per_factor, such as self.bonus"),
        (TableOfAllRows, "check_indices", "by row with self.per_factor, such as self.bonus"),
        (NoCodes, "check_jvp", "derivative follows from face codes: use TIED, or define jvp"),
    ):
        if check == "check_indices" and not CAN_INTERPRET:
            continue
        result = next(r for r in run_checks(cls.examples()[0]) if r.check == check)
        assert words in result.message


# -------------------------------------------------------------------- its page in the docs

PAGE = ROOT / "docs" / "how-to" / "conformance.md"


def test_the_docs_name_every_check():
    named = re.findall(r"^\| `(check_\w+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    every = [*SOUND, *Sequence.examples()]  # Sequence also has sums
    known = {check.__name__: check for factor in every for check in checks_of(factor)}
    assert sorted(named) == sorted(known)
    assert all(check.__doc__ for check in known.values())


def test_the_docs_quote_an_expected_failure():
    assert str(Knapsack.expected_failures).replace("'", '"') in PAGE.read_text()


def test_a_type_is_no_declaration():
    with pytest.raises(TypeError, match="factor: got the class Sequence; expected a declaration"):
        check_factor(Sequence)
