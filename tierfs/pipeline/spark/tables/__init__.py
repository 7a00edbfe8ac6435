"""Tables that follow segments: the rows of a stream up to an offset, each once, with the offset in the table itself.

A table keeps the offset in the commit that has its rows, so nothing else needs to be right: no checkpoint. A round
writes files that no reader sees, and then commits files and offset together, if the table is still at the offset that
the round began at. Start with followed_table.py.
"""
