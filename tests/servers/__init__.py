"""S3 servers for tests: Ceph RGW (real, slow to start) and moto (a quick fake).

Each runs in a process of its own, prints one line when it answers, and ends when its standard input
closes. So a server never outlives the test run, however that ends.
"""
