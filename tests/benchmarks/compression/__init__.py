"""Compare a store that compresses cold objects with one that does not, with raw GETs and with JuiceFS.

Each subject makes both stores in one run and measures them in turn. As long as tierfs has no policy `compression`, both
are the same.
"""
