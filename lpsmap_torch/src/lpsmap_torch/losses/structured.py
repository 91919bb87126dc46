"""The base class of losses: build a graph, read the target, and reduce the losses of items."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from lpsmap_core import Variables
from lpsmap_core.api import FloatArray, checked_count, kind_of, real_numbers
from lpsmap_dynamic import Labels, check_root, in_factors, labels_of, read_labels
from lpsmap_torch.built_graph import BuiltGraph, Factors, built_by
from lpsmap_torch.by_name import local_name, register
from lpsmap_torch.estimators.estimator import Estimate
from lpsmap_torch.graph import TorchFactorGraph
from lpsmap_torch.layers.layer import Layer
from lpsmap_torch.ranking import ranking_of
from lpsmap_torch.temperature import is_one
from lpsmap_torch.tensors import as_tensor, numbers
from lpsmap_torch.traced_calls import is_traced, traced_call


class _WithoutHooks(nn.Module):
    """A loss whose hooks the traced call runs."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.loss.forward(*args, **named)


class StructuredLoss(nn.Module, abc.ABC):
    """A loss for structures: the maximum minus the maximum given the labels.

    Parameters
    ----------
    factors, reduction
        As in `SparseMAPLoss`.
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
        self.reduction = reduction
        self._register()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "reduction":
            value = checked_reduction(type(self).__name__, value)
        super().__setattr__(name, value)

    def _register(self) -> None:
        """Let calls inside torch.compile and transforms of torch.func find this loss."""
        self._name = local_name("loss")
        register(self._name, self)

    def _refuse(self, unknown: Mapping[str, Any], expected: str) -> None:
        """Raise if there are arguments that are not of the loss, but perhaps of its factors."""
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
            state = {f"loss.{key}": value for key, value in state.items()}
            loss: Tensor = torch.func.functional_call(_WithoutHooks(self), state, (scores,), named)
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
        built = self._build_graph(scores, arguments)
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

    def _build_graph(self, scores: Tensor, arguments: dict[str, Any]) -> BuiltGraph:
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
        return self._build_graph(checked, arguments).decode(options or {}).to(scores.dtype)

    def marginals(self, scores: Tensor, **arguments: Any) -> Tensor:
        """Return the marginals that the gradient of the loss compares with the target.

        Of random fields those of the Gibbs distribution, of SparseMAP the sparse ones, both with
        gradients, and of perceptrons and hinges the best structures; without a margin.

        Parameters
        ----------
        scores, arguments
            As in `forward`.
        """
        built = self._build_graph(checked_scores(type(self).__name__, scores), arguments)
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
        built = self._build_graph(checked_scores(type(self).__name__, scores), arguments)
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
    """Validate scores, and return them in at least single precision."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        got = f"dtype {scores.dtype}" if isinstance(scores, Tensor) else kind_of(scores)
        raise TypeError(
            f"{name}: scores: got {got}; expected a floating-point tensor, which can have "
            "gradients."
        )
    if not scores.ndim:
        raise ValueError(f"{name}: scores have no axis; expected the batch first, (batch, ...).")
    return scores if scores.dtype == torch.float64 else scores.float()


def read_target(u: Variables, scores: Tensor, target: Any, root: int | str = -1) -> FloatArray:
    """Return the label of every variable: 0 to 1, or NaN if it is unlabelled.

    The graph of the variables has all factors, and their scores are on the device of the target,
    which is read as by `lpsmap_dynamic.read_labels`.
    """
    check_root(root)
    if isinstance(target, Tensor):
        if target.device != scores.device:
            raise ValueError(
                f"target is on {target.device}, and scores are on {scores.device}; expected both "
                "on one device. Move the target with target.to(scores.device)."
            )
        target = target.detach().cpu()
        target = target.numpy() if not target.is_floating_point() else numbers(target)
    return read_labels(u.graph, u.index, real_numbers("target", target), root)


def labels_given(
    u: Variables, target: FloatArray, additionals: Any = None, axes: int = 1
) -> Labels:
    """Return the labels of all variables of a graph; see `lpsmap_dynamic.labels_of`.

    Marginals of additionals are, of the only declaration with additionals, a tensor in the shape of
    their scores; of several, a list in the order of the declarations; or None.
    """
    if additionals is None:
        return labels_of(u, target, None, axes)
    parts = list(additionals) if isinstance(additionals, (list, tuple)) else [additionals]
    arrays = [
        numbers(x) if isinstance(x, Tensor) else real_numbers("target_additionals", x)
        for x in parts
    ]
    return labels_of(u, target, arrays, axes)


REDUCTIONS = ("none", "mean", "sum", "token_mean")


def checked_reduction(name: str, reduction: str) -> str:
    """Validate the name of a reduction."""
    if reduction not in REDUCTIONS:
        names = ", ".join(map(repr, REDUCTIONS))
        raise ValueError(f"{name}: reduction is {reduction!r}; expected one of {names}.")
    return reduction


def check_weight(name: str, weight: Any, shape: tuple[int, ...]) -> None:
    """Validate weights for scores of a shape."""
    if not isinstance(weight, Tensor) or weight.is_complex():
        raise TypeError(f"{name}: weight is {kind_of(weight)}; expected a tensor of numbers.")
    weight_shape = tuple(weight.shape)
    if not weight_shape or weight_shape != shape[: len(weight_shape)]:
        raise ValueError(
            f"{name}: weight has shape {weight_shape}; expected {shape[:1]}, one weight for every "
            f"item, or more of the first axes of the scores, {shape}."
        )
    values = weight.detach()
    wrong = values[~((values >= 0) & (values < torch.inf))]
    if wrong.numel():
        raise ValueError(
            f"{name}: weight holds {wrong[0].item():g}; expected finite numbers, 0 or more."
        )


def weighted(losses: Tensor, weight: Tensor) -> Tensor:
    """Return the sum of weighted losses for every item, the first axis of the weights."""
    products = losses.reshape(weight.shape) * weight.to(losses)
    return products if weight.ndim == 1 else products.flatten(1).sum(1)


def n_labelled_rows(u: Variables, known: FloatArray) -> int:
    """Return the number of rows of the last axis that have a label, one that is not NaN."""
    labelled = (known == known) & in_factors(u.graph)[u.index]
    return int((labelled.any(axis=-1) if u.ndim > 1 else labelled).sum())


def reduced(losses: Tensor, reduction: str, n_rows: int) -> Tensor:
    """Return the losses of items, their mean, their sum, or their sum over the number of rows."""
    if reduction == "none":
        return losses
    if reduction == "mean":
        return losses.mean()
    total = losses.sum()
    return total / max(n_rows, 1) if reduction == "token_mean" else total
