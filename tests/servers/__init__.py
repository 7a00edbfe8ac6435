"""Servers for tests: Ceph RGW (real, slow to start), moto (a quick fake of S3) and a Spark cluster. A relay that makes
any of them look far away is tests/benchmarks/relay.

Each runs in a process of its own, prints one line when it answers, and ends when its standard input
closes. So a server never outlives the test run, however that ends.
"""
