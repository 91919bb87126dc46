"""The plan of a solve: engine, solvers, threads and memory, derived from the graph's layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lpsmap_core.engine.choice import EngineChoice
from lpsmap_core.engine.compiled import CompiledEngine, numbers_of, relative_work
from lpsmap_core.layout.layout import Bucket, Layout, Part
from lpsmap_core.local.active.memory import block_size
from lpsmap_core.local.active.oracle_results import vertex_sizes
from lpsmap_core.local.active.sets import ActiveSets, first_capacity
from lpsmap_core.local.solvers import SolverChoice, override_level, solver_of, takes_one_pass
from lpsmap_core.solution.table_rendering import text_table
from lpsmap_jit.threads import MIN_WORK, cut

FLOAT = 8
"""Bytes per number."""


@dataclass(frozen=True)
class ComponentPlan:
    """Connected components of one kind.

    Attributes
    ----------
    kind
        ``"free variable"``, ``"one factor"`` or ``"several factors"``. (A factor that has a
        variable in several of its slots counts as several.)
    solved_by
        Name of the solver or engine.
    count, variables, links
        Number of components, and their total numbers of variables and links.
    """

    kind: str
    solved_by: str
    count: int
    variables: int
    links: int


@dataclass(frozen=True)
class FactorPlan:
    """The factors of one type with one solver.

    Attributes
    ----------
    factor
        Name of the type.
    count
        Number of factors.
    smallest_arity, largest_arity
        Range of their numbers of variables.
    links, additionals
        Total numbers of slots and of additionals.
    level
        The type's level of override: 1 a MAP oracle in Python, 2 compiled, 3 a closed form.
    solver
        The solver of their local problems.
    function
        The kernel or method of the type that the solver calls.
    reason
        The reason for this solver.
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
class SharePlan:
    """A share of the work that a thread takes at a time."""

    components: int
    links: int


@dataclass(frozen=True)
class MemoryPlan:
    """Peak memory of a solve in bytes, beside that of the declarations.

    Attributes
    ----------
    layout
        The graph's links and buckets, which are reused by later solves.
    solve
        Scores, iterates, duals and marginals, and the polish. The solution keeps all but the
        polish, for gradients.
    active_sets
        The initial active sets, with capacity for a few structures of each factor. They grow with
        the number of structures.
    """

    layout: int
    solve: int
    active_sets: int

    @property
    def total(self) -> int:
        """Total number of bytes."""
        return self.layout + self.solve + self.active_sets


@dataclass(frozen=True)
class Plan:
    """How a graph will be solved; prints as tables. See `FactorGraph.plan`.

    Attributes
    ----------
    variables, links, additionals
        Sizes of the graph.
    engine, reason
        Name of the engine, and the reason for it. Factors, shares and memory are only known for
        core's own engine, except for the memory of the layout.
    components
        The connected components by kind.
    factors
        The factors by type and solver.
    shares
        The shares of the work that threads take in turn.
    threads
        Number of threads used, at most the number of shares.
    available_threads
        Number of available threads.
    links_per_thread
        Number of links from which on a thread is worth its start.
    memory
        The memory of a solve.
    """

    variables: int
    links: int
    additionals: int
    engine: str
    reason: str
    components: tuple[ComponentPlan, ...]
    factors: tuple[FactorPlan, ...]
    shares: tuple[SharePlan, ...]
    threads: int
    available_threads: int
    links_per_thread: int
    memory: MemoryPlan

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain Python objects, for JSON."""
        return dataclasses.asdict(self)

    def __repr__(self) -> str:
        size = (
            f"Plan: {self.variables:,} variables, {self.links:,} links, "
            f"{self.additionals:,} additionals"
        )
        rows = [*map(_component_cells, self.components)], [*map(_factor_cells, self.factors)]
        tables = [text_table(table, NUMBERS) for table in rows if table]
        engine = f"engine: {self.engine}, which {self.reason}"
        last = f"{self._thread_line}\n{engine}\n{self._memory_line}"
        return "\n\n".join([size, *tables, last])

    @property
    def _thread_line(self) -> str:
        used, most, n = self.threads, self.available_threads, len(self.shares)
        if used == 0:
            return "threads: none"
        links = [share.links for share in self.shares]
        shares = f"{n} shares" if n > 1 else "a share"
        line = f"threads: {used} of {most}, for {shares} of {_range(min(links), max(links))} links"
        if used < most:
            line += f"; a thread is worth its start from {self.links_per_thread:,} links on"
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


def make_plan(layout: Layout, choice: EngineChoice, threads: int, limited: bool) -> Plan:
    """Return the plan of a graph and its layout; see `FactorGraph.plan`."""
    part = layout.part
    solvers = [(bucket, solver_of(bucket, limited=limited)) for bucket in part.buckets]
    is_core = isinstance(choice.engine, CompiledEngine)
    together = any(solver.vectorised for _, solver in solvers)
    one_pass = all(takes_one_pass(choice.solver, bucket.type) for bucket, choice in solvers)
    cheaper = relative_work(part, one_pass)
    bounds, used = cut(part.sizes, 1 if together else threads, cheaper)
    used = used if is_core and part.n_components else 0
    ends = np.append(0, np.cumsum(part.sizes))[bounds]
    shares = zip(np.diff(bounds).tolist(), np.diff(ends).tolist(), strict=True) if used else ()
    return Plan(
        variables=layout.n_variables,
        links=part.n_links,
        additionals=sum(bucket.n_additionals for bucket in layout.buckets),
        engine=choice.engine.name,
        reason=choice.reason,
        components=tuple(_components(layout, solvers, choice)),
        factors=tuple(_factors(solvers)) if is_core else (),
        shares=tuple(SharePlan(*sizes) for sizes in shares),
        threads=used,
        available_threads=threads,
        links_per_thread=MIN_WORK * cheaper,
        memory=_memory(layout, solvers, used)
        if is_core
        else MemoryPlan(_array_bytes(layout), 0, 0),
    )


# -------------------------------------------------------------------- components and factors

BucketSolver = tuple[Bucket, SolverChoice]
"""A bucket and the solver of its local problems."""


def _components(
    layout: Layout, solvers: list[BucketSolver], choice: EngineChoice
) -> Iterator[ComponentPlan]:
    """Yield the components by kind and solver."""
    part, free = layout.part, int((layout.component < 0).sum())
    if free:
        yield ComponentPlan("free variable", "clipped to [0, 1]", free, free, 0)
    names = _solved_by(part, solvers, choice)
    n_variables = np.bincount(part.component, minlength=part.n_components)
    for kind, of_kind in (("one factor", part.direct), ("several factors", ~part.direct)):
        for name in dict.fromkeys(names[of_kind].tolist()):
            mine = of_kind & (names == name)
            sizes = int(n_variables[mine].sum()), int(part.sizes[mine].sum())
            yield ComponentPlan(kind, name, int(mine.sum()), *sizes)


def _solved_by(
    part: Part, solvers: list[BucketSolver], choice: EngineChoice
) -> npt.NDArray[np.object_]:
    """Return for each component its engine, or the solver that core's engine uses."""
    names: npt.NDArray[np.object_] = np.full(part.n_components, "ADMM", dtype=object)
    for bucket, solver in solvers:
        names[bucket.component[part.direct[bucket.component]]] = solver.name
    for engine, components in reversed(choice.preferences):
        names[components] = engine.name
    return names


