"""Registered parameters of a declaration: the attributes that kernels get."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Parameters"]


@dataclass
class Parameters:
    """Names of the attributes that kernels get, in the order of registration."""

    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Names from `Factor.per_factor` and `Factor.counts`, with the shape for one factor."""
    counts: set[str] = field(default_factory=set)
    """Those of them from `Factor.counts`."""
    link: str | None = None
    """The name from `Factor.per_link`."""
    integers: str | None = None
    """The name from `Factor.integers`."""

    @property
    def names(self) -> list[str]:
        """All names."""
        return [*self.rows, *(name for name in (self.link, self.integers) if name is not None)]

    def add_row(self, owner: str, name: str, shape: tuple[int, ...]) -> None:
        """Register numbers for every factor.

        Parameters
        ----------
        owner
            Name of the factor type in errors.
        name
            Name of the attribute.
        shape
            Shape of one factor's numbers.

        Raises
        ------
        TypeError
            If the name is already registered.
        """
        self._refuse_second(owner, name)
        self.rows[name] = shape

    def set_link(self, owner: str, name: str) -> None:
        """Register a number for every slot; `owner` and `name` as in `add_row`.

        Raises
        ------
        TypeError
            If the name or a parameter of this kind is already registered.
        """
        self._refuse_second(owner, name, self.link, "per_link")
        self.link = name

    def set_integers(self, owner: str, name: str) -> None:
        """Register an array of integers; `owner` and `name` as in `add_row`.

        Raises
        ------
        TypeError
            If the name or a parameter of this kind is already registered.
        """
        self._refuse_second(owner, name, self.integers, "integers")
        self.integers = name

    def _refuse_second(
        self, owner: str, name: str, first: str | None = None, helper: str = ""
    ) -> None:
        if name in self.rows or name in (self.link, self.integers):
            raise TypeError(
                f"{owner}: {name} is registered twice; expected one call per parameter. To change "
                f"its value, assign to self.{name}."
            )
        if first is not None:
            raise TypeError(
                f"{owner}: {name} is the second parameter of self.{helper}, after {first}; "
                "expected one, because kernels get one such array. Register numbers of another "
                "shape by self.per_factor(name, value, shape=...)."
            )

    def same_as(self, other: Parameters) -> bool:
        """Whether an `other` declaration has equal parameters, so that both can share a bucket."""
        if self is other:
            return True
        rows = list(self.rows.items()) == list(other.rows.items())
        return rows and (self.link, self.integers) == (other.link, other.integers)

    def __str__(self) -> str:
        shown = [name + "".join(f"[{n}]" for n in shape) for name, shape in self.rows.items()]
        return ", ".join([*shown, *self.names[len(shown) :]]) or "none"
