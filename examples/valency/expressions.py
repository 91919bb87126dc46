"""ListOps expressions (Nangia & Bowman 2018): drawing, reading, evaluating, gold dependency trees.

An expression is a tuple of tokens in prefix notation, `("[MAX", "2", "[MIN", "4", "7", "]", "]")`:
operators carry their opening bracket, `]` closes the latest open one.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TypeAlias

Expression: TypeAlias = tuple[str, ...]

OPERATORS = ("[MAX", "[MIN", "[MED", "[SM")
DIGITS = tuple("0123456789")
CLOSE = "]"
VOCABULARY = (*OPERATORS, *DIGITS, CLOSE)

OPERATOR_PROBABILITY = 0.25
DEPTH_LIMIT = 20
MIN_ARGUMENTS, MAX_ARGUMENTS = 2, 5
MAX_TOKENS = 100
ORIGINAL_TEST_FILE = "test_d20s.tsv.gz"


def draw(rng: random.Random, max_tokens: int = MAX_TOKENS) -> Expression | None:
    """Draw one expression, or None when it grows beyond `max_tokens`.

    A node is an operator with probability 1/4, drawn uniformly, with a uniform number (2 to 5) of
    arguments drawn by the same rule one level deeper; otherwise, and always at depth 20, a uniform
    digit (Nangia & Bowman 2018, section 3). The top node is always an operator here: a lone digit
    has nothing to tag, and leaving digits out is the same as drawing again until an operator comes.
    """
    tokens: list[str] = []
    missing: list[int] = []  # arguments still to come, one entry per open operator
    while True:
        depth = len(missing) + 1
        is_top = not missing
        if is_top or (depth < DEPTH_LIMIT and rng.random() < OPERATOR_PROBABILITY):
            tokens.append(rng.choice(OPERATORS))
            missing.append(rng.randint(MIN_ARGUMENTS, MAX_ARGUMENTS))
        else:
            tokens.append(rng.choice(DIGITS))
            missing[-1] -= 1
            while missing and not missing[-1]:
                tokens.append(CLOSE)
                missing.pop()
                if missing:
                    missing[-1] -= 1
        if len(tokens) > max_tokens:
            return None
        if not missing:
            return tuple(tokens)


def generate(
    count: int, seed: int, exclude: Collection[Expression] = (), max_tokens: int = MAX_TOKENS
) -> list[Expression]:
    """Draw `count` distinct expressions of at most `max_tokens` tokens, none of them in `exclude`.

    Longer draws are dropped, not cut. Dropping duplicates makes short expressions as rare as in the
    original files, and rarer with more draws. Hence the shuffle: any part of the list is
    distributed like the whole.
    """
    rng = random.Random(seed)
    seen = set(exclude)
    kept: list[Expression] = []
    while len(kept) < count:
        expression = draw(rng, max_tokens)
        if expression is not None and expression not in seen:
            seen.add(expression)
            kept.append(expression)
    rng.shuffle(kept)
    return kept


def read_original(path: Path) -> Iterator[tuple[int, Expression]]:
    """Yield (value, expression) for each line of an original file, plain or gzipped.

    The lines read `value<TAB>expression`; the parentheses of the binary tree are dropped.

    Raises
    ------
    ValueError
        If a line has another form or a token is unknown, with the line's number.
    """
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            value, tab, text = line.rstrip("\n").partition("\t")
            tokens = tuple(token for token in text.split() if token not in ("(", ")"))
            if not tab or not tokens or not set(tokens) <= set(VOCABULARY):
                raise ValueError(
                    f"{path}, line {number}: expected 'value<TAB>expression' over the tokens"
                    f" {' '.join(VOCABULARY)} and parentheses; got {line!r}"
                )
            yield int(value), tokens


def read_test_set(folder: Path, max_tokens: int = MAX_TOKENS) -> list[Expression]:
    """The published test expressions with an operator and at most `max_tokens` tokens.

    Raises
    ------
    FileNotFoundError
        If `folder` does not hold `test_d20s.tsv.gz`.
    """
    path = folder / ORIGINAL_TEST_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"--data {folder}: no {ORIGINAL_TEST_FILE} there; give the folder that holds the"
            " original ListOps test file, or leave --data out to test on generated expressions"
        )
    return [e for _, e in read_original(path) if 1 < len(e) <= max_tokens]


def evaluate(expression: Expression) -> int:
    """Value of an expression; MED of an even number is the mean of the middle two, truncated."""
    functions: dict[str, Callable[[list[int]], int]] = {
        **{"[MAX": max, "[MIN": min},
        **{"[MED": _median, "[SM": lambda xs: sum(xs) % 10},
    }
    operators: list[str] = []
    arguments: list[list[int]] = [[]]
    for token in expression:
        if token in OPERATORS:
            operators.append(token)
            arguments.append([])
        elif token == CLOSE:
            value = functions[operators.pop()](arguments.pop())
            arguments[-1].append(value)
        else:
            arguments[-1].append(int(token))
    return arguments[0][0]


def _median(values: list[int]) -> int:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def gold_heads(expression: Expression) -> list[int]:
    """Head of every token in the gold dependency tree; the top token is its own head (the root).

    An operator heads its arguments. A closing bracket depends on the token before it, never on an
    operator: an operator has exactly as many modifiers as arguments, no token has more than five,
    and the paper's budget of five per head is the tightest one that admits every gold tree.
    """
    heads: list[int] = []
    open_operators: list[int] = []
    for position, token in enumerate(expression):
        if token == CLOSE:
            heads.append(position - 1)
            open_operators.pop()
            continue
        heads.append(open_operators[-1] if open_operators else position)
        if token in OPERATORS:
            open_operators.append(position)
    return heads


def argument_counts(expression: Expression) -> list[int]:
    """Number of arguments of each operator; 0 for every other token."""
    counts = [0] * len(expression)
    for position, head in enumerate(gold_heads(expression)):
        if expression[position] != CLOSE and head != position:
            counts[head] += 1
    return counts
