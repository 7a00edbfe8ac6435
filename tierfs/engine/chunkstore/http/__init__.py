"""Fetch ranges over HTTP and HTTPS: one protocol machine, and drivers that differ only in how they wait.

`ranged_get` builds the request and parses the head of the answer without I/O. `in_thread` waits in the calling thread
and receives into the caller's buffer: a tenth of the CPU that a general client takes for each byte. `on_loop` waits on
the trio loop. `connections` opens and keeps sockets for both, `tls` encrypts them.
"""
