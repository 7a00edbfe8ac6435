"""What `tierfs doctor` looks at: the machine, a store, its cold tier, Spark.

A check is a function that returns a Finding: what it looked at, OK, WARN or FAIL, what it found, and the
line that mends it. What a check needs of the machine is an argument, so that a test can say it.
examination.py runs them all; a check that raises is a finding too.
"""
