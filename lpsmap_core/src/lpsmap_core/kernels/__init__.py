"""What kernels of factor types are called with, and how they are reached."""
