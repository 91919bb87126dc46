"""Declarations: variables, and factors over them."""
