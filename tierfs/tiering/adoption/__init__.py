"""Make segments from objects that other systems wrote, in place.

A *planner* per system (`pulsar`, `pravega`, `rocketmq`) reads names and small headers of a foreign place and plans
the segments there; names are untrusted input to pure parsers. `adopt` reads every byte once for its checksums
(invariant 8), and `link` makes each segment in one commit. Foreign objects are never deleted, overwritten or tagged
(invariant 5): their storage refuses to, and their records are marked.
"""
