"""Closed forms of local problems that factor packs share."""
