"""Sphinx configuration: ``sphinx-build -W -b html docs docs/_build/html``."""

import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent)]

import pycoll  # noqa: E402

project = "pycoll"
author = "the pycoll developers"
version = release = pycoll.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "catalogue",
    "languages",
    "losses",
    "pictures",
    "predicted",
    "ratios",
    "playground",
]
exclude_patterns = ["_build", "_generated"]
nitpicky = False  # in docstrings, `single backquotes` mark arguments as well as objects
default_role = "py:obj"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
maximum_signature_line_length = 100
autodoc_mock_imports = [name for name in ("torch", "psutil") if not find_spec(name)]
napoleon_numpy_docstring = True
napoleon_google_docstring = False

# links to other sites need their inventories, which `sphinx-build -t online` downloads
if tags.has("online"):  # noqa: F821
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "mpi4py": ("https://mpi4py.readthedocs.io/en/stable", None),
    }

mathjax_path = "../mathjax/tex-svg.js"  # which the extension `playground` fetches

copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "pycoll"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["pycoll.css"]
html_js_files = ["frames.js"]
html_extra_path = ["_generated"]
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 5,
    "article_header_end": ["translation"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
# on Read the Docs, a switcher of versions: the releases in the changelog, the last one (stable), and main (latest)
if "READTHEDOCS" in os.environ:
    root = os.environ["READTHEDOCS_CANONICAL_URL"].rstrip("/").rpartition("/")[0]
    releases = re.findall(r"^## \[(\d.*?)\]", (DOCS.parent / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions = ["latest", "stable", *(f"v{release}" for release in releases)]
    (DOCS / "_generated").mkdir(exist_ok=True)
    entries = [{"version": each, "url": f"{root}/{each}/"} for each in versions]
    (DOCS / "_generated" / "switcher.json").write_text(json.dumps(entries))
    json_url = f"{root}/latest/switcher.json"  # the newest list, also in the documentation of older versions
    html_theme_options |= {
        "switcher": {"json_url": json_url, "version_match": os.environ["READTHEDOCS_VERSION"]},
        "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
        "check_switcher": False,  # there is none before the first build
    }
# pages that are not part of a section have no section navigation
html_sidebars = {
    page: []
    for page in ("tutorial", "algorithms", "playground", "zh/playground", "cheatsheet", "how-it-works", "development")
}
html_show_sourcelink = True

linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_anchors = False
linkcheck_ignore = [r"https://doi\.org/"]  # publishers refuse automatic requests
