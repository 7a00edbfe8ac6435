"""Settings of Sphinx for the site; build.py copies this file next to the pages."""

import os

project = "tierfs"
html_title = f"tierfs {os.environ['TIERFS_VERSION']}"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 6
"""Names of sections as a code host gives them."""

html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_show_search_summary = False
"""It fetches pages, which a browser refuses to a page that is read from a file."""

highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]
"""Blocks have an ellipsis where their output varies."""
