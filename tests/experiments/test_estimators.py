"""The comparison of estimators at toy size."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.estimators import EXPERIMENT
from experiments.estimators.model import LatentModel, accuracy, objective, sparsity
from experiments.estimators.report import report
from experiments.estimators.settings import OF_SIZE, TASKS, Settings
from experiments.estimators.variants import VARIANTS, Variant
from experiments.records import Record, read_records
from experiments.runs import Row, Runner
from lpsmap_torch.layers import Rationale

by_name = {variant.name: variant for variant in VARIANTS}

TOY = dict(zip(TASKS, OF_SIZE["toy"], strict=True))

every_task = pytest.mark.parametrize("task", TASKS)


def first_batch(data: Path, task: str) -> tuple[LatentModel[Any], Any]:
    """Return a network with random parameters in double precision, and test instances."""
    torch.manual_seed(0)
    loaded = TOY[task].load(data)
    model = loaded.model(1.0).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model, loaded.test[0]


def one_hot_structures(scores: Tensor, task: str) -> Tensor:
    """Return all structures of one instance, (n, *scores.shape), by enumeration."""
    n = scores.shape[-1]
    if task == "rationales":
        every = torch.tensor(list(itertools.product((0.0, 1.0), repeat=n)), dtype=scores.dtype)
        return every[every.sum(-1) <= 3]
    found = []
    for heads in itertools.product(range(n), repeat=n):
        reached = {m for m in range(n) if heads[m] == m}
        for _ in range(n):
            reached |= {m for m in range(n) if heads[m] in reached}
        if len(reached) == n:
            found.append(torch.eye(n, dtype=scores.dtype)[list(heads)])
    return torch.stack(found)


def few_words(batch: Any, task: str) -> Any:
    """Return the first instance of a batch, cut to few words for enumeration."""
    if task == "trees":
        return replace(
            batch,
            tokens=batch.tokens[:1, :5],
            heads=batch.heads[:1, :5],
            labels=batch.labels[:1, :5].clamp(min=0),
            lengths=torch.tensor([5]),
        )
    n = min(6, int(batch.lengths[0, 1]))
    return batch._replace(
        hypothesis=batch.hypothesis[:1, :n], lengths=torch.tensor([[1, n]]), labels=batch.labels[:1]
    )


@pytest.mark.compiled
@every_task
@pytest.mark.parametrize("name", [v.name for v in VARIANTS if v.samples])
def test_score_functions_estimate_the_gradient_of_the_expected_cost(
    data: Path, task: str, name: str
) -> None:
    """The mean over many samples is close to the gradient by enumeration."""
    model, batch = first_batch(data, task)
    batch = few_words(batch, task)
    parameters = [p for p in model.parameters() if p.requires_grad]
    scores = model.scores(batch)
    every = one_hot_structures(scores[0], task)
    total = (every * scores).flatten(1).sum(-1)
    if isinstance(model.layer, Rationale):
        neighbours = (every[:, 1:] * every[:, :-1]).sum(-1)
        total = total + model.layer.transition * neighbours
    log_p = total.log_softmax(0)
    places = (model.labels(batch) >= 0).sum()
    expected = (log_p.exp() * model.costs(batch, every[:, None])[:, 0]).sum() / places
    exact = torch.autograd.grad(expected, parameters, allow_unused=True)
    variant = replace(by_name[name], samples=20000)
    loss = objective(model, batch, variant, 0.0)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = [(a, b) for a, b in zip(exact, found, strict=True) if a is not None and b is not None]
    a, b = (torch.cat([x.flatten() for x in side]) for side in zip(*pairs, strict=True))
    assert (a - b).norm() < 0.1 * a.norm()
    assert loss.item() == pytest.approx(expected.item(), rel=0.05)


@pytest.mark.compiled
@every_task
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_every_variant_trains_all_parameters(data: Path, task: str, variant: Variant) -> None:
    model, batch = first_batch(data, task)
    objective(model, batch, variant, 0.1).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert model.layer.estimator is not None


@every_task
def test_a_cost_does_not_depend_on_the_batch(data: Path, task: str) -> None:
    model, batch = first_batch(data, task)
    lengths = model.lengths(batch)
    costs = model.costs(batch, model.layer(model.scores(batch), lengths=lengths))
    assert model.present(batch).sum() == (lengths**model.layer.event_ndim).sum()
    for i, cost in enumerate(costs):
        alone = type(batch)(*(part[i : i + 1] for part in parts_of(batch)))
        values = model.layer(model.scores(alone), lengths=model.lengths(alone))
        torch.testing.assert_close(model.costs(alone, values)[0], cost)


def parts_of(batch: Any) -> tuple[Tensor, ...]:
    """Return the tensors of a batch."""
    return tuple(batch) if isinstance(batch, tuple) else tuple(vars(batch).values())


@pytest.mark.compiled
@every_task
def test_measures(data: Path, task: str) -> None:
    """Structures have one arc a word, or three words; Gibbs marginals have weight everywhere."""
    model, batch = first_batch(data, task)
    lengths = model.lengths(batch).double()
    found = {v.name: sparsity(model, [batch], v) for v in VARIANTS}
    assert found["marginals"] == {"nonzero": 100.0, "structures": None}
    for name in ("MAP, SPIGOT", "sample, straight-through"):
        share = lengths.sum() / (lengths**2).sum()
        if task == "trees":
            assert found[name]["nonzero"] == pytest.approx(100 * share.item())
        assert found[name]["structures"] == 1.0
    assert found["sparsemap"]["structures"] >= 1.0
    warm, cold = (found[name]["nonzero"] for name in ("sparsemap", "sparsemap, T=0.3"))
    assert warm == cold  # the temperature is the model's
    model.layer.temperature = 0.1
    assert sparsity(model, [batch], by_name["sparsemap"])["nonzero"] < warm
    with torch.no_grad():
        values = model.layer.decode(model.scores(batch), lengths=model.lengths(batch))
        hits = (model.predict(batch, values).argmax(-1) == model.labels(batch)).sum()
    total = (model.labels(batch) >= 0).sum()
    assert accuracy(model, [batch], "map") == pytest.approx(100 * (hits / total).item())


ROWS = EXPERIMENT.rows("toy", None)


@pytest.mark.compiled
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_run(runner: Runner, row: Row) -> None:
    result = runner.result_of(row)
    page = EXPERIMENT.report(list(read_records(runner.out)), runner.out)
    if row.name == "timing":
        for task in TASKS:
            times = result["milliseconds"][task]
            assert list(times) == [variant.name for variant in VARIANTS]
            assert min(times.values()) > 0.0
        return
    settings: Settings = row.settings
    assert 0.0 <= result["test"]["accuracy"] <= 100.0
    assert 0.0 < result["test"]["nonzero"] <= 100.0
    assert len(result["curve"]) == 3
    if settings.variant.deployed == "map":
        assert result["test"]["accuracy"] == result["test"]["best"]
    assert f"\n| {settings.variant.name} |" in page
    assert (runner.out / "estimators.png").stat().st_size > 1000


def test_the_full_size_has_every_variant_three_times() -> None:
    settings = [row.settings for row in EXPERIMENT.rows("full", None) if row.name != "timing"]
    for task in TASKS:
        for variant in VARIANTS:
            some = [one for one in settings if (one.task, one.variant) == (task, variant)]
            assert [one.seed for one in some] == [0, 1, 2]
            assert len({replace(one, seed=0) for one in some}) == 1


def record(task: str, seed: int, accuracy: float) -> Record:
    """Return a complete record of sparsemap."""
    curve = [{"steps": 0, "dev": 30.0}, {"steps": 10, "dev": accuracy}]
    test = {"accuracy": accuracy, "best": 50.0, "nonzero": 25.0, "structures": 2.0}
    settings = {
        "task": task, "seed": seed, "variant": {"name": "sparsemap"}, "steps": 10,
        "batch_size": 64, "learning_rate": 1e-3, "score_decay": 0.3,
    }  # fmt: skip
    result = {"test": test, "curve": curve}
    return Record("estimators", f"{task}-{seed}", "toy", settings, True, result)


def test_both_tasks_are_in_one_row(tmp_path: Path) -> None:
    some = [record("trees", seed, 80.0 + seed) for seed in range(3)]
    some.append(replace(record("rationales", 0, 55.0), complete=False))
    times = {"milliseconds": {"trees": {"sparsemap": 12.34}, "rationales": {}}}
    some.append(Record("estimators", "timing", "toy", {"seed": 0}, True, times))
    page = report(some, tmp_path)
    line = "| sparsemap | 81.00 ± 2.48 | 50.00 ± 0.00 | 25.00 ± 0.00 | 12.3 "
    assert f"{line}| (55.00) | – | – | – | 3 / 0 |" in page
    assert "ListOps, sparsemap: 2.00 ± 0.00" in page
    assert "ListOps: 10 steps of 64 instances, learning rate 0.001" in page
