"""The base class of losses: build a graph, read the target, and reduce the losses of items."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from lpsmap_core import Variables
from lpsmap_core.api import FloatArray, checked_count, kind_of
from lpsmap_dynamic import Labels
from lpsmap_torch.built_graph import BuiltGraph, Factors, built_by
from lpsmap_torch.by_name import local_name, register
from lpsmap_torch.estimators.estimator import Estimate
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.layers.layer import Layer
from lpsmap_torch.losses.labels import labels_given, read_target
from lpsmap_torch.losses.weights import (
    check_weight,
    checked_reduction,
    n_labelled_rows,
    reduced,
    weighted,
)
from lpsmap_torch.ranking import ranking_of
from lpsmap_torch.temperature import is_one
from lpsmap_torch.tensors import as_tensor
from lpsmap_torch.traced_calls import is_traced, traced_call

__all__ = ["StructuredLoss"]


class StructuredLoss(nn.Module, abc.ABC):
    """A loss for structures: the maximum minus the maximum given the labels.

    Parameters
    ----------
    factors
        Called with the variables, and with the keyword arguments of the call; returns a factor or
        several. Every factor type is such a function: ``DepTree``. Or a layer, such as
        ``LatentTree(budget=2)``, whose factors, parameters, lengths and masks then apply.
    reduction
        Reduction of the items' losses: ``"mean"``, ``"sum"``, or ``"none"``; or ``"token_mean"``,
        their sum divided by the number of rows of the last axis with a label.
    """

    _maps_batches = False

    def __init__(
        self, factors: Factors | Layer, *, reduction: str = "mean", **unknown: NoReturn
    ) -> None:
        super().__init__()
        self._refuse(unknown, "options of the loss, such as reduction")
        if not callable(factors):
            raise TypeError(
                f"{type(self).__name__}: factors is a {type(factors).__name__}; expected a factor "
                "type such as DepTree, a function of variables that returns factors, or a layer."
            )
        layer_type: Any = factors
        if isinstance(layer_type, type) and issubclass(layer_type, Layer):
            raise TypeError(
                f"{type(self).__name__}: factors is the class {layer_type.__name__}; expected a "
                f"layer: {layer_type.__name__}(...)."
            )
        self.factors = factors
        self.reduction = checked_reduction(type(self).__name__, reduction)
        self._register()

    def _register(self) -> None:
        """Let calls inside torch.compile and transforms of torch.func find this loss."""
        self._name = local_name("loss")
        register(self._name, self)

    def _refuse(self, unknown: Mapping[str, Any], expected: str) -> None:
        """Raise if there are arguments that are not of the loss, but perhaps of its factors.

        Raises
        ------
        TypeError
            If there are.
        """
        if unknown:
            name, first = type(self).__name__, min(unknown)
            raise TypeError(
                f"{name}: got {first}={unknown[first]!r:.40}; expected {expected}. Give arguments "
                f"of factors to a layer or a function, such as {name}(LatentTree(budget=2)) or "
                f"{name}(functools.partial(DepTree, single_root=True)), or to every call by name."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_name"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._register()

    def forward(
        self,
        scores: Tensor,
        target: Any,
        *unnamed: NoReturn,
        target_additionals: Any = None,
        root: int | str = -1,
        weight: Tensor | None = None,
        **arguments: Any,
    ) -> Tensor:
        """Return the loss.

        Parameters
        ----------
        scores
            ``(batch, ...)`` the scores of the variables; the first axis are the items. Float16 and
            bfloat16 are converted to float32.
        target
            Either labels of the variables in the shape of the scores: 0, 1, or NaN for unlabelled
            variables. Or integers without the last axis: the position on it that is on, as in
            `torch.nn.functional.cross_entropy`, -1 for a row of which nothing is on, such as one
            without a partner in a matching, and -100 for unlabelled rows. In rows of `DepTree`,
            heads as in decoded trees, in either layout, -1 for the root. Targets of variables in no
            factor, such as those beyond `lengths`, are ignored. Losses without a margin also take
            marginals between 0 and 1, a mixture of structures, without a gradient.
        target_additionals
            For marginals of factors with additionals, such as the transitions of a `Sequence`:
            their marginals, in the shape of their scores, as ``graph.additionals_of(factor)``
            returns; a list of them if several declarations have additionals.
        root
            The head of a root in targets of trees: -1, or ``"self"`` for the word itself.
        weight
            ``(batch,)`` by which the losses of the items are multiplied; or of the shape of more of
            the first axes of the scores, if no factor connects their entries. Finite, at least 0.
        arguments
            Arguments of `factors`, such as ``lengths`` or the scores of additionals, by name.

        Returns
        -------
        Tensor
            A scalar, or ``(batch,)`` losses without a reduction.

        Raises
        ------
        TypeError
            If scores or target have a wrong type, or another argument is not named.
        ValueError
            If a shape, a device or a value is invalid, or factors do not allow the target.
        ImportError
            If the target has unlabelled variables, and ``lpsmap-decode`` is not installed.
        """
        if unnamed:
            name = type(self).__name__
            raise TypeError(
                f"{name}: got {kind_of(unnamed[0])} as the argument after scores and target; "
                "expected all others by name. Write criterion(scores, target, lengths=lengths)."
            )
        scores = checked_scores(type(self).__name__, scores)
        if not is_traced():
            return self._loss(scores, target, target_additionals, root, weight, arguments)
        named = {"target": target, "target_additionals": target_additionals, "root": root}
        others = {
            "named": {**named, "weight": weight, **arguments},
            "state": {**dict(self.named_parameters()), **dict(self.named_buffers())},
            "graded": torch.is_grad_enabled(),
        }
        return traced_call(self._name, 1 if self.reduction == "none" else 0, scores, others)

    def _evaluate(
        self, scores: Tensor, *, named: dict[str, Any], state: dict[str, Tensor], graded: bool
    ) -> Tensor:
        """Return the loss for parameters and buffers of a traced call."""
        with torch.set_grad_enabled(graded):
            loss: Tensor = torch.func.functional_call(self, state, (scores,), named)
            return loss

    def _loss(
        self,
        scores: Tensor,
        target: Any,
        target_additionals: Any,
        root: int | str,
        weight: Tensor | None,
        arguments: dict[str, Any],
    ) -> Tensor:
        name = type(self).__name__
        scores = as_tensor(f"{name}: scores", scores)
        if weight is not None:
            check_weight(name, weight, tuple(scores.shape))
        built = self._built(scores, arguments)
        u = built.variables
        known = read_target(u, scores, target, root)
        compared = self._augmented(scores, known)
        if compared is not scores:
            built.rescore(compared)
        axes = 1 if weight is None else weight.ndim
        labels = labels_given(u, known, target_additionals, axes)
        losses = self._items_losses(u, labels).to(scores.dtype)
        if weight is not None:
            losses = weighted(losses, weight)
        n_rows = n_labelled_rows(u, known) if self.reduction == "token_mean" else 0
        return reduced(losses, self.reduction, n_rows)

    def _built(self, scores: Tensor, arguments: dict[str, Any]) -> BuiltGraph:
        if isinstance(self.factors, Layer):
            if not is_one(self.factors.temperature):
                name = type(self).__name__
                raise ValueError(
                    f"{name}: the layer has a temperature of its own; expected 1. Give it to the "
                    f"loss instead, by {name}(layer, temperature=...)."
                )
            return self.factors.build(scores, **arguments)
        return built_by(self.factors, scores, arguments)

    def decode(
        self, scores: Tensor, options: dict[str, Any] | None = None, **arguments: Any
    ) -> Tensor:
        """Return the best structures as zeros and ones like the scores, without gradients.

        Parameters
        ----------
        scores, arguments
            As in `forward`.
        options
            Options of `FactorGraph.solve_map`, as in `Layer.decode`.
        """
        checked = checked_scores(type(self).__name__, scores)
        as_tensor(f"{type(self).__name__}: scores", checked)
        return self._built(checked, arguments).decode(options or {}).to(scores.dtype)

    def marginals(self, scores: Tensor, **arguments: Any) -> Tensor:
        """Return the marginals that the gradient of the loss compares with the target.

        Of random fields those of the Gibbs distribution, of SparseMAP the sparse ones, both with
        gradients, and of perceptrons and hinges the best structures; without a margin.

        Parameters
        ----------
        scores, arguments
            As in `forward`.
        """
        built = self._built(checked_scores(type(self).__name__, scores), arguments)
        return built.shown(self._estimate(built.graph)).to(scores.dtype)

    def k_best(self, scores: Tensor, k: int, **arguments: Any) -> Tensor:
        """Return the `k` best structures, ``(k, *scores.shape)`` zeros and ones, the best first.

        Parameters
        ----------
        scores, arguments
            As in `forward`.
        k
            The number of structures. An item with fewer has zeros for the others.
        """
        built = self._built(checked_scores(type(self).__name__, scores), arguments)
        k = checked_count("k_best: k", k)
        values = torch.from_numpy(ranking_of(built.graph, built.items(), k).values)
        return built.shown_samples(values.to(scores))

    @abc.abstractmethod
    def _estimate(self, graph: TorchFactorGraph) -> Estimate:
        """Return the estimate whose marginals the gradient has."""

    def _augmented(self, scores: Tensor, known: FloatArray) -> Tensor:
        """Return the scores, with a margin if the loss has one."""
        return scores

    @abc.abstractmethod
    def _items_losses(self, u: Variables, labels: Labels) -> Tensor:
        """Return the losses of the items."""

    def extra_repr(self) -> str:
        """Return the arguments for `repr`."""
        made = getattr(self.factors, "__name__", type(self.factors).__name__)
        made = "" if isinstance(self.factors, Layer) else f"{made}, "  # shown as a submodule
        return f"{made}reduction={self.reduction!r}"


def checked_scores(name: str, scores: Any) -> Tensor:
    """Validate scores, and return them in at least single precision.

    Raises
    ------
    TypeError
        If they are not a floating-point tensor.
    ValueError
        If they have no batch axis.
    """
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        got = f"dtype {scores.dtype}" if isinstance(scores, Tensor) else kind_of(scores)
        raise TypeError(
            f"{name}: scores: got {got}; expected a floating-point tensor, which can have "
            "gradients."
        )
    if not scores.ndim:
        raise ValueError(f"{name}: scores have no axis; expected the batch first, (batch, ...).")
    return scores if scores.dtype == torch.float64 else scores.float()
