"""Chains whose active set would grow too large: projection onto their flows."""
