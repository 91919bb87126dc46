"""``lpsmap check``: the conformance kit on what is installed."""

from __future__ import annotations

import re
import types

import numpy as np
import pytest
from click.testing import CliRunner

import lpsmap_core
from lpsmap_core import Factor, FactorGraph
from lpsmap_core.command import cli
from lpsmap_core.plugins.registry import Plugin, Registry
from lpsmap_core.testing import check_command


class Chosen(Factor):
    """Exactly one variable is on."""

    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((2, 3)))]

    def solve_map(self, eta_u, eta_v):
        return int(np.argmax(eta_u))

    def vertex(self, y):
        return np.eye(self.event_shape[0])[y], []


class Doubled(Chosen):
    """The same with a vertex of the wrong number."""

    def vertex(self, y):
        return 2.0 * super().vertex(y)[0], []


class DoubledKnowingly(Doubled):
    """The same, said beforehand, so far as it goes."""

    expected_failures = {"check_zero_one": "it is doubled"}


class Stubborn(Chosen):
    """The same with the worst structure as the best."""

    @classmethod
    def examples(cls):
        return [cls(FactorGraph().variable((n,))) for n in (4, 5)]

    def solve_map(self, eta_u, eta_v):
        return int(np.argmin(eta_u))


class Silent(Chosen):
    """The same without examples."""

    @classmethod
    def examples(cls):
        return []


class Clumsy(Chosen):
    """The same with examples that cannot be made."""

    @classmethod
    def examples(cls):
        return [cls("variables")]


class Foreign(Chosen):
    """The same with examples of another type."""

    @classmethod
    def examples(cls):
        return Chosen.examples()


class Raiser(Chosen):
    """The same, which finds nothing."""

    def solve_map(self, eta_u, eta_v):
        raise KeyError("boom")


@pytest.fixture
def check(monkeypatch):
    """Run the command on a registry of two packages; return exit code and output."""
    registry = Registry()
    packs = {
        "good-pack": [Chosen],
        "bad.Pack": [Doubled, DoubledKnowingly, Stubborn, Silent, Clumsy, Foreign, Raiser],
    }
    for distribution, classes in packs.items():
        module = types.ModuleType(distribution)
        module.lpsmap_api_version = 3

        def lpsmap_factors(classes=classes):
            return classes

        module.lpsmap_factors = lpsmap_core.hookimpl(lpsmap_factors)
        registry.register(module, Plugin("plugin", distribution, "1.0"))
    monkeypatch.setattr(cli, "installed", lambda: registry)

    def run(*arguments):
        result = CliRunner().invoke(check_command.check, arguments)
        return result.exit_code, result.output

    return run


def test_a_sound_type_passes(check):
    code, output = check("Chosen")
    assert code == 0
    header, line = output.splitlines()
    assert header.split() == ["FACTOR", "EXAMPLE", "PASSED", "EXPECTED", "FAILED"]
    assert line.split()[0] == "Chosen"
    assert int(line.split()[-1]) > 20


def test_a_distribution_is_found_however_its_name_is_written(check):
    assert check("good_pack") == check("Good-Pack") == check("Chosen")


def test_failures_are_told_by_check_and_rule(check):
    code, output = check("Chosen", "Doubled")
    assert code == 1
    assert "\nDoubled(2 factors over variables of shape (2, 3))\ncheck_zero_one\nRule: " in output
    assert "Got: m = [" in output


def test_expected_failures_are_told_with_their_reasons(check):
    code, output = check("DoubledKnowingly", "--draws", "2", "--seed", "3")
    assert code == 1  # doubling breaks more than one rule
    assert "Expected: DoubledKnowingly fails check_zero_one: it is doubled." in output
    assert "\ncheck_zero_one\n" not in output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Silent", "examples: got none; expected a class method"),
        (
            "Clumsy",
            "Clumsy: variables: got a str.*, raised by .* in .*test_check_command.py",
        ),
        ("Foreign", r"examples: got Chosen\(2 factors"),
    ],
)
def test_types_without_proper_examples_fail(check, name, words):
    code, output = check(name)
    assert code == 1
    assert re.search(words, output)


def test_what_a_type_raises_is_told_with_its_place(check):
    code, output = check("Raiser")
    assert code == 1
    place = r"\ncheck_shapes\nKeyError: 'boom', raised by .* in .*test_check_command.py, line \d+\n"
    assert re.search(place, output)


def test_a_broken_rule_is_told_once(check):
    """For all examples; what core says about a type is told without a place in core."""
    code, output = check("Stubborn", "--draws", "2")
    assert code == 1
    assert output.count("\ncheck_map_is_best\n") == output.count("\ncheck_ties\n") == 1
    assert "The same in 1 more of its examples." in output
    assert "ValueError: Stubborn.solve_map contradicts itself" in output
    assert ", raised by" not in output


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("Chosne", "Did you mean Chosen?"),
        ("chosen", "Did you mean Chosen?"),
        ("goodpack", "Did you mean good-pack"),
        ("Quaternion", "that has one. `lpsmap factors` lists them."),
        ("Quaternion", "For a class that is not installed, call lpsmap_core.testing.check_factor"),
        ("script:Quaternion", "call lpsmap_core.testing.check_factor(instance)."),
    ],
)
def test_unknown_names_are_errors_with_advice(check, name, advice):
    code, output = check(name)
    assert code == 2
    assert f"{name!r} is neither an installed factor type" in output
    assert advice in " ".join(output.split())


def test_options_are_checked(check):
    assert check("Chosen", "--draws", "0")[0] == 2
    assert check()[0] == 2
