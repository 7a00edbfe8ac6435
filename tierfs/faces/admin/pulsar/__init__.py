"""Pulsar's own admin client, below /admin/v2: what PIP-17 and the proposal of read priorities name of it.

served.py has the paths; topics.py says which directory a topic is, and its statistics and status as Pulsar's client
reads them; offload_policies.py what each field of Pulsar's offload policies means here. docs/admin.md is the manual.
"""
