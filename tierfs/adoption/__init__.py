"""Adoption: objects that others wrote become segments where they lie.

A *planner* per system reads names (and small headers) of a foreign place and says which segments there
are: pure parsers of names live in `*_names.py`, everything they are given is hostile. `adopt` then reads
every byte once for its checksums (invariant 8) and makes each segment in one commit. Foreign objects are
never deleted, overwritten or tagged (invariant 5): their storage refuses to, and their records are marked.
"""
