"""The parameters that a declaration registers: which of its attributes kernels are handed."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Parameters"]


@dataclass
class Parameters:
    """Names of the attributes that kernels are handed, in the order of their registration."""

    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Those of `Factor.per_factor` and `Factor.counts`, with the shape of one factor's part."""
    link: str | None = None
    """That of `Factor.per_link`."""
    integers: str | None = None
    """That of `Factor.integers`."""

    @property
    def names(self) -> list[str]:
        """All names."""
        return [*self.rows, *(name for name in (self.link, self.integers) if name is not None)]

    def add_row(self, owner: str, name: str, shape: tuple[int, ...]) -> None:
        """Register numbers for every factor.

        Parameters
        ----------
        owner
            What an error calls the factor type.
        name
            Of the attribute.
        shape
            Of one factor's numbers.

        Raises
        ------
        TypeError
            If the name is taken.
        """
        self._refuse_second(owner, name)
        self.rows[name] = shape

    def set_link(self, owner: str, name: str) -> None:
        """Register a number for every slot; `owner` and `name` as in `add_row`.

        Raises
        ------
        TypeError
            If the name is taken, or there is one already.
        """
        self._refuse_second(owner, name, self.link, "per_link")
        self.link = name

    def set_integers(self, owner: str, name: str) -> None:
        """Register an array of integers; `owner` and `name` as in `add_row`.

        Raises
        ------
        TypeError
            If the name is taken, or there is one already.
        """
        self._refuse_second(owner, name, self.integers, "integers")
        self.integers = name

    def _refuse_second(
        self, owner: str, name: str, taken: str | None = None, helper: str = ""
    ) -> None:
        if name in self.rows or name in (self.link, self.integers):
            raise TypeError(
                f"{owner}: {name} is registered twice; expected one call for every parameter. To "
                f"change its value, assign to self.{name}."
            )
        if taken is not None:
            raise TypeError(
                f"{owner}: {name} is the second parameter of self.{helper}, after {taken}; "
                "expected one, because kernels are handed one such array. Numbers of another shape "
                "are for self.per_factor(name, value, shape=...)."
            )

    def same_as(self, other: Parameters) -> bool:
        """Whether an `other` declaration registers the same, so that both can share a bucket."""
        if self is other:
            return True
        rows = list(self.rows.items()) == list(other.rows.items())
        return rows and (self.link, self.integers) == (other.link, other.integers)

    def __str__(self) -> str:
        shown = [name + "".join(f"[{n}]" for n in shape) for name, shape in self.rows.items()]
        return ", ".join([*shown, *self.names[len(shown) :]]) or "none"
