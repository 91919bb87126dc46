"""How a graph will be solved, and what that takes: found from its layout, without solving it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.active_memory import block_size
from lpsmap_core.active_set import FIRST_CAPACITY, ActiveSets
from lpsmap_core.factor import override_level
from lpsmap_core.layout import SMALLEST_PART, Bucket, Layout, Part
from lpsmap_core.local import SolverChoice, choose_solver
from lpsmap_core.tables import text_table

__all__ = ["ComponentPlan", "FactorPlan", "Memory", "Plan", "ThreadPlan", "make_plan"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

FLOAT = 8
"""Bytes of a number."""

PER_LINK, PER_LINK_ADMM = 5, 6
PER_VARIABLE, PER_VARIABLE_ADMM = 6, 6
PER_ADDITIONAL, PER_ADDITIONAL_ADMM = 5, 2
PER_FACTOR = 2
"""Numbers that a solve takes beside the layout: always, and beyond that in a part that needs ADMM,
whose polish has vectors of its own. The test for contradictions, which only graphs that are slow to
agree come to, takes about ten more a link while it lasts. A test holds these numbers against what
solves take."""


@dataclass(frozen=True)
class ComponentPlan:
    """Connected components of one kind.

    Attributes
    ----------
    kind
        ``"free variable"``, ``"one factor"`` or ``"several factors"``. (A factor that has a
        variable in several of its slots counts as several.)
    solved_by
        What solves them.
    count, variables, links
        How many there are, and how many variables and links they have together.
    """

    kind: str
    solved_by: str
    count: int
    variables: int
    links: int


@dataclass(frozen=True)
class FactorPlan:
    """The factors of one type that one solver serves.

    Attributes
    ----------
    factor
        Name of the type.
    count
        Number of factors.
    smallest_arity, largest_arity
        Range of their numbers of variables.
    links, additionals
        Numbers of variables' slots and of additionals of all of them.
    level
        The type's level of override: 1 a MAP oracle in Python, 2 compiled, 3 a closed form.
    solver
        The solver of their local problems.
    function
        What it calls of the type: a kernel, or a method.
    reason
        Why this solver.
    """

    factor: str
    count: int
    smallest_arity: int
    largest_arity: int
    links: int
    additionals: int
    level: int
    solver: str
    function: str
    reason: str


@dataclass(frozen=True)
class ThreadPlan:
    """What one thread solves."""

    components: int
    links: int


@dataclass(frozen=True)
class Memory:
    """Bytes that a solve takes at its peak, beside what the declarations hold.

    Attributes
    ----------
    layout
        Of the graph's links, buckets and parts; kept from solve to solve.
    solve
        Of scores, iterates, duals and marginals, and of the polish. The solution keeps all but the
        polish, for gradients.
    active_sets
        Of the active sets, with room for the first few structures of each factor; they grow with
        the structures found.
    """

    layout: int
    solve: int
    active_sets: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.layout + self.solve + self.active_sets


@dataclass(frozen=True)
class Plan:
    """How a graph will be solved; prints as tables. See `FactorGraph.plan`.

    Attributes
    ----------
    variables, links, additionals
        Sizes of the graph.
    components
        Its connected components by kind.
    factors
        Its factors by type and solver.
    threads
        The shares of the threads that get one.
    available_threads
        Number of threads among which the components could be spread.
    memory
        What a solve takes.
    """

    variables: int
    links: int
    additionals: int
    components: tuple[ComponentPlan, ...]
    factors: tuple[FactorPlan, ...]
    threads: tuple[ThreadPlan, ...]
    available_threads: int
    memory: Memory

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain Python objects, fit for JSON."""
        return dataclasses.asdict(self)

    def __repr__(self) -> str:
        size = (
            f"Plan: {self.variables:,} variables, {self.links:,} links, "
            f"{self.additionals:,} additionals"
        )
        rows = [*map(_component_cells, self.components)], [*map(_factor_cells, self.factors)]
        tables = [text_table(table, NUMBERS) for table in rows if table]
        return "\n\n".join([size, *tables, f"{self._thread_line}\n{self._memory_line}"])

    @property
    def _thread_line(self) -> str:
        used, most = len(self.threads), self.available_threads
        if used == 0:
            return "threads: none"
        links = [share.links for share in self.threads]
        line = f"threads: {used} of {most}, with {_range(min(links), max(links))} links"
        line += " each" if used > 1 else ""
        if used < most:
            line += f"; a thread gets whole components, at least {SMALLEST_PART:,} links"
        return line

    @property
    def _memory_line(self) -> str:
        memory = self.memory
        line = f"memory: {_bytes(memory.total)}"
        if self.links:
            line += f", {memory.total / self.links:,.0f} bytes a link"
        line += f" ({_bytes(memory.layout)} layout, {_bytes(memory.solve)} solve"
        if memory.active_sets:
            line += f", {_bytes(memory.active_sets)} active sets, which grow with their structures"
        return line + ")"


def make_plan(layout: Layout, limited: bool) -> Plan:
    """Return the plan of a laid-out graph; see `FactorGraph.plan`."""
    found = [
        (part, bucket, choose_solver(bucket.type, limited=limited))
        for part in layout.parts
        for bucket in part.buckets
    ]
    return Plan(
        variables=layout.n_variables,
        links=sum(bucket.n_links for bucket in layout.buckets),
        additionals=sum(bucket.n_additionals for bucket in layout.buckets),
        components=tuple(_components(layout, found)),
        factors=tuple(_factors(found)),
        threads=tuple(ThreadPlan(part.n_components, part.n_links) for part in layout.parts),
        available_threads=layout.threads,
        memory=_memory(layout, found),
    )


