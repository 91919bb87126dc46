"""The commands ``lpsmap solve``, ``info``, ``convert`` and ``decode``."""
