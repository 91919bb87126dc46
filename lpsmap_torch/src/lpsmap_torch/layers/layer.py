"""The base class of layers: options, layouts and solving."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import torch
from torch import Tensor

from lpsmap_core import Distributions, FactorGraph, Variables
from lpsmap_core.api import AUTO, DEFAULTS, check_readable, checked_count, checked_options, kind_of
from lpsmap_dynamic import refuse_arguments
from lpsmap_torch.built_graph import BuiltGraph, Declarations, no_factor
from lpsmap_torch.by_name import NotSpecifiable, local_name, register, shared_by, specification
from lpsmap_torch.estimators import Estimator, SparseMarginals
from lpsmap_torch.estimators.samples import seed_of
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.layers.checks import (
    Instances,
    check_parameters,
    check_scores,
    checked_lengths,
    checked_limits,
    checked_mask,
    checked_parameters,
)
from lpsmap_torch.layers.layer_solution import (
    Samples,
    checked_estimator,
    solution_of,
    structures_of,
)
from lpsmap_torch.layers.layouts import Layouts, marginals_on_device, marginals_on_host
from lpsmap_torch.temperature import Temperature, TemperatureMixin, divided, is_one, of_batch
from lpsmap_torch.tensor.device_solution import ENGINES, engine_on
from lpsmap_torch.tensors import is_compiled, is_eager
from lpsmap_torch.traced_calls import traced_call

_is_exporting = getattr(torch.compiler, "is_exporting", lambda: False)


class Layer(TemperatureMixin):
    """A module whose output is the solution of a factor graph for its input.

    Scores have any number of leading batch axes, and marginals have their shape, dtype and device.
    Padding, as defined by `lengths` or a `mask`, has marginals and gradients of zero, and may hold
    any values. Lengths and masks may be on any device.

    Parameters
    ----------
    max_iter, max_inner_iter, tol, dual_tol, step_size, adapt, relaxation, threads, engine
        As in `SparseMAP`.
    backward_tol, backward_max_iter, temperature, estimator
        As in `SparseMAP`.
    """

    engine: str
    event_ndim: int = 1
    """The number of axes of the scores of an instance."""
    mask_ndim: int = 1
    """The number of axes of the mask of an instance."""
    _maps_batches = True
    max_lengths: int = 1
    """The number of lengths that an instance can have."""
    accepts_single_length: bool = True
    """Whether an instance can have a single length."""
    single_length_first: bool = False
    """Whether lengths in the shape of the batch, which could also be several for every instance of
    its first axes, are single ones."""
    limit: ClassVar[str] = ""
    """The name of a limit, such as a budget, that calls can set for every instance by an argument:
    integers in the shape of the batch, on any device; axes of the batch may be 1, and its last axes
    may be omitted."""
    solved_by: ClassVar[tuple[str, ...]] = ()
    """The constructor arguments that solutions depend on besides `OPTIONS`; also attributes."""

    def __init__(
        self,
        *,
        max_iter: int = DEFAULTS.max_iter,
        max_inner_iter: int | None = None,
        tol: float = DEFAULTS.tol,
        dual_tol: float | None = None,
        step_size: float | None = None,
        adapt: bool = True,
        relaxation: float = DEFAULTS.relaxation,
        threads: int | None = None,
        backward_tol: float = DEFAULTS.backward_tol,
        backward_max_iter: int = DEFAULTS.backward_max_iter,
        engine: str = AUTO,
        temperature: Temperature = 1.0,
        estimator: str | Estimator = "sparsemap",
        **unknown: Any,
    ) -> None:
        super().__init__()
        refuse_arguments(type(self).__name__, unknown, constructor_arguments(type(self)))
        self.temperature = temperature
        self.estimator = checked_estimator(f"{type(self).__name__}: estimator", estimator)
        options = {
            "max_iter": max_iter,
            "max_inner_iter": max_inner_iter,
            "tol": tol,
            "dual_tol": dual_tol,
            "step_size": step_size,
            "adapt": adapt,
            "relaxation": relaxation,
            "threads": threads,
            "backward_tol": backward_tol,
            "backward_max_iter": backward_max_iter,
        }
        checked_options(**options)
        if not isinstance(engine, str):
            got = f"{type(self).__name__}: engine is {kind_of(engine)}"
            raise TypeError(f"{got}; expected the name of an engine.")
        for name, value in {**options, "engine": engine}.items():
            setattr(self, name, value)

    def forward(
        self,
        scores: Tensor,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
        return_solution: bool = False,
        **others: Any,
    ) -> Any:
        """Return the marginals, or the values of another estimator.

        Parameters
        ----------
        scores
            The scores, batch first.
        lengths
            The lengths of the instances. Axes of the batch may be 1, and the last ones may be
            omitted; lengths then apply to all entries.
        mask
            True for entries that take part.
        return_solution
            Whether to return all results of the solve; it breaks the graph of torch.compile.
        others
            The limit of every instance by its name, of layers that have one.

        Returns
        -------
        Tensor or LayerSolution
            Marginals like the scores, with zeros in the padding; or the solution that has them.

        Raises
        ------
        TypeError
            If the scores are not a floating-point tensor, the lengths not integers, or the mask not
            booleans, or if there is another argument.
        ValueError
            If a shape or device does not match.
        """
        inputs = self._inputs(lengths=lengths, mask=mask, **others)
        return self._output(return_solution, scores, inputs)

    def structures(self, scores: Tensor, *others: Any, **arguments: Any) -> Distributions:
        """Return a sparse distribution over structures whose mean is the marginals.

        Parameters
        ----------
        scores, others, arguments
            The arguments of `forward`.

        Returns
        -------
        Distributions
            The distributions of the factors of the first declaration, as tensors; the probabilities
            carry gradients. Types whose factors need a variable have no factor for an instance
            without variables.
        """
        built = self._scaled_graph(scores, self._inputs(*others, **arguments))
        estimate = SparseMarginals().estimate(built.graph, self._options)
        return structures_of(built, estimate, scores.dtype)

    def sample(
        self,
        scores: Tensor,
        n: int = 1,
        *,
        generator: torch.Generator | None = None,
        **arguments: Any,
    ) -> Samples:
        """Return samples from the Gibbs distribution, with their log-probabilities.

        Parameters
        ----------
        scores, arguments
            The arguments of `forward`.
        n
            The number of independent samples of every instance.
        generator
            The random number generator; None for that of torch.

        Returns
        -------
        Samples
            ``values`` of shape ``(n, *scores.shape)``, zeros and ones without gradients; and
            ``log_probabilities`` of shape ``(n, *batch)``, with gradients, for
            `lpsmap_torch.estimators.score_function_loss`; in at least single precision, and NaN for
            instances without a structure.

        Raises
        ------
        TypeError
            If a factor type has no inference.
        ValueError
            If the sums over factors that form a cycle take too much memory.
        """
        built = self._scaled_graph(scores, self._inputs(**arguments))
        n, gibbs = checked_count("sample: n", n), built.graph.gibbs()
        drawn = gibbs.sample(n, seed_of(generator))
        log_p = built.by_item(drawn.log_probabilities.double())
        log_p = log_p.to(torch.promote_types(scores.dtype, torch.float32))  # sums may overflow
        return Samples(built.shown_samples(drawn.values).to(scores.dtype), log_p)

    def build(self, scores: Tensor, *others: Any, **arguments: Any) -> BuiltGraph:
        """Return the factor graph of the layer for given scores, to be solved in any way.

        Losses take a layer in place of factors, and call this.

        Parameters
        ----------
        scores, others, arguments
            The arguments of `forward`.
        """
        return self._build_graph(scores, self._inputs(*others, **arguments))

    def decode(
        self, scores: Tensor, options: dict[str, Any] | None = None, **arguments: Any
    ) -> Tensor:
        """Return the best structures as zeros and ones like the scores, without gradients.

        Parameters
        ----------
        scores, arguments
            The arguments of `forward`.
        options
            Options of `FactorGraph.solve_map`, by name. ``exact=False`` gives the LP-MAP
            relaxation, which can be fractional if factors interact, and needs no ``lpsmap-decode``.

        Returns
        -------
        Tensor
            Like the scores; zeros in the padding, and in items without a structure.
        """
        return self.build(scores, **arguments).decode(options or {}).to(scores.dtype)

    def extra_repr(self) -> str:
        """Return the options that differ from the defaults."""
        changed = {k: v for k, v in self._options.items() if v != OPTIONS[k]}
        words = [f"{k}={v!r}" for k, v in {**self._repr_arguments(), **changed}.items()]
        if not isinstance(self.estimator, SparseMarginals):
            words.append(f"estimator={self.estimator!r}")
        return ", ".join(filter(None, [*words, super().extra_repr()]))

    # ---------------------------------------------------------------- for subclasses

    def declare(self, u: Variables, instances: Instances, n_parameters: int) -> Declarations:
        """Return the declarations over variables.

        Parameters
        ----------
        u
            The variables, in the shape that `variables_shape` returns.
        instances
            Lengths, mask and limits of the instances, as arrays.
        n_parameters
            The number of parameters that score the additionals of an instance.
        """
        raise NotImplementedError

    def variables_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the variables for scores of a given `shape`."""
        return shape

    def _prepare(self, scores: Tensor) -> Tensor:
        """Return the scores of the variables, given those of a call."""
        return scores

    def _finish(self, marginals: Tensor, inputs: dict[str, Any]) -> Tensor:
        """Return what a call returns, given the marginals."""
        return marginals

    def _weights(self) -> Tensor | None:
        """Return the flat parameters that score additionals, or None."""
        return None

    def _inputs(self, *, lengths: Any = None, mask: Any = None, **others: Any) -> dict[str, Any]:
        """Return parameters, lengths, mask and limits of a call."""
        limits = others.pop(self.limit, None)
        names = "lengths", "mask", "return_solution", self.limit
        refuse_arguments(type(self).__name__, others, [*filter(None, names)])
        return {"parameters": self._weights(), "lengths": lengths, "mask": mask, "limits": limits}

    def _repr_arguments(self) -> dict[str, Any]:
        return {}

    # ---------------------------------------------------------------- marginals

    def _output(self, return_solution: bool, scores: Tensor, inputs: dict[str, Any]) -> Any:
        """Return the marginals or the solution; `inputs` are those of `_inputs`."""
        if isinstance(self.estimator, SparseMarginals) and not return_solution:
            return self._marginals(scores, inputs)
        if _is_exporting():
            raise RuntimeError(
                f"{type(self).__name__}: torch.export can only save marginals of the estimator "
                '"sparsemap"; expected it, without return_solution.'
            )
        return self._eagerly(return_solution, scores, inputs)

    def _marginals(self, scores: Tensor, inputs: dict[str, Any]) -> Tensor:
        self._check_exportable()
        parameters, instances = self._validate(scores, **inputs)
        scaled, parameters = self._divide(self._prepare(scores), parameters)
        if is_eager(scaled):
            marginals = self._solve(scaled, parameters, instances)
        else:  # a solve reads numbers, which only the operator has
            others = {"parameters": parameters, **instances._asdict()}
            marginals = traced_call(self._name, scores.ndim, scaled, others)
        if marginals.dtype is not scores.dtype:
            marginals = marginals.to(scores.dtype)
        return self._finish(marginals, inputs)

    def _solve(self, scores: Tensor, parameters: Tensor | None, instances: Instances) -> Tensor:
        """Return the marginals of validated tensors."""
        on_device = engine_on(scores.device.type, self.engine) is not None
        arrays, shape = instances.on_host(), tuple(scores.shape)
        n_parameters = 0 if parameters is None else parameters.shape[-1]

        def build() -> BuiltGraph:
            graph = FactorGraph()
            graph.refuses_non_finite = TorchFactorGraph.refuses_non_finite
            return self._lay_out(graph, shape, arrays, n_parameters)

        with self._layouts.graph((shape, n_parameters, arrays.key), build) as built:
            given, options = (built, scores, parameters), self._options
            marginals = marginals_on_device(*given, options) if on_device else None
            return marginals_on_host(*given, options) if marginals is None else marginals

    def _evaluate(self, scores: Tensor, *, parameters: Tensor | None, **instances: Any) -> Tensor:
        """Return the marginals in a traced call."""
        return self._solve(scores, parameters, Instances(**instances)).to(scores.dtype)

    def _check_exportable(self) -> None:
        if self._unspecified and _is_exporting():
            raise RuntimeError(
                f"{type(self).__name__}: torch.export cannot save this layer: {self._unspecified}. "
                "Export layers of lpsmap_torch.layers with factor types of installed plugins, and "
                "options that are numbers, strings, booleans or NumPy arrays."
            )

    def _validate(
        self, scores: Tensor, parameters: Tensor | None, lengths: Any, mask: Any, limits: Any
    ) -> tuple[Tensor | None, Instances]:
        """Return the parameters of every instance; and lengths, mask and limits in full shape."""
        name = type(self).__name__
        check_scores(name, scores, self.event_ndim)
        batch = self._batch(scores)
        if not (scores.is_meta or torch.compiler.is_compiling()):
            check_readable(f"{name}: lengths", lengths)
            check_readable(f"{name}: mask", mask)
        instances = Instances(
            self._checked_lengths(lengths, batch),
            checked_mask(name, mask, tuple(scores.shape[: len(batch) + self.mask_ndim])),
            checked_limits(f"{name}: {self.limit}", limits, batch),
        )
        return checked_parameters(name, parameters, scores, batch), instances

    def _checked_lengths(self, lengths: Any, batch: tuple[int, ...]) -> Tensor | None:
        name, one = type(self).__name__, self.accepts_single_length
        return checked_lengths(
            name, lengths, batch, self.max_lengths, one, self.single_length_first
        )

    def _divide(self, scores: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return scores and parameters of every instance divided by the temperature."""
        if is_one(self.temperature):
            return scores, weights
        name = f"{type(self).__name__}: temperature"
        batch, reads = self._batch(scores), not scores.is_meta
        temperature = of_batch(name, self.temperature, batch, reads=reads)
        of_scores = of_weights = temperature
        if isinstance(temperature, Tensor):
            check_parameters(type(self).__name__, temperature, scores)
            of_scores = temperature.reshape(*temperature.shape, *(1,) * self.event_ndim)
            of_weights = temperature.unsqueeze(-1)
        weights = None if weights is None else divided(weights, of_weights)
        return divided(scores, of_scores), weights

    def _batch(self, scores: Tensor) -> tuple[int, ...]:
        return tuple(scores.shape[: scores.ndim - self.event_ndim])

    # ---------------------------------------------------------------- graphs, and estimates

    def _eagerly(self, *call: Any) -> Any:
        """Return `_estimate`, which torch.compile does not trace."""
        run: Any = torch.compiler.disable(self._estimate) if is_compiled() else self._estimate  # type: ignore[no-untyped-call]
        return run(*call)

    def _estimate(self, return_solution: bool, scores: Tensor, inputs: dict[str, Any]) -> Any:
        options = dict(self._options)
        if options["engine"] in ENGINES and not isinstance(self.estimator, SparseMarginals):
            options["engine"] = AUTO  # engines on tensors have no best structures
        built = self._scaled_graph(scores, inputs)
        estimate = self.estimator.estimate(built.graph, options)
        marginals = built.shown(estimate).to(scores.dtype)
        marginals = self._finish(marginals, inputs)
        return solution_of(built, estimate, marginals) if return_solution else marginals

    def _scaled_graph(self, scores: Tensor, inputs: dict[str, Any]) -> BuiltGraph:
        """Return the graph with scores divided by the temperature, and at least one factor."""
        built = self._build_graph(scores, inputs, divides=True)
        if not built.graph.factors:
            built.graph.add(no_factor(built.block))
        built.temperature = of_batch("temperature", self.temperature, built.batch)
        return built

    def _build_graph(
        self, scores: Tensor, inputs: dict[str, Any], divides: bool = False
    ) -> BuiltGraph:
        """Return the graph with the scores, divided by the temperature or not."""
        parameters, instances = self._validate(scores, **inputs)
        n_parameters = 0 if parameters is None else parameters.shape[-1]
        graph, shape = TorchFactorGraph(), tuple(scores.shape)
        with torch.device("cpu"):  # variables without scores are there, whatever the default device
            built = self._lay_out(graph, shape, instances.on_host(), n_parameters)
        built.prepare = self._prepare
        prepared = self._prepare(scores)
        if divides:
            prepared, parameters = self._divide(prepared, parameters)
        built.set_scores(built.place(prepared), built.additionals(parameters))
        return built

    def _lay_out(
        self, graph: FactorGraph, shape: tuple[int, ...], instances: Instances, n_parameters: int
    ) -> BuiltGraph:
        """Return a graph with the declarations for scores of a shape."""
        u = graph.variable(self.variables_shape(shape))
        declared = self.declare(u, instances, n_parameters)
        for factor in declared.factors:
            graph.add(factor)
        return BuiltGraph(graph, u, declared, shape[: len(shape) - self.event_ndim], n_parameters)

    # ---------------------------------------------------------------- the name

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "estimator":
            value = checked_estimator(f"{type(self).__name__}: estimator", value)
        super().__setattr__(name, value)
        if name in OPTIONS or name in self.solved_by:
            self._register()

    def _register(self) -> None:
        """Let traced calls find this layer by the name of its options, once all are set."""
        names = *OPTIONS, *self.solved_by
        if not all(name in vars(self) for name in names):
            return  # the constructor has not finished
        self._options = {name: getattr(self, name) for name in OPTIONS}
        try:
            self._name = specification(type(self), {name: getattr(self, name) for name in names})
            self._unspecified = ""
        except NotSpecifiable as error:
            self._name, self._unspecified = local_name("layer"), str(error)
        self._layouts = shared_by(self._name, Layouts)
        register(self._name, self)

    def __getstate__(self) -> dict[str, Any]:
        of_process = "_layouts", "_name", "_options", "_unspecified"
        return {k: v for k, v in vars(self).items() if k not in of_process}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._register()


def constructor_arguments(kind: type[Layer]) -> list[str]:
    """Return the names of the arguments of a layer's constructor, its own ones first."""
    own = inspect.signature(kind).parameters.values()
    names = [p.name for p in own if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return list(dict.fromkeys([*names, *OPTIONS, "temperature", "estimator"]))


_arguments = inspect.signature(Layer.__init__).parameters.items()
OPTIONS = {
    name: argument.default
    for name, argument in _arguments
    if name not in ("self", "temperature", "estimator", "unknown")
}
"""The options that all layers pass to `FactorGraph.solve`, with its defaults."""
