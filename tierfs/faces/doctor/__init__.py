"""Check the machine, a store, its cold tier and Spark.

A check is a function that returns a finding: its subject, OK, WARN or FAIL, the observation, and the line that mends
it. Anything a check needs of the machine is an argument, so that a test can state it. `run` runs them all; a check
that raises is a finding too.
"""
