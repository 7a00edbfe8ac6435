"""The admin API over HTTP: a process beside the store's holder, on a Unix socket of the store, and TCP on request.

protocol.py bounds what a connection may cost, guard.py decides who may ask, listen.py opens the sockets and serves;
appends.py gathers the appends of all clients into groups, offloads.py runs offloads with their status, and
resources.py has a handler for each verb, which openapi.py describes. docs/admin.md is its manual.
"""
