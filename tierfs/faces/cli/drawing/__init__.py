"""Draw text from numbers, without I/O.

`map` draws a segment's bytes as one bar per tier; `top` turns two snapshots of a mount's statistics into a frame;
`progress` is the line of a command at work.
"""
