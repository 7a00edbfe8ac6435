"""One suite per protocol, run on every provider and wrapper."""
