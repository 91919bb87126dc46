"""Factor types for lpsmap."""

from lpsmap_dag_path.factor import DagPath

__all__ = ["DagPath"]
