"""Ranged GETs over plain HTTP: one protocol, two ways to wait for the server.

`ranged_get` is the protocol: the request as bytes, what an answer must look like, where its body goes, and the
connections that are idle. It waits for nothing. `in_thread` drives it with blocking sockets, for long reads,
`on_loop` on the trio loop, for short ones: the only module of the engine that imports trio, and readers alone
import it. Both try once; errors, retries and encrypted connections are the storage's.
"""
