"""The ListOps example: data, gold trees, model, training, command line."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import listops
from lpsmap_torch.layers import LatentTree
from valency.batches import UNLABELLED, Batch, Corpus
from valency.expressions import (
    OPERATORS,
    ORIGINAL_TEST_FILE,
    argument_counts,
    evaluate,
    generate,
    gold_heads,
    read_original,
    read_test_set,
)
from valency.model import BiLSTM, Inference, Structure, ValencyTagger, latent_arcs
from valency.training import Scores, Settings, measure, train, update, with_mean_root

NESTED = ("[MAX", "2", "9", "[MIN", "4", "7", "]", "0", "]")  # the paper's example


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of the original files; tests that need them are skipped where there is none."""
    beside_the_repository = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("LPSMAP_DATA", beside_the_repository)) / "listops"
    if not (folder / ORIGINAL_TEST_FILE).is_file():
        pytest.skip(f"no {ORIGINAL_TEST_FILE} in {folder}; LPSMAP_DATA names the folder above it")
    return folder


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return Corpus(generate(100, seed=0, max_tokens=20))


def small_batch(corpus: Corpus, size: int = 16) -> Batch:
    return corpus.batch(np.arange(size))


def not_first(batch: Batch) -> torch.Tensor:
    """Which tokens have a head."""
    words = batch.valid.clone()
    words[:, 0] = False
    return words