# -------------------------------------------------------------------- what there is

Chosen = tuple[Part, Bucket, SolverChoice]
"""A part, one of its buckets, and the solver of that bucket's local problems."""


def _components(layout: Layout, found: list[Chosen]) -> Iterator[ComponentPlan]:
    free = int((layout.component < 0).sum())
    if free:
        yield ComponentPlan("free variable", "clipped to [0, 1]", free, free, 0)
    lone: dict[str, list[int]] = {}
    for part, bucket, choice in found:
        mine = part.direct[bucket.component]
        links = int(np.diff(bucket.offsets)[mine].sum())
        if mine.any():
            lone.setdefault(choice.name, []).extend([int(mine.sum()), links])
    for name, numbers in lone.items():
        links = sum(numbers[1::2])  # as many variables: a lone factor's are distinct
        yield ComponentPlan("one factor", name, sum(numbers[::2]), links, links)
    coupled = [(part, ~part.direct) for part in layout.parts]
    count = sum(int(chosen.sum()) for _, chosen in coupled)
    if count:
        variables = sum(int(chosen[part.component].sum()) for part, chosen in coupled)
        links = sum(
            int(chosen[part.component[part.link_variable]].sum()) for part, chosen in coupled
        )
        yield ComponentPlan("several factors", "ADMM", count, variables, links)


def _factors(found: list[Chosen]) -> Iterator[FactorPlan]:
    groups: dict[tuple[type, str], list[Chosen]] = {}
    for _, bucket, choice in found:
        groups.setdefault((bucket.type, choice.name), []).append((_, bucket, choice))
    for group in groups.values():
        _, first, choice = group[0]
        arity = np.concatenate([np.diff(bucket.offsets) for _, bucket, _ in group])
        yield FactorPlan(
            factor=first.type.__name__,
            count=len(arity),
            smallest_arity=int(arity.min()),
            largest_arity=int(arity.max()),
            links=int(arity.sum()),
            additionals=sum(bucket.n_additionals for _, bucket, _ in group),
            level=override_level(first.type),
            solver=choice.name,
            function=_name(choice.function),
            reason=choice.reason,
        )


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


# -------------------------------------------------------------------- memory


def _memory(layout: Layout, found: list[Chosen]) -> Memory:
    numbers = PER_VARIABLE * layout.n_variables
    for part in layout.parts:
        admm = not part.direct.all()
        factors = sum(bucket.n_factors for bucket in part.buckets)
        additionals = sum(bucket.n_additionals for bucket in part.buckets)
        numbers += (PER_LINK + PER_LINK_ADMM * admm) * part.n_links
        numbers += PER_VARIABLE_ADMM * admm * part.n_variables
        numbers += (PER_ADDITIONAL + PER_ADDITIONAL_ADMM * admm) * additionals
        numbers += PER_FACTOR * factors
    sets = sum(_active_set_bytes(b) for _, b, choice in found if choice.make is ActiveSets)
    return Memory(_array_bytes(layout), FLOAT * numbers, sets)


def _active_set_bytes(bucket: Bucket) -> int:
    width = bucket.type.vertex_sizes(bucket.offsets, bucket.additional_offsets, bucket.parameters)
    width = np.maximum(width, 1)
    blocks = block_size(width, FIRST_CAPACITY) + 1.5 * width  # and the oracle's latest answer
    return int(FLOAT * (blocks.sum() + 8 * bucket.n_factors + 2 * bucket.n_links))


def _array_bytes(layout: Layout) -> int:
    """Return the bytes of a layout's arrays, those of its declarations left out."""
    owners = {}
    for record in (layout, *layout.buckets, *layout.parts, *_buckets_of_parts(layout)):
        for array in vars(record).values():
            if isinstance(array, np.ndarray):
                owner = array.base if isinstance(array.base, np.ndarray) else array
                owners[id(owner)] = owner.nbytes
    return sum(owners.values())


def _buckets_of_parts(layout: Layout) -> list[Bucket]:
    return [bucket for part in layout.parts for bucket in part.buckets]


# -------------------------------------------------------------------- tables

NUMBERS = ("components", "count", "variables", "links", "factors", "arity", "additionals", "level")


def _component_cells(plan: ComponentPlan) -> dict[str, str]:
    return {
        "components": f"{plan.count:,}",
        "kind": plan.kind,
        "variables": f"{plan.variables:,}",
        "links": f"{plan.links:,}",
        "solved by": plan.solved_by,
    }


def _factor_cells(plan: FactorPlan) -> dict[str, str]:
    return {
        "factors": f"{plan.count:,}",
        "type": plan.factor,
        "arity": _range(plan.smallest_arity, plan.largest_arity),
        "links": f"{plan.links:,}",
        "additionals": f"{plan.additionals:,}",
        "level": str(plan.level),
        "solver": plan.solver,
        "calls": ".".join(plan.function.split(".")[-2:]),
        "because": plan.reason,
    }


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _bytes(n: int) -> str:
    """Return a number of bytes in the unit that a person would choose."""
    size, units = float(n), iter(("bytes", "kB", "MB", "GB"))
    unit = next(units)
    while size >= 1000 and unit != "GB":
        size, unit = size / 1000, next(units)
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
