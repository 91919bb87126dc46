"""Layers at a temperature: the solutions for all scores divided by it, with its gradient."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import judges
from layer_cases import CASES, Case, every_layer, normal, trained
from lpsmap import AtMostOne, Sequence, Xor
from lpsmap_core import ConvergenceWarning
from lpsmap_torch.layers import (
    LPMatchingAttention,
    LPSequenceAttention,
    Rationale,
    SequenceAttention,
    SparseMAP,
    TopK,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

double = torch.float64


def divided(layer: nn.Module, temperature: float) -> nn.Module:
    """Return a copy at temperature 1 whose parameters are divided."""
    other = copy.deepcopy(layer)
    other.temperature = 1.0
    with torch.no_grad():
        for parameter in other.parameters():
            parameter /= temperature
    return other


@every_layer
@pytest.mark.parametrize("temperature", [0.37, 2.3])
def test_a_number_divides_all_scores(case: Case, temperature: float) -> None:
    layer, scores = trained(case), normal(3, *case.shape)
    other = divided(layer, temperature)
    layer.temperature = temperature
    found, expected = layer(scores), other(scores / temperature)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    d = normal(*found.shape, seed=5).detach()
    mine = torch.autograd.grad(found, (scores, *layer.parameters()), d)
    theirs = torch.autograd.grad(expected, (scores, *other.parameters()), d)
    torch.testing.assert_close(mine[0], theirs[0], rtol=0, atol=1e-12)
    for one, another in zip(mine[1:], theirs[1:], strict=True):
        torch.testing.assert_close(one, another / temperature, rtol=0, atol=1e-12)
    layer.temperature = torch.tensor(temperature, dtype=double)
    torch.testing.assert_close(layer(scores), expected, rtol=0, atol=1e-12)


@every_layer
def test_gradients_in_scores_parameters_and_temperatures(case: Case) -> None:
    """A temperature for all, and one for each instance."""
    layer = trained(case)
    layer.tol = 1e-10
    names = [name for name, _ in layer.named_parameters()]
    own = list(layer.parameters())
    for shape in ((), (2,), (2, 1)):
        layer.temperature = torch.ones(shape, dtype=double)

        def function(scores: Tensor, temperature: Tensor, *parameters: Tensor) -> Tensor:
            given = dict(zip(names, parameters, strict=True))
            given["temperature"] = temperature.exp()
            found: Tensor = torch.func.functional_call(layer, given, (scores,))
            return found

        batch = (2, 1) if shape == (2, 1) else (2,)
        logarithms = normal(*(shape or (1,)), seed=4).detach().reshape(shape).requires_grad_()
        inputs = normal(*batch, *case.shape, seed=3), logarithms, *own
        assert torch.autograd.gradcheck(function, inputs, atol=1e-5)
        assert torch.autograd.gradgradcheck(function, inputs, atol=1e-5, fast_mode=True)


@every_layer
def test_every_instance_has_its_temperature(case: Case) -> None:
    layer, scores = trained(case), normal(2, 3, *case.shape)
    values = torch.linspace(0.4, 3.0, 6, dtype=double).reshape(2, 3)
    for temperature in (values, values[0], values[:, :1], values[:1, :1]):
        layer.temperature = nn.Buffer(temperature) if hasattr(nn, "Buffer") else temperature
        found = layer(scores)
        whole = temperature.expand(2, 3)
        for i in range(2):
            for j in range(3):
                t = float(whole[i, j])
                one = divided(layer_at_one(case), t)(scores[i, j] / t)
                torch.testing.assert_close(found[i, j], one, rtol=0, atol=2e-6)


def layer_at_one(case: Case) -> nn.Module:
    return trained(case)


@every_layer
@pytest.mark.parametrize("scalar", [True, False])
def test_structures_at_a_temperature(case: Case, scalar: bool) -> None:
    """Their mean is the marginals, also in gradients; their scores are not divided."""
    layer, scores = trained(case), normal(3, *case.shape)
    values = [0.5, 0.8, 1.7]
    temperature = nn.Parameter(torch.tensor(0.7 if scalar else values, dtype=double))
    layer.temperature = temperature
    found = layer.structures(scores)
    assert found.probabilities.dtype == scores.dtype
    if isinstance(layer, (LPMatchingAttention, LPSequenceAttention)):
        return
    variables = found.variables[..., 1] if case.shown > 1 else found.variables
    mean = torch.einsum("bk,bk...->b...", found.probabilities, variables)
    marginals = layer(scores)
    torch.testing.assert_close(mean, marginals, rtol=0, atol=2e-6)
    d = normal(*mean.shape, seed=9).detach()
    inputs = scores, *layer.parameters()
    gradients = [torch.autograd.grad(x, inputs, d) for x in (mean, marginals)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
    plain = trained(case).structures(scores)
    known = {
        (i, s.variables.tobytes(), s.additionals.tobytes()): s.score
        for i, each in enumerate(plain)
        for s in each
    }
    same = 0
    for i, each in enumerate(found):
        for s in each:
            key = i, s.variables.tobytes(), s.additionals.tobytes()
            same += key in known
            assert s.score == pytest.approx(known.get(key, s.score), abs=1e-12)
    assert same > 0


def test_structures_of_the_tensor_engine_have_the_given_scores() -> None:
    scores = torch.tensor([[1.0, 4.0, 2.0]], dtype=double)
    layer = SparseMAP(Xor, engine="tensor", temperature=0.5)
    (only,) = layer.structures(scores)[0]
    assert only.score == 4.0
    assert layer(scores).tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize("engine", ["tensor", "tensor-fixed"])
def test_on_the_device(engine: str) -> None:
    from lpsmap_torch.tensor.device_solution import ENGINES

    if engine not in ENGINES:
        engine = next(name for name in ENGINES if name != "tensor")
    scores = normal(3, 4, 3)
    t = nn.Parameter(torch.tensor([0.3, 1.0, 4.0], dtype=double))
    core, tensor = LPMatchingAttention(tol=1e-10), LPMatchingAttention(engine=engine, tol=1e-10)
    core.temperature = tensor.temperature = t
    one, other = core(scores), tensor(scores)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-8)
    d = normal(*one.shape, seed=2).detach()
    for a, b in zip(
        torch.autograd.grad(one, (scores, t), d),
        torch.autograd.grad(other, (scores, t), d),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


# -------------------------------------------------------------------- extremes


@pytest.mark.parametrize("temperature", [1e-8, 1e-4, 0.1, 10.0, 1e4, 1e8])
@pytest.mark.parametrize("name", ["TopK", "Rationale", "LPMatchingAttention", "LatentTree"])
def test_extremes_are_the_judges(name: str, temperature: float) -> None:
    """Near 0 the best structure by enumeration, otherwise the solution of a quadratic program."""
    case = CASES[name]
    layer, scores = trained(case), normal(4, *case.shape, seed=8).detach()
    layer.temperature = temperature
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = layer(scores).detach().numpy()
        except ConvergenceWarning as warning:  # an honest status is no wrong answer
            assert "PRECISION_LIMIT" in str(warning) and temperature < 1e-6
            return
    other = divided(layer, temperature)
    for values, eta in zip(found, scores.numpy(), strict=True):
        whole = np.zeros((eta.size, case.shown))
        whole[:, 0] = eta.reshape(-1)
        factors = case.factors(other, case.shape)
        if temperature >= 0.1:
            mu, _, _ = judges.solve_graph(whole.reshape(-1) / temperature, factors, 1e-8)
            expected = mu.reshape(-1, case.shown)[:, 0].reshape(case.shape)
            np.testing.assert_allclose(values, expected, atol=1e-5)
        elif len(factors) == 1:
            (factor,) = factors
            worth = factor.vertices_m @ whole.reshape(-1)
            if np.size(factor.vertices_n):
                worth = worth + temperature * (factor.vertices_n @ factor.eta_v)
            order = np.sort(worth)
            assert order[-1] - order[-2] > 10 * temperature  # so that the best is the solution
            best = factor.vertices_m[worth.argmax()].reshape(-1, case.shown)[:, 0]
            np.testing.assert_allclose(values.reshape(-1), best, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_masks_and_low_precision(dtype: torch.dtype) -> None:
    """Masks overflow neither at low temperatures nor in gradients of the temperature."""
    for mask in (-torch.inf, -1e9, torch.finfo(dtype).min):
        for t in (1e-3, 0.5, 20.0):
            for tensor in (False, True):
                scores = torch.tensor([[0.25, mask, 0.125], [mask, mask, 0.5]], dtype=dtype)
                scores.requires_grad_()
                temperature = nn.Parameter(torch.tensor(t)) if tensor else t
                found = SparseMAP(Xor, temperature=temperature)(scores)
                assert found.dtype == dtype
                found[:, 0].sum().backward()
                gap = min(0.125 / t, 1.0)
                expected = torch.tensor([[0.5 + gap / 2, 0.0, 0.5 - gap / 2], [0.0, 0.0, 1.0]])
                accuracy = 4 * torch.finfo(dtype).eps
                torch.testing.assert_close(found.float(), expected, rtol=0, atol=accuracy)
                assert torch.isfinite(scores.grad).all()
                if tensor:
                    slope = -0.125 / (2 * t * t) if t > 0.125 else 0.0
                    torch.testing.assert_close(float(temperature.grad), slope, rtol=1e-5, atol=1e-9)
    uniform = torch.full((1, 3), torch.finfo(dtype).min, dtype=dtype)
    found = SparseMAP(Xor, temperature=0.25)(uniform)  # a fully masked row stays uniform
    torch.testing.assert_close(found.float(), torch.full((1, 3), 1 / 3), rtol=0, atol=1e-2)


def test_padding_may_have_any_values() -> None:
    scores = torch.tensor([[0.3, 0.1, torch.nan], [1.0, torch.inf, -torch.inf]], dtype=double)
    scores.requires_grad_()
    lengths = torch.tensor([2, 1])
    temperature = nn.Parameter(torch.tensor(2.0, dtype=double))
    layer = Rationale(1, 0.5, temperature=temperature)
    layer(scores, lengths=lengths).sum().backward()
    for each in (scores.grad, temperature.grad, layer.transition.grad):
        assert torch.isfinite(each).all()


def test_forbidden_transitions_have_finite_gradients() -> None:
    layer = SparseMAP(Sequence, temperature=nn.Parameter(torch.tensor(0.5, dtype=double)))
    additionals = torch.zeros(2 * 2 + 2 * 2, dtype=double)
    additionals[3] = -torch.inf
    additionals.requires_grad_()
    layer(normal(2, 2, 2), additionals).square().sum().backward()
    assert torch.isfinite(layer.temperature.grad)
    assert torch.isfinite(additionals.grad).all()


def test_empty_batches() -> None:
    for temperature in (0.5, torch.tensor(0.5), torch.ones(0), torch.ones(0, 1)):
        batch = (0, 3) if getattr(temperature, "ndim", 0) == 2 else (0,)
        scores = normal(*batch, 5)
        layer = Rationale(2, temperature=temperature)
        layer(scores).sum().backward()
        assert scores.grad.shape == scores.shape
        assert len(layer.structures(scores)) == 0


@pytest.mark.filterwarnings("ignore:lpsmap. Components were not solved")
def test_nan_passes() -> None:
    scores = torch.tensor([[0.3, torch.nan], [0.3, 0.1]], dtype=double)
    for temperature in (0.5, torch.tensor(0.5)):
        found = SparseMAP(Xor, temperature=temperature)(scores)
        assert found[0].isnan().all()
        assert not found[1].isnan().any()


# -------------------------------------------------------------------- what a temperature can be


@pytest.mark.parametrize("bad", [0, 0.0, -1.0, float("nan"), float("inf"), np.float32(-1.0)])
def test_other_numbers(bad: Any) -> None:
    with pytest.raises(ValueError, match="TopK: temperature: got .*; expected a positive number"):
        TopK(2, temperature=bad)
    layer = TopK(2)
    with pytest.raises(ValueError, match="TopK: temperature: got .*; expected a positive number"):
        layer.temperature = bad
    assert layer.temperature == 1.0


@pytest.mark.parametrize(
    "bad",
    [True, None, "0.5", [1.0], np.ones(2), 1j, torch.tensor(1), torch.tensor(True)],
    ids=str,
)
def test_other_types(bad: Any) -> None:
    with pytest.raises(TypeError, match="Rationale: temperature: got .*; expected a positive"):
        Rationale(2, temperature=bad)
    layer = Rationale(2)
    with pytest.raises(TypeError, match="Rationale: temperature: got"):
        layer.temperature = bad


@pytest.mark.parametrize("bad", [0.0, -0.5, float("nan"), float("inf")])
def test_tensors_of_other_values(bad: float) -> None:
    for temperature in (torch.tensor(bad), torch.tensor([1.0, bad])):
        layer = SparseMAP(Xor, temperature=temperature)
        with pytest.raises(ValueError, match=r"SparseMAP: temperature: got .*expected a positive"):
            layer(normal(2, 3))


@pytest.mark.filterwarnings("ignore:lpsmap. Components were not solved")
@pytest.mark.parametrize("bad", [0.0, -0.5, float("nan"), float("inf")])
def test_tensors_that_cannot_be_read_give_nan(bad: float) -> None:
    layer, scores = SparseMAP(Xor, temperature=torch.tensor(1.0)), normal(2, 2, 3)

    def at(temperature: Tensor, one: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(layer, {"temperature": temperature}, (one,))
        return found

    found = torch.func.vmap(at)(torch.tensor([1.0, bad]), scores)
    assert found[1].isnan().all()
    torch.testing.assert_close(found[0], SparseMAP(Xor)(scores[0]))
    layer.temperature.fill_(bad)
    torch.compiler.reset()
    assert torch.compile(layer, fullgraph=True, backend="eager")(scores).isnan().all()


@pytest.mark.parametrize("shape", [(2,), (3, 1), (1, 3, 1)])
def test_other_shapes(shape: tuple[int, ...]) -> None:
    layer = TopK(2, temperature=torch.ones(shape))
    with pytest.raises(ValueError, match=r"TopK: temperature has shape .*broadcasts to \(3,\)"):
        layer(normal(3, 5))


def test_other_devices_and_layouts() -> None:
    layer = TopK(2, temperature=torch.ones((), device="meta"))
    with pytest.raises(TypeError, match="meta tensor"):
        layer(normal(3, 5))
    layer = TopK(2, temperature=torch.ones(3).to_sparse())
    with pytest.raises(TypeError, match="temperature: got a tensor of layout"):
        layer(normal(3, 5))


def test_one_element_serves_any_batch() -> None:
    layer = TopK(2, temperature=nn.Parameter(torch.ones(1) / 2))
    for batch in ((), (3,), (2, 3)):
        assert layer(normal(*batch, 5)).shape == (*batch, 5)


def test_schedules() -> None:
    """Numbers are replaced, tensors are filled; lower temperatures keep fewer words."""
    scores = normal(1, 12)
    layer = Rationale(3)
    kept = []
    for t in (4.0, 1.0, 0.2, 1e-3):
        layer.temperature = t
        kept.append(int((layer(scores) > 0).sum()))
        tensor = Rationale(3, temperature=torch.tensor(1.0))
        tensor.temperature.fill_(t)
        torch.testing.assert_close(tensor(scores), layer(scores))
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] == 3
    layer.temperature = nn.Parameter(torch.tensor(0.2))
    assert [name for name, _ in layer.named_parameters()] == ["transition", "temperature"]
    with pytest.raises(TypeError, match="as parameter 'temperature'"):
        layer.temperature = 0.5


def test_kinds() -> None:
    number = TopK(2, temperature=np.float32(0.5))
    assert type(number.temperature) is float
    assert not list(number.parameters()) and not number.state_dict()
    buffer = TopK(2, temperature=torch.tensor(0.5))
    assert list(buffer.state_dict()) == ["temperature"] and not list(buffer.parameters())
    assert buffer.double().temperature.dtype == double
    number.temperature = torch.tensor(2.0)
    assert list(number.state_dict()) == ["temperature"]
    number.temperature = torch.tensor(3.0)
    assert number.temperature == 3.0
    parameter = TopK(2, temperature=nn.Parameter(torch.tensor(0.5)))
    assert [name for name, _ in parameter.named_parameters()] == ["temperature"]
    other = TopK(2, temperature=nn.Parameter(torch.tensor(1.0)))
    other.load_state_dict(parameter.state_dict())
    assert other.temperature == 0.5
    assert "temperature" not in repr(TopK(2))
    assert "temperature=0.25" in repr(TopK(2, temperature=0.25))
    assert "temperature=<parameter of shape ()>" in repr(parameter)
    assert "temperature=<tensor of shape (3,)>" in repr(TopK(2, temperature=torch.ones(3)))


@pytest.mark.parametrize(
    "temperature", [0.3, torch.tensor(0.3), nn.Parameter(torch.tensor(0.3))], ids=type
)
def test_copies(temperature: Any) -> None:
    layer, scores = Rationale(2, 0.4, temperature=temperature), normal(3, 6)
    expected = layer(scores)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        torch.load(file, weights_only=False),
    ):
        assert torch.equal(other(scores), expected)
        assert type(other.temperature) is type(layer.temperature)


def test_parametrized_temperatures() -> None:
    layer = TopK(2, temperature=nn.Parameter(torch.tensor(0.0)))
    parametrize.register_parametrization(layer, "temperature", nn.Softplus())
    scores = normal(3, 5)
    expected = TopK(2, temperature=float(np.log(2.0)))(scores)
    found = layer(scores)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    found.square().sum().backward()
    assert torch.isfinite(layer.parametrizations.temperature.original.grad)


def test_changes_between_forward_and_backward() -> None:
    """The gradient is that at the temperature of the forward pass, or an error."""
    scores = normal(2, 5)
    expected = TopK(2, temperature=0.5)(scores)
    (wanted,) = torch.autograd.grad(expected.square().sum(), scores)
    for dtype in (torch.float32, double):
        layer = TopK(2, temperature=torch.tensor(0.5, dtype=dtype))
        loss = layer(scores).square().sum()
        layer.temperature.fill_(3.0)
        (found,) = torch.autograd.grad(loss, scores)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    layer = TopK(2, temperature=0.5)
    loss = layer(scores).square().sum()
    layer.temperature = 3.0
    (found,) = torch.autograd.grad(loss, scores)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    parameter = nn.Parameter(torch.tensor(0.5, dtype=double))
    layer = TopK(2, temperature=parameter)
    loss = layer(scores).square().sum()
    (wanted,) = torch.autograd.grad(loss, parameter, retain_graph=True)
    with torch.no_grad():
        parameter.fill_(3.0)
    (found,) = torch.autograd.grad(loss, parameter)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


# -------------------------------------------------------------------- transforms and programs


def test_forward_mode_and_vmap() -> None:
    layer = SequenceAttention(temperature=torch.tensor(1.0, dtype=double)).double()
    scores = normal(3, 3, 4).detach()
    temperatures = torch.tensor([0.4, 1.0, 2.5], dtype=double)

    def at(temperature: Tensor, one: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(layer, {"temperature": temperature}, (one,))
        return found

    together = torch.func.vmap(at)(temperatures, scores)
    layer.temperature = temperatures
    torch.testing.assert_close(together, layer(scores), rtol=0, atol=1e-6)
    forward = torch.func.vmap(torch.func.jacfwd(at))(temperatures, scores)
    reverse = torch.func.vmap(torch.func.jacrev(at))(temperatures, scores)
    torch.testing.assert_close(forward, reverse, rtol=0, atol=1e-8)
    _, tangent = torch.func.jvp(
        at, (temperatures[0], scores[0]), (torch.tensor(1.0, dtype=double), scores[0])
    )
    (difference,) = [
        at(temperatures[0] + h, scores[0] * (1 + h)) - at(temperatures[0] - h, scores[0] * (1 - h))
        for h in (1e-6,)
    ]
    torch.testing.assert_close(tangent, difference / 2e-6, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["number", "buffer", "parameter", "per instance"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled(kind: str, backend: str) -> None:
    temperature = {
        "number": 0.4,
        "buffer": torch.tensor(0.4),
        "parameter": nn.Parameter(torch.tensor(0.4)),
        "per instance": nn.Parameter(torch.tensor([0.4, 1.0, 3.0])),
    }[kind]
    torch.compiler.reset()
    layer = Rationale(2, 0.3, temperature=temperature)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    scores = normal(3, 6, dtype=torch.float32)
    inputs = scores, *layer.parameters()
    one, other = layer(scores), compiled(scores)
    torch.testing.assert_close(one, other)
    d = torch.randn(one.shape)
    for a, b in zip(
        torch.autograd.grad(one, inputs, d), torch.autograd.grad(other, inputs, d), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    if kind == "buffer":  # a schedule without recompilation
        layer.temperature.fill_(2.0)
        torch.testing.assert_close(layer(scores), compiled(scores))
    if kind == "number":
        layer.temperature = 2.0
        torch.testing.assert_close(layer(scores), compiled(scores))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("tensor", [False, True])
def test_exported(tensor: bool, strict: bool) -> None:
    temperature = nn.Parameter(torch.tensor(0.4)) if tensor else 0.4
    layer = Rationale(2, 0.3, temperature=temperature)
    scores = normal(3, 6, dtype=torch.float32).detach()
    program = torch.export.export(layer, (scores,), strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    assert torch.equal(loaded(scores), layer(scores))
    assert ("temperature" in dict(loaded.named_parameters())) == tensor


def test_compiled_code_is_shared_by_temperatures_that_are_tensors() -> None:
    one, other = (TopK(2, temperature=torch.tensor(t)) for t in (0.5, 2.0))
    assert one._name == other._name == TopK(2)._name


def test_autocast() -> None:
    layer = Rationale(2, 0.4, temperature=nn.Parameter(torch.tensor(0.5)))
    scores = torch.randn(3, 6, 4) @ torch.randn(4, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = layer((torch.randn(3, 6, 4) @ torch.randn(4, 1))[..., 0])
    assert half.dtype == torch.bfloat16
    half.square().sum().backward()
    assert layer.temperature.grad.dtype == torch.float32
    assert scores.dtype == torch.float32


def test_at_one_nothing_is_divided() -> None:
    """No operation is added, whatever the kind of number."""
    plain = torch.export.export(TopK(2), (torch.zeros(2, 4),))
    at_one = torch.export.export(TopK(2, temperature=1), (torch.zeros(2, 4),))
    targets = [[str(n.target) for n in each.graph.nodes] for each in (plain, at_one)]
    assert targets[0] == targets[1]
    assert not any("div" in target for target in targets[0])


def test_other_factor_types_take_it() -> None:
    scores = normal(2, 4)
    layer = SparseMAP(AtMostOne, temperature=0.5, max_iter=10)
    torch.testing.assert_close(layer(scores), SparseMAP(AtMostOne)(scores / 0.5))
    assert "temperature=0.5" in repr(layer)
