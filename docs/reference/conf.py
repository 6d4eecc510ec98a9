# SPDX-License-Identifier: Apache-2.0
"""Sphinx reads the docstrings of the package: `make docs` writes build/docs, warnings are errors."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
project = "Bolide"
release = re.search(r"project\(bolide VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
extensions = ["sphinx.ext.autodoc"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
python_display_short_literal_types = True
html_theme = "alabaster"
html_theme_options = {"description": "FlashInfer's operators on CUDA and CPU"}
nitpicky = False
