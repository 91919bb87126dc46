"""Compiled kernels of all lpsmap packages, in a folder for each baseline processor.

The package has no code: `lpsmap_jit` reads the files.
"""

__version__ = "0.1.0"
