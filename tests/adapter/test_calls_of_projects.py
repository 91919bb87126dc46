"""The calls that projects make of the earlier library run unchanged, and give the exact answer.

(The paper's listings are in test_training.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

import judges
from lpsmap import Budget, DepTree, Pair, SequenceBudget, TorchFactorGraph

FloatArray = npt.NDArray[np.float64]


def projected(
    scores: torch.Tensor,
    m: FloatArray,
    n: FloatArray | None = None,
    eta_v: FloatArray | None = None,
) -> torch.Tensor:
    """What the judge says of a factor of these structures, in the scores' shape."""
    z, _ = judges.project_polytope(
        m,
        np.zeros((len(m), 0)) if n is None else n,
        scores.detach().double().numpy().reshape(-1),
        np.empty(0) if eta_v is None else eta_v,
        np.ones(scores.numel()),
    )
    return torch.from_numpy(z.reshape(scores.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("budget", [0, 2, 5])
def test_rationales(budget: int, forced: bool, dtype: torch.dtype) -> None:
    """One state is the rationale; the transitions come flat, 2 S + (L - 1) S^2 of them."""
    torch.manual_seed(budget)
    length, n_states = 5, 2
    unary_scores = torch.randn(length, n_states, dtype=dtype, requires_grad=True)
    between = torch.zeros(length + 1, n_states, n_states, dtype=dtype)
    between[1:length, 0, 0] = 0.4
    transition_scores = between.reshape(-1)[n_states:-n_states].requires_grad_()

    fg = TorchFactorGraph()
    u = fg.variable_from(unary_scores)
    if forced:
        fg.add(SequenceBudget(u, transition_scores, budget, force_budget=True))
    else:
        fg.add(SequenceBudget(u, transition_scores, budget))
    fg.solve(max_iter=1, step_size=0)
    z = u.value[:, 0]

    m, steps = judges.sequences(length, n_states)
    states = m.reshape(-1, length, n_states)
    n = np.concatenate([states[:, 0], steps, states[:, -1]], axis=1)
    visits = states[..., 0].sum(axis=1)
    kept = visits == budget if forced else visits <= budget
    eta_v = transition_scores.detach().double().numpy()
    expected = projected(unary_scores, m[kept], n[kept], eta_v)
    torch.testing.assert_close(z.double(), expected[:, 0], atol=1e-6, rtol=0)
    assert z.sum().item() <= budget + 1e-5
    z.sum().backward()
    assert unary_scores.grad is not None
    assert unary_scores.grad.isfinite().all()


@pytest.mark.parametrize("k", [1, 2, 4])
def test_exactly_k_of_a_vector(k: int) -> None:
    torch.manual_seed(k)
    scores = torch.randn(6, 3, dtype=torch.float64)
    marginals = torch.zeros_like(scores)
    for j in range(scores.shape[1]):
        fg = TorchFactorGraph()
        u = fg.variable_from(scores[:, j])
        fg.add(Budget(u, k, force_budget=True))
        fg.solve(verbose=0)
        marginals[:, j] = u.value[:]
        expected = projected(scores[:, j], judges.budget(6, k, exact=True)[0])
        torch.testing.assert_close(marginals[:, j], expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("projective", [False, True])
def test_one_tree_at_a_time(projective: bool) -> None:
    """Heads in rows, transposed and back; ADMM is switched off."""
    torch.manual_seed(0)
    arc_scores = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    fg = TorchFactorGraph()
    u = fg.variable_from(arc_scores.transpose(0, 1).clone())
    fg.add(DepTree(u, packed=True, projective=projective))
    fg.solve(max_iter=1, max_inner_iter=50, step_size=0)
    marginals = u.value.transpose(0, 1)

    trees = np.array(judges.tree_heads(4))
    if projective:
        trees = np.array([heads for heads in trees if not crossing(heads)])
    expected = projected(arc_scores.T, np.eye(4)[trees].reshape(-1, 16)).T
    torch.testing.assert_close(marginals, expected, atol=1e-8, rtol=0)
    marginals[0, 1].backward()
    assert arc_scores.grad is not None
    assert arc_scores.grad.isfinite().all()


def crossing(heads: npt.NDArray[np.int64]) -> bool:
    """Whether two arcs cross; a word that heads itself hangs from a root before the sentence."""
    arcs = [sorted((-1 if head == word else head, word)) for word, head in enumerate(heads)]
    return any(a < c < b < d for a, b in arcs for c, d in arcs)


def test_a_slice_of_one_score_for_one_pair() -> None:
    values, gradients = [], []
    for cut in (slice(0, 1), 0):
        scores = torch.tensor([0.9, 0.8], requires_grad=True)
        t = torch.tensor([-0.3, 5.0], requires_grad=True)
        graph = TorchFactorGraph()
        u = graph.variable_from(scores)
        pair = graph.add(Pair(u[0], u[1], t[cut]))
        graph.solve()
        (u.value[0] + 2.0 * pair.additionals_value).sum().backward()
        values.append(u.value.detach())
        gradients.append(torch.cat([scores.grad, t.grad]))
    torch.testing.assert_close(*values, rtol=0, atol=0)
    torch.testing.assert_close(*gradients, rtol=0, atol=0)
    assert float(gradients[0].abs().sum()) > 0.0
    with pytest.raises(ValueError, match=r"Pair: scores has shape \(2,\)"):
        Pair(u[0], u[1], t)