def _factors(solvers: list[BucketSolver]) -> Iterator[FactorPlan]:
    groups: dict[tuple[type, str], list[BucketSolver]] = {}
    for bucket, choice in solvers:
        groups.setdefault((bucket.type, choice.name), []).append((bucket, choice))
    for group in groups.values():
        first, choice = group[0]
        arity = np.concatenate([np.diff(bucket.offsets) for bucket, _ in group])
        yield FactorPlan(
            factor=first.type.__name__,
            count=len(arity),
            smallest_arity=int(arity.min()),
            largest_arity=int(arity.max()),
            links=int(arity.sum()),
            additionals=sum(bucket.n_additionals for bucket, _ in group),
            level=override_level(first.type),
            solver=choice.name,
            function=f"{choice.function.__module__}.{choice.function.__qualname__}",
            reason=choice.reason,
        )


# -------------------------------------------------------------------- memory


def _memory(layout: Layout, solvers: list[BucketSolver], threads: int) -> MemoryPlan:
    numbers = numbers_of(layout.part, layout.n_variables, threads)
    sets = sum(
        _active_set_bytes(bucket)
        for bucket, choice in solvers
        if issubclass(choice.solver, ActiveSets)
    )
    return MemoryPlan(_array_bytes(layout), FLOAT * numbers, sets)


def _active_set_bytes(bucket: Bucket) -> int:
    width = np.maximum(vertex_sizes(bucket), 1)
    sets, results = block_size(width, first_capacity(bucket)), 1.5 * width
    return int(FLOAT * (sets.sum() + results.sum() + 8 * bucket.n_factors + 2 * bucket.n_links))


def _array_bytes(layout: Layout) -> int:
    """Return the bytes of a layout's arrays, without those of its declarations."""
    part = layout.part
    buckets = (*layout.buckets, *part.buckets)
    holders = (layout, part, *buckets)
    arrays = [x for holder in holders for x in vars(holder).values() if isinstance(x, np.ndarray)]
    arrays += [x for bucket in buckets for x in bucket.factors]
    owners = {}
    for array in (*arrays, *part.spans, *part.links):
        owner = array.base if isinstance(array.base, np.ndarray) else array
        owners[owner.ctypes.data] = owner.nbytes
    return sum(owners.values())


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
    """Return a number of bytes in a readable unit."""
    size, units = float(n), iter(("bytes", "kB", "MB", "GB"))
    unit = next(units)
    while size >= 1000 and unit != "GB":
        size, unit = size / 1000, next(units)
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
