"""Registered parameters of a declaration: the attributes that kernels get."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Parameters:
    """Names of the attributes that kernels get, in the order of registration."""

    helpers: dict[str, str] = field(default_factory=dict)
    """All names, each with the method of `Factor` that registered it, such as ``"per_factor"``."""
    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Names from `Factor.per_factor` and `Factor.counts`, with the shape for one factor."""
    link: str | None = None
    """The name from `Factor.per_link`."""
    integers: str | None = None
    """The name from `Factor.integers`."""

    @property
    def names(self) -> list[str]:
        """All names."""
        return [*self.rows, *(name for name in (self.link, self.integers) if name is not None)]

    def register(self, owner: str, helper: str, name: str, shape: tuple[int, ...] = ()) -> None:
        """Register an attribute by the `helper` of `Factor`, with the `shape` for one factor.

        Raises a TypeError, in which the `owner` is the factor type, if the `name` is registered
        already, or another one by `per_link` or `integers`.
        """
        if name in self.helpers:
            raise TypeError(
                f"{owner}: {name} is registered twice; expected one call per parameter. To change "
                f"its value, assign to self.{name}."
            )
        first = {"per_link": self.link, "integers": self.integers}.get(helper)
        if first is not None:
            raise TypeError(
                f"{owner}: {name} is the second parameter of self.{helper}, after {first}; "
                "expected one, because kernels get one such array. Register numbers of another "
                "shape by self.per_factor(name, value, shape=...)."
            )
        self.helpers[name] = helper
        if helper == "per_link":
            self.link = name
        elif helper == "integers":
            self.integers = name
        else:
            self.rows[name] = shape

    def same_as(self, other: Parameters) -> bool:
        """Whether an `other` declaration has equal parameters, so that both can share a bucket."""
        rows = list(self.rows.items()) == list(other.rows.items())
        return rows and (self.link, self.integers) == (other.link, other.integers)

    def __str__(self) -> str:
        shown = [name + "".join(f"[{n}]" for n in shape) for name, shape in self.rows.items()]
        return ", ".join([*shown, *self.names[len(shown) :]]) or "none"
