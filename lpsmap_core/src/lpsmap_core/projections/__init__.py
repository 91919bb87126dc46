"""Closed forms of local problems that are shared by factor packs."""
