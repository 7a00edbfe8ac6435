"""Reading segments: where bytes lie, fetching them once, checking each, keeping what is read next.

resolve.py is pure: a layout and a range in, pieces with candidates out. Cold bytes come in spans
(spans.py) that streaming fetches (fetch.py) fill and any number of readers share; local bytes come
straight from chunk files (local.py). readahead.py decides what to ask for before it is wanted, and
reader.py puts it together. From here up trio orchestrates; blocking work runs in threads.
"""
