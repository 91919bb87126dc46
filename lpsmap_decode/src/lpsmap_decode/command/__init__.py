"""The commands ``lpsmap solve``, ``info``, ``convert``, ``decode`` and ``explain``."""
