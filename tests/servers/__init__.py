"""Servers for tests: Ceph RGW (real, slow to start), moto (a quick fake of S3), a Spark cluster, and a relay
in front of any of them that makes it look far away.

Each runs in a process of its own, prints one line when it answers, and ends when its standard input
closes. So a server never outlives the test run, however that ends.
"""
