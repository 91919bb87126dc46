"""The command line ``lpsmap``."""