class TestExpressions:
    def test_are_distinct_nested_short_and_not_excluded(self) -> None:
        excluded = generate(300, seed=0)
        drawn = generate(2000, seed=0, exclude=excluded)
        assert len(set(drawn)) == 2000
        assert not set(drawn) & set(excluded)
        assert all(expression[0] in OPERATORS for expression in drawn)
        assert max(map(len, drawn)) <= 100

    @pytest.mark.slow
    def test_have_the_lengths_of_the_original_files(self) -> None:
        # The published test file, one tenth of 100,000 draws, has quantiles 5, 7, 13, 28, 70 once
        # cut at 100 tokens. The share of short ones falls with the number of distinct draws.
        lengths = [len(expression) for expression in generate(90_000, seed=1)[:10_000]]
        quantiles = np.quantile(lengths, [0.05, 0.25, 0.5, 0.75, 0.95])
        assert np.all(np.abs(quantiles - [5, 7, 13, 28, 70]) <= [1, 1, 1, 2, 4])

    def test_have_two_to_five_arguments_about_equally_often(self) -> None:
        counts = Counter(c for e in generate(5000, seed=2) for c in argument_counts(e) if c)
        assert sorted(counts) == [2, 3, 4, 5]
        assert max(counts.values()) < 1.1 * min(counts.values())

    def test_repeat_by_seed(self) -> None:
        assert generate(50, seed=3) == generate(50, seed=3) != generate(50, seed=4)

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("7", 7),
            ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
            ("[MED 1 8 2 ]", 2),
            ("[MED 1 8 2 7 ]", 4),
            ("[SM 9 9 [MED 5 6 ] ]", 3),
        ],
    )
    def test_evaluate(self, text: str, value: int) -> None:
        assert evaluate(tuple(text.split())) == value

    def test_original_labels_are_the_values(self, data: Path) -> None:
        pairs = list(read_original(data / ORIGINAL_TEST_FILE))
        assert len(pairs) == 10_000
        assert all(evaluate(expression) == value for value, expression in pairs)

    def test_published_test_set(self, data: Path) -> None:
        # The paper's 8933 sequences of up to 100 tokens, less the single one that is a lone digit.
        assert len(read_test_set(data)) == 8932

    def test_reading_drops_parentheses(self, tmp_path: Path) -> None:
        path = tmp_path / "some.tsv"
        path.write_text("9\t( ( ( [MAX 2 ) 9 ) ] )\n")
        assert list(read_original(path)) == [(9, ("[MAX", "2", "9", "]"))]

    def test_reading_names_the_bad_line(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.tsv"
        path.write_text("3\t3\n9\t[AVG 2 9 ]\n")
        with pytest.raises(ValueError, match=r"bad\.tsv, line 2: expected .*\[AVG 2 9 \]"):
            list(read_original(path))


class TestGoldTrees:
    def test_of_the_papers_example(self) -> None:
        assert gold_heads(NESTED) == [0, 0, 0, 0, 3, 3, 5, 0, 7]
        assert argument_counts(NESTED) == [4, 0, 0, 2, 0, 0, 0, 0, 0]

    def test_modifiers_of_an_operator_are_its_arguments(self) -> None:
        for expression in generate(500, seed=5):
            heads = gold_heads(expression)
            modifiers = Counter(head for word, head in enumerate(heads) if head != word)
            for word, count in enumerate(argument_counts(expression)):
                if expression[word] in OPERATORS:
                    assert modifiers[word] == count <= 5
                else:
                    assert modifiers[word] <= 1

    def test_are_trees(self) -> None:
        # Every head but the root's comes earlier, so there can be no cycle.
        for expression in generate(500, seed=6):
            heads = gold_heads(expression)
            assert heads[0] == 0
            assert all(head < word for word, head in enumerate(heads) if word)


class TestBatches:
    def test_an_epoch_holds_every_expression_once(self, corpus: Corpus) -> None:
        batches = list(corpus.epoch(16, np.random.default_rng(0)))
        lengths = torch.cat([batch.lengths for batch in batches])
        assert sorted(lengths.tolist()) == sorted(corpus.lengths.tolist())
        assert all(len(batch.lengths.unique()) > 1 for batch in batches)

    def test_parts_have_no_longer_expressions(self, corpus: Corpus) -> None:
        part = corpus.up_to(9)
        assert part.expressions == [e for e in corpus.expressions if len(e) <= 9]

    def test_labels_are_on_operators_only(self, corpus: Corpus) -> None:
        batch = corpus.batch(np.arange(32))
        for row, expression in enumerate(sorted(corpus.expressions[:32], key=len, reverse=True)):
            length = len(expression)
            labels = [count - 2 if count else UNLABELLED for count in argument_counts(expression)]
            assert batch.labels[row, :length].tolist() == labels
            assert (batch.labels[row, length:] == UNLABELLED).all()


class TestModel:
    def test_bilstm_equals_the_packed_one(self) -> None:
        torch.manual_seed(0)
        ours, packed = BiLSTM(5, 3), nn.LSTM(5, 3, batch_first=True, bidirectional=True)
        for name, parameter in packed.named_parameters():
            direction = ours.backwards if name.endswith("_reverse") else ours.forwards
            parameter.data = direction.get_parameter(name.removesuffix("_reverse")).data
        inputs, lengths = torch.randn(3, 7, 5), torch.tensor([7, 4, 1])
        sequence = pack_padded_sequence(inputs, lengths, batch_first=True)
        expected, _ = pad_packed_sequence(packed(sequence)[0], batch_first=True)
        inside = torch.arange(7) < lengths[:, None]
        torch.testing.assert_close(ours(inputs, lengths)[inside], expected[inside])

    @pytest.mark.parametrize("structure", [Structure.GOLD, Structure.LEFT_TO_RIGHT])
    def test_fixed_arcs_give_every_word_one_head(
        self, corpus: Corpus, structure: Structure
    ) -> None:
        batch = small_batch(corpus)
        arcs = ValencyTagger(structure).arcs(batch)
        torch.testing.assert_close(arcs.sum(-1), not_first(batch).float())
        assert not arcs.diagonal(dim1=-2, dim2=-1).any()

    def test_prediction_depends_on_the_arcs_alone(self, corpus: Corpus) -> None:
        # Tokens with as many modifiers get the same scores, whatever they are: the root as well.
        batch = small_batch(corpus)
        model = ValencyTagger(Structure.GOLD)
        logits = model(batch)
        for label in range(4):
            same = logits[batch.labels == label]
            torch.testing.assert_close(same, same[:1].expand_as(same))

    def test_prediction_does_not_depend_on_who_is_at_the_root(self, corpus: Corpus) -> None:
        batch = small_batch(corpus)
        torch.manual_seed(0)
        arcs = torch.rand(16, batch.tokens.shape[1], batch.tokens.shape[1])
        arcs = arcs * not_first(batch)[:, :, None] * batch.valid[:, None, :]
        arcs = arcs / arcs.sum(-1, keepdim=True).clamp(min=1e-9)
        evened = with_mean_root(arcs, batch)
        assert (evened[..., 0] != arcs[..., 0]).any()
        assert not evened[..., 0][~not_first(batch)].any()
        torch.testing.assert_close(evened[..., 1:], arcs[..., 1:], rtol=0, atol=0)
        torch.testing.assert_close(evened.sum(-2), arcs.sum(-2))
        model = ValencyTagger(Structure.GOLD)
        nn.init.normal_(model.output.weight)
        torch.testing.assert_close(model.tag(evened), model.tag(arcs))

    @pytest.mark.compiled
    @pytest.mark.parametrize(("budget", "on_root"), [(None, True), (2, True), (2, False)])
    def test_latent_arcs_are_trees_within_the_budget(
        self, corpus: Corpus, budget: int | None, on_root: bool
    ) -> None:
        batch = small_batch(corpus)
        n = batch.tokens.shape[1]
        torch.manual_seed(0)
        scores = torch.randn(16, n, n, dtype=torch.float64)
        scores[..., 0] += 2.0  # the root would like many modifiers
        tree = LatentTree(budget=budget, budget_root=budget is not None and on_root)
        arcs = latent_arcs(tree, scores, batch.lengths)
        assert (arcs >= 0).all()
        torch.testing.assert_close(arcs.sum(-1), not_first(batch).double(), rtol=0, atol=1e-4)
        assert (arcs[~batch.valid] == 0).all()
        assert (arcs.mT[~batch.valid] == 0).all()
        if budget is not None:
            n_modifiers = arcs.sum(-2)
            assert (n_modifiers[:, 1:] <= budget + 1e-4).all()
            assert (n_modifiers[:, 0] <= budget + 1e-4).all() == on_root

    @pytest.mark.compiled
    def test_latent_arcs_do_not_look_at_the_padding(self, corpus: Corpus) -> None:
        batch = small_batch(corpus)
        n = batch.tokens.shape[1]
        torch.manual_seed(0)
        scores = torch.randn(16, n, n, dtype=torch.float64)
        inside = batch.valid[:, :, None] & batch.valid[:, None, :]
        spoiled = torch.where(inside, scores, 100.0)
        for budget in (None, 3):
            tree = LatentTree(budget=budget)
            expected = latent_arcs(tree, scores, batch.lengths)
            torch.testing.assert_close(latent_arcs(tree, spoiled, batch.lengths), expected)

    def test_options_reach_the_layer(self) -> None:
        inference = Inference(max_iter=7, tol=1e-3)
        made = {
            structure: ValencyTagger(structure, inference, budget_on_root=on_root).tree
            for structure, on_root in [(Structure.TREE, True), (Structure.TREE_BUDGET, False)]
        }
        limits = "max_iter=7, tol=0.001"
        assert repr(made[Structure.TREE]) == f"LatentTree({limits})"
        assert repr(made[Structure.TREE_BUDGET]) == f"LatentTree(budget=5, {limits})"
        full = ValencyTagger(Structure.TREE_BUDGET).tree
        assert repr(full) == "LatentTree(budget=5, budget_root=True)"


class TestTraining:
    def test_scores_of_a_confusion_matrix(self) -> None:
        # One class of four right, one seen but missed: F1 2/3 and 0, absent classes count as 0.
        confusion = np.zeros((4, 4), dtype=np.int64)
        confusion[0, 0], confusion[1, 0] = 1, 1
        assert Scores.from_confusion(confusion) == Scores(50.0, pytest.approx(100 * (2 / 3) / 4))

    def test_gold_trees_are_learned_to_perfection(self, corpus: Corpus) -> None:
        settings = Settings(Structure.GOLD, epochs=20, learning_rate=1e-2)
        run = train(settings, corpus, corpus)
        measured = measure(run.model, corpus)
        assert measured.scores == measured.without_root == Scores(100.0, 100.0)
        assert measured.recall == 100.0
        assert run.curve[-1].loss < run.curve[0].loss

    def test_left_to_right_cannot_learn(self, corpus: Corpus) -> None:
        run = train(Settings(Structure.LEFT_TO_RIGHT, epochs=5, learning_rate=1e-2), corpus, corpus)
        assert measure(run.model, corpus).scores.accuracy < 50

    def test_the_model_with_the_best_validation_f1_is_kept(self, corpus: Corpus) -> None:
        run = train(Settings(Structure.GOLD, epochs=5, learning_rate=1e-2), corpus, corpus)
        assert measure(run.model, corpus).scores == run.best.validation

    def test_a_curriculum_begins_with_the_short_ones(self, corpus: Corpus) -> None:
        seen: list[int] = []
        epoch = Corpus.epoch

        class Watched(Corpus):
            def up_to(self, max_tokens: int) -> Corpus:
                return Watched(super().up_to(max_tokens).expressions)

            def epoch(self, batch_size: int, rng: np.random.Generator) -> Iterator[Batch]:
                for batch in epoch(self, batch_size, rng):
                    seen.append(int(batch.lengths.max()))
                    yield batch

        settings = Settings(Structure.GOLD, epochs=4, batch_size=10, curriculum=(9, 20))
        train(settings, Watched(corpus.expressions), corpus)
        assert max(seen[: len(seen) // 2]) <= 9 < max(seen)

    def test_ends_at_the_time_limit(self, corpus: Corpus) -> None:
        run = train(Settings(Structure.GOLD, epochs=1e6, minutes=0.002), corpus, corpus)
        assert run.curve[-1].seconds < 60

    @pytest.mark.compiled
    @pytest.mark.parametrize("structure", [Structure.TREE, Structure.TREE_BUDGET])
    def test_updates_decrease_the_loss(self, corpus: Corpus, structure: Structure) -> None:
        torch.manual_seed(0)
        model = ValencyTagger(structure)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        batch = small_batch(corpus)
        losses = [update(model, optimizer, batch) for _ in range(12)]
        assert losses[-1] < losses[0] - 0.03
        assert model.as_head.weight.grad is not None
        assert model.as_head.weight.grad.abs().sum() > 0

    @pytest.mark.compiled
    def test_repeats_by_seed(self, corpus: Corpus) -> None:
        settings = Settings(Structure.TREE_BUDGET, seed=7, epochs=1, learning_rate=1e-3)
        first, second = (train(settings, corpus, corpus) for _ in range(2))
        assert first.curve[-1].loss == second.curve[-1].loss


@pytest.mark.compiled
class TestCommandLine:
    SMALL = ("--train-size", "60", "--valid-size", "20", "--max-tokens", "12", "--epochs", "1")

    def test_demo(self, tmp_path: Path) -> None:
        arguments = ["demo", *self.SMALL, "--test-size", "200", "--out", str(tmp_path)]
        result = CliRunner().invoke(listops.main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert all(s in result.output for s in ("left-to-right", "tree", "tree+budget"))
        assert "Mean root: the accuracy" in " ".join(result.output.split())
        assert (tmp_path / "listops.png").stat().st_size > 10_000

    def test_experiment_and_report(self, tmp_path: Path) -> None:
        options = [
            "--seed",
            "1",
            "--seed",
            "2",
            "--structure",
            "gold",
            "--structure",
            "tree+budget",
        ]
        arguments = ["experiment", *options, *self.SMALL, "--test-size", "20"]
        arguments += ["--out", str(tmp_path)]
        result = CliRunner().invoke(listops.main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        one = json.loads((tmp_path / "tree+budget-2.json").read_text())
        assert one["settings"]["seed"] == 2
        assert 0 <= one["test"]["accuracy"] <= 100
        assert 0 <= one["test attachment recall"] <= 100

        result = CliRunner().invoke(listops.main, ["report", str(tmp_path)], catch_exceptions=False)
        head, _, tree, gold = result.output.strip().splitlines()
        assert tree.startswith("| tree+budget | 2 | 1.0 |") and "82.8 / 83.0" in tree
        assert gold.startswith("| gold | 2 | 1.0 |")
        assert head.count("|") == tree.count("|") == gold.count("|")

    def test_on_the_original_files(self, tmp_path: Path, data: Path) -> None:
        arguments = ["experiment", *self.SMALL, "--structure", "gold", "--data", str(data)]
        result = CliRunner().invoke(listops.main, [*arguments, "--out", str(tmp_path)])
        assert result.exit_code == 0, result.output

    def test_says_what_is_missing(self, tmp_path: Path) -> None:
        endless = CliRunner().invoke(listops.main, ["experiment"])
        assert endless.exit_code == 2 and "give --minutes or --epochs" in endless.output
        no_data = CliRunner().invoke(listops.main, ["demo", "--data", str(tmp_path)])
        assert no_data.exit_code == 1 and "no test_d20s.tsv.gz there" in no_data.output
        nothing = CliRunner().invoke(listops.main, ["report", str(tmp_path)])
        assert nothing.exit_code == 1 and "no .json files there" in nothing.output
