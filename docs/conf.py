"""The documentation's settings; `make docs` builds it, and every warning is an error."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import matplotlib as mpl
from sphinx.util.inspect import TypeAliasForwardRef

import lpsmap
from lpsmap_jit.cache import CompilationNotice

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "lpsmap"
author = "the lpsmap developers"
copyright = author
version = release = lpsmap.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "attributes",
    "mathml",
    "public_names",
    "repository_links",
    "results",
    "source_pages",
    "tolerances",
    "whole_links",
]
exclude_patterns = ["_ext", "measured", "figures.py", "requirements.txt", "gallery/**/*.ipynb"]
suppress_warnings = ["config.cache"]  # the gallery's settings hold a class

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_url_schemes = ["http", "https"]

# Docstrings are NumPy's, and name things in single backticks.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_preserve_defaults = True
ARRAYS = ("FloatArray", "IntArray", "BoolArray", "ByteArray", "IndexArray")
autodoc_type_aliases = {name: name for name in ARRAYS}
autodoc_type_aliases["npt.ArrayLike"] = "ArrayLike"
TypeAliasForwardRef.__repr__ = lambda alias: alias.name  # how Sphinx writes one inside a union
napoleon_google_docstring = False

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"lpsmap {release}"
html_static_path = ["_static"]
html_css_files = ["lpsmap.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "tango"
pygments_dark_style = "monokai"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

mpl.rcParams["figure.dpi"] = 110
warnings.filterwarnings("ignore", category=CompilationNotice)  # no part of a page

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\w+\.py$",
    "copyfile_regex": r"index\.rst",
    "backreferences_dir": "gallery/backreferences",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "run_stale_examples": True,
    "ignore_repr_types": r"matplotlib|list|Generator",
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
}
