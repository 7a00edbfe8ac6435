"""The bytes of BookKeeper ledgers as Apache Pulsar offloads them (PIP-17). Pure: no I/O, no clock.

Everything that is parsed here is hostile: sizes are bounded before anything is allocated, and damage is a
DataLoss that says what and where.
"""
