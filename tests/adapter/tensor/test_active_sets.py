"""Single factors solved by active sets on tensors, against core's engine."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lpsmap import (
    Alignment,
    AtMostOne,
    BinaryTree,
    ConvergenceWarning,
    DepTree,
    ModifierBudget,
    Pair,
    Sequence,
    SequenceDistance,
    Status,
    TorchFactorGraph,
    Xor,
)
from lpsmap_dynamic import DynamicProgram, HypergraphBuilder, Row
from lpsmap_torch.layers import LatentTree, SequenceAttention, SparseMAP
from lpsmap_torch.tensor.problem import batch_bytes


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def solved(
    engine: str, scores: list[Tensor], lengths: Any = None, negated: bool = False
) -> tuple[TorchFactorGraph, Tensor, Tensor]:
    """Return the graph, and the marginals of states and of additionals."""
    graph = TorchFactorGraph()
    u = graph.variable_from(scores[0])
    sequence = Sequence(~u if negated else u, *scores[1:], lengths=lengths)
    graph.add(sequence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        graph.solve(engine=engine, tol=1e-11)
    return graph, u.value, graph.additionals_of(sequence)


def drawn(scale: float, shape: tuple[int, int, int], seed: int = 0) -> list[Tensor]:
    """Return scores of states, transitions, first and last states."""
    n, length, s = shape
    sizes = (n, length, s), (n, length - 1, s, s), (n, s), (n, s)
    return [scale * normal(*size, seed=seed + 9 * i) for i, size in enumerate(sizes)]


def check_equal(scores: list[Tensor], lengths: Any = None) -> None:
    """Both engines find the same marginals, and the same gradients of a random function."""
    inputs = [x.clone().requires_grad_() for x in scores]
    results = []
    for engine in ("tensor", "compiled"):
        graph, *values = solved(engine, inputs, lengths)
        assert graph.solution.ok
        loss = sum((normal(*x.shape, seed=7) * x).sum() for x in values)
        results.append((values, torch.autograd.grad(loss, inputs)))
    (values, gradients), (expected, others) = results
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-9)
    # the smaller the scores, the larger are derivatives of flows
    size = max(1.0, *(float(x.abs().max()) for x in others), 1.0 / float(scores[1].std()))
    torch.testing.assert_close(gradients, others, rtol=0, atol=1e-9 * min(size, 10.0))


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("shape", [(4, 5, 3), (2, 12, 6), (2, 40, 3)])
def test_marginals_and_gradients(scale: float, shape: tuple[int, int, int]) -> None:
    check_equal(drawn(scale, shape))


def test_nearly_uniform_scores() -> None:
    check_equal(drawn(1e-3, (4, 5, 3)))


def test_sets_of_too_many_structures_are_left_to_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lpsmap_torch.tensor.active_set.MAX_STRUCTURES", 8)
    check_equal(drawn(0.1, (4, 5, 3)))


def test_the_slowest_are_left_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpsmap_torch.tensor.active_set.STRAGGLERS", 2)
    check_equal(drawn(1.0, (5, 9, 4)))


def test_paths_gain_several_structures_from_a_call() -> None:
    graph, _, _ = solved("tensor", drawn(1.0, (1, 60, 8)))
    assert graph.solution.iterations.item() <= 40  # one structure a call would take 79


def test_ragged_lengths() -> None:
    check_equal(drawn(1.0, (5, 6, 3)), [6, 1, 3, 0, 2])
    check_equal(drawn(1.0, (4, 20, 3)), [20, 1, 13, 2])


@pytest.mark.parametrize("mask", [-torch.inf, -1e9])
def test_masks(mask: float) -> None:
    scores = drawn(1.0, (4, 5, 3))
    scores[0][0, 2, 1] = scores[0][1, 0, 0] = mask
    scores[1][2, 1, :, 2] = mask  # nothing arrives at a state
    scores[2][3, 1:] = mask
    values = [solved(engine, scores) for engine in ("tensor", "compiled")]
    assert all(status is Status.SOLVED for status in values[0][0].solution.status)
    torch.testing.assert_close(values[0][1:], values[1][1:], rtol=0, atol=1e-9)


def test_contradictions() -> None:
    scores = drawn(1.0, (3, 4, 3))
    scores[1][1, 2] = -torch.inf  # no step is allowed
    graph, values, _ = solved("tensor", scores)
    expected = [Status.SOLVED, Status.INFEASIBLE, Status.SOLVED]
    assert list(graph.solution.status) == expected
    assert graph.solution.contradictions == {1: [(graph.factors[0], 1)]}
    torch.testing.assert_close(values[0], solved("compiled", scores)[1][0], rtol=0, atol=1e-9)


def test_one_nan_spoils_one_sequence() -> None:
    scores = drawn(1.0, (3, 4, 3))
    scores[1][1, 2, 0, 0] = torch.nan
    graph, values, additionals = solved("tensor", scores)
    assert list(graph.solution.status)[1] is Status.NON_FINITE
    for found in (values, additionals):
        assert found.flatten(1).isnan().all(1).tolist() == [False, True, False]


def test_ties_have_the_least_norm_of_derivatives() -> None:
    """Without transition scores, flows are not unique; states are, and have the Jacobian of Xor."""
    scores = normal(1, 3, 4)

    def states(x: Tensor) -> Tensor:
        return solved("tensor", [x, torch.zeros(4, 4, dtype=torch.float64)])[1]

    found = torch.autograd.functional.jacobian(states, scores).reshape(12, 12)
    expected = torch.autograd.functional.jacobian(
        lambda x: solved("compiled", [x, torch.zeros(4, 4, dtype=torch.float64)])[1], scores
    )
    torch.testing.assert_close(found, expected.reshape(12, 12), rtol=0, atol=1e-9)


def test_second_derivatives() -> None:
    inputs = [x.requires_grad_() for x in drawn(1.0, (2, 3, 2))]

    def loss(*scores: Tensor) -> Tensor:
        _, values, additionals = solved("tensor", list(scores))
        return values.pow(3).sum() + additionals.square().sum()

    # products are exact to 1e-11: differences over 1e-6 would show their rounding
    assert torch.autograd.gradcheck(loss, inputs, eps=1e-5)
    assert torch.autograd.gradgradcheck(loss, inputs, eps=1e-5)


@pytest.mark.parametrize("lengths", [None, [20, 3, 0]])
@pytest.mark.parametrize("form", [(4, 4), (3, 1, 4, 4), (1, 1, 4, 4)])
@pytest.mark.parametrize("length", [6, 20])
def test_shared_transitions_are_those_of_all_steps(
    length: int, form: tuple[int, ...], lengths: list[int] | None
) -> None:
    """Values, and first and second derivatives; additionals of all steps add up."""
    given = None if lengths is None else np.minimum(lengths, length)
    states, steps = normal(3, length, 4), normal(*form, seed=1)
    steps[..., 1, 2] = -torch.inf
    results = []
    for shape in (form, (3, length - 1, 4, 4)):
        inputs = [x.clone().requires_grad_() for x in (states, steps)]
        graph, values, additionals = solved("tensor", [inputs[0], inputs[1].expand(shape)], given)
        assert graph.solution.ok
        counts = additionals[:, 4:-4].reshape(3, -1, 4, 4).sum(1)
        loss = values.pow(3).sum() + counts.pow(3).sum() + additionals[:, :4].pow(3).sum()
        first = torch.autograd.grad(loss, inputs, create_graph=True)
        second = torch.autograd.grad(sum((normal(*x.shape) * x).sum() for x in first), inputs)
        results.append((values, counts, *first, *second))
    for found, expected in zip(*results, strict=True):
        size = max(1.0, float(expected.detach().abs().max()))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("n", [1, 3])
def test_distances_share_scores(n: int) -> None:
    scores, distances, ends = normal(n, 4, 5), normal(n, 5, seed=1), normal(n, 2, seed=2)
    lengths = [[4, 5], [2, 3], [1, 2]][:n]
    results = []
    for engine in ("tensor", "compiled"):
        inputs = [x.clone().requires_grad_() for x in (scores, distances, ends)]
        graph = TorchFactorGraph()
        u = graph.variable_from(inputs[0])
        factor = SequenceDistance(u, inputs[1], inputs[2], inputs[2], lengths=lengths)
        graph.add(factor)
        graph.solve(engine=engine)
        values = u.value, graph.additionals_of(factor)
        loss = values[0].pow(2).sum() + values[1].pow(2).sum()
        results.append((values, torch.autograd.grad(loss, inputs)))
    torch.testing.assert_close(*results, rtol=0, atol=1e-9)


def test_negated_sequences() -> None:
    scores = drawn(1.0, (2, 3, 2))
    scores[0][0, 1, 0] = -torch.inf  # the slot is on
    graph, values, _ = solved("tensor", scores, negated=True)
    torch.testing.assert_close(values, solved("compiled", scores, negated=True)[1])
    assert {row.solved_by for row in graph.plan(engine="tensor").components} == {"tensor"}


@pytest.mark.parametrize(("mask", "status"), [(-1e9, "SOLVED"), (-torch.inf, "INFEASIBLE")])
def test_masks_of_a_negated_slot_that_is_off_in_all_structures(mask: float, status: str) -> None:
    scores = normal(1, 3, 3)
    scores[0, 2, 0] = mask
    values = []
    for engine in ("tensor", "compiled"):
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        graph.add(BinaryTree(~u))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            graph.solve(engine=engine, tol=1e-11)
        assert list(graph.solution.status) == [Status[status]]
        values.append(u.value)
    if status == "SOLVED":
        torch.testing.assert_close(*values, rtol=0, atol=1e-9)


def test_budgets_beside_a_tree_are_not_copied_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [LatentTree(engine=x, budget=2, tol=1e-11) for x in ("tensor", "compiled")]
    lengths = torch.tensor([6, 5, 2, 0])
    expected = layers[1](normal(4, 6, 6), lengths=lengths)
    monkeypatch.setattr("lpsmap_torch.tensor.host_share.numbers", pytest.fail)
    found = layers[0](normal(4, 6, 6), lengths=lengths)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_what_has_variables_of_its_own_is_solved_on_the_host() -> None:
    """Constraints on other variables, additionals, or a second factor with an oracle."""
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(4, 3, 4))
    others = graph.variable_from(normal(2))
    for row in u:
        graph.add(Sequence(row, normal(4, 4, seed=1)))
    graph.add(AtMostOne([*u[0, :, 0], others[0]]))
    graph.add(Pair(u[1, 0, 0], u[1, 1, 1], 0.5))
    graph.add(Sequence(u[2], normal(4, 4, seed=2)))
    graph.add(AtMostOne(u[3, :, 0]))
    solvers = {row.solved_by: row.count for row in graph.plan(engine="tensor").components}
    assert solvers["tensor"] == 1
    found = graph.solve(engine="tensor", tol=1e-11)
    np.testing.assert_allclose(found.values, graph.solve(tol=1e-11).values, rtol=0, atol=1e-9)


def test_constraints_that_contradict_a_tree() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(2, 4, 4))
    graph.add(DepTree(u, projective=True))
    graph.add(ModifierBudget(u, [[0], [3]], root_budget=1))
    with pytest.warns(ConvergenceWarning, match="INFEASIBLE"):
        solution = graph.solve(engine="tensor")
    assert list(solution.status) == [Status.INFEASIBLE, Status.SOLVED]
    assert solution.contradictions.keys() == {0}


def test_a_limit_of_iterations_is_not_called_solved() -> None:
    graph = TorchFactorGraph()
    graph.add(DepTree(graph.variable_from(normal(2, 8, 8)), projective=True))
    for engine in ("tensor", "compiled"):
        with pytest.warns(ConvergenceWarning):
            solution = graph.solve(engine=engine, max_inner_iter=3)
        assert set(solution.status) == {Status.INNER_ITERATION_LIMIT}


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("single_root", [True, False])
def test_trees_that_may_cross(packed: bool, single_root: bool) -> None:
    results = []
    for engine in ("tensor", "compiled"):
        scores = normal(4, 7, 7).requires_grad_()
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        graph.add(DepTree(u, packed, single_root=single_root, lengths=[7, 1, 0, 4]))
        assert graph.solve(engine=engine, tol=1e-11).ok
        (gradient,) = torch.autograd.grad(u.value.pow(3).sum(), scores)
        results.append((u.value.detach(), gradient))
    torch.testing.assert_close(*results, rtol=0, atol=1e-9)


def test_words_of_a_single_root_are_tried_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = DepTree(TorchFactorGraph().variable((3, 5, 5)), single_root=True).tensor_oracle()
    assert oracle is not None
    given = normal(3, 5, 5), normal(3, 0), *map(torch.from_numpy, (*oracle.tables, *oracle.shared))
    together = oracle.best(*given)
    monkeypatch.setattr("lpsmap_factors_struct.tensor_arborescence.MAX_NUMBERS", 3 * 36 * 2)
    assert torch.equal(oracle.best(*given), together)


def test_sentences_without_words() -> None:
    graph = TorchFactorGraph()
    u = graph.variable_from(normal(2, 0, 0))
    graph.add(DepTree(u))
    assert graph.solve(engine="tensor").ok
    assert u.value.shape == (2, 0, 0)


def test_masked_declarations_are_solved_on_the_host() -> None:
    assert Alignment(TorchFactorGraph().variable((2, 3))).tensor_oracle() is not None
    masked = Masked(TorchFactorGraph().variable((2, 3)), mask=[[True, True, False]])
    assert masked.tensor_oracle() is None


class Masked(DynamicProgram):
    """At most one variable is on."""

    @classmethod
    def hypergraph(cls, row: Row, build: HypergraphBuilder) -> str:
        build.edge("goal")
        for slot in range(row.event_shape[0]):
            build.edge("goal", slots=[slot])
        return "goal"


def test_scores_of_unused_entries_have_no_effect() -> None:
    results = []
    for engine in ("tensor", "compiled"):
        scores = normal(2, 4, 4).masked_fill(torch.ones(4, 4).tril(-1).bool(), torch.nan)
        graph = TorchFactorGraph()
        u = graph.variable_from(scores.requires_grad_())
        graph.add(BinaryTree(u))
        assert graph.solve(engine=engine, tol=1e-11).ok
        (gradient,) = torch.autograd.grad(u.value[:, 0].square().sum(), scores)
        results.append((u.value, gradient))
    torch.testing.assert_close(*results, rtol=0, atol=1e-9)


def test_several_declarations_of_a_type_share_a_batch() -> None:
    """An oracle is called for all of them at once; their graphs have lengths of their own."""
    results = []
    for engine in ("tensor", "compiled"):
        scores = [normal(2, 4, 4, seed=i) for i in range(3)]
        graph = TorchFactorGraph()
        views = [graph.variable_from(x) for x in scores]
        graph.add(DepTree(views[0], projective=True, lengths=[4, 2]))
        graph.add(DepTree(views[1], projective=True, lengths=[3, 4]))
        graph.add(Xor(views[2]))
        graph.solve(engine=engine, tol=1e-11)
        results.append([u.value for u in views])
    torch.testing.assert_close(*results, rtol=0, atol=1e-9)


def test_layers_train_their_parameters() -> None:
    scores = normal(3, 4, 5)
    lengths = torch.tensor([[4, 5], [3, 4], [1, 1]])
    results = []
    for engine in ("tensor", "compiled"):
        layer = SequenceAttention(engine=engine, dtype=torch.float64)
        with torch.no_grad():
            layer.distances.copy_(torch.linspace(-1.0, 1.0, 5))
            layer.initial.copy_(torch.tensor([0.4, -0.2]))
        found = layer(scores, lengths=lengths)
        (normal(3, 4, 5, seed=1) * found).sum().backward()
        results.append((found.detach(), layer.distances.grad, layer.initial.grad))
    torch.testing.assert_close(*results, rtol=0, atol=1e-9)


def test_layers_take_scores_of_transitions() -> None:
    states, _, *_ = drawn(1.0, (2, 3, 2))
    additionals = normal(2, 2 * 2 + 2 * 4, seed=5)
    found, expected = (
        SparseMAP(Sequence, engine=engine)(states, additionals) for engine in ("tensor", "compiled")
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_batches_of_gradients_complete_faces() -> None:
    layer, scores = SparseMAP(DepTree, engine="tensor"), normal(2, 3, 3)
    each, whole = (
        torch.autograd.functional.jacobian(layer, scores, vectorize=vectorized)
        for vectorized in (False, True)
    )
    torch.testing.assert_close(whole, each, rtol=0, atol=1e-12)


def test_layers_work_under_vmap() -> None:
    """Active sets read numbers of the device, which transforms do not have."""
    layer, scores = SparseMAP(BinaryTree, engine="tensor", tol=1e-11), normal(3, 2, 4, 4)
    found = torch.func.vmap(layer)(scores)
    torch.testing.assert_close(found, layer(scores), rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_bytes", [0, 2**20])
def test_batches_that_do_not_fit_memory_are_split(
    monkeypatch: pytest.MonkeyPatch, n_bytes: int
) -> None:
    monkeypatch.setattr("lpsmap_torch.tensor.problem.batch_bytes", lambda device: n_bytes)
    check_equal(drawn(1.0, (5, 6, 3)), [6, 1, 3, 0, 2])


def test_batches_take_half_of_the_unused_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (6_000, 10_000))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda device: 2_500)
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda device: 500)
    assert batch_bytes(torch.device("cuda", 1)) == 4_000
    assert batch_bytes(torch.device("cpu")) == 2**32


def test_two_runs_have_the_same_bits() -> None:
    scores = drawn(1.0, (8, 6, 4))
    runs = [solved("tensor", scores)[1:] for _ in range(2)]
    assert all(torch.equal(*both) for both in zip(*runs, strict=True))


def test_an_empty_batch() -> None:
    assert solved("tensor", drawn(1.0, (0, 4, 3)))[1].shape == (0, 4, 3)
    assert np.array_equal(solved("tensor", drawn(1.0, (0, 4, 3)))[1], np.zeros((0, 4, 3)))
