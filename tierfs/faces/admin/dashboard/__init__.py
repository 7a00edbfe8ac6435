"""The dashboard: pages of the admin server for a browser. They only read, and are complete without JavaScript.

paths.py says what a client needs for each path, and makes the links; guard.py of the room above asks it. sessions.py
has the cookie that stands for the token. views.py reads what a page shows, each within a bound; rendering.py turns it
into HTML with the templates, and pages.py answers requests. docs/admin.md is its manual.
"""
