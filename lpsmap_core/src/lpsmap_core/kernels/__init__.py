"""The arguments of kernels of factor types, and their calls by address."""
