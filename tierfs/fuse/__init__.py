"""The mount: segments as read-only files, directories as directories (design §9).

operations.py is thin: names and inodes in, records and bytes out. edge.py is the only place where an
error becomes an errno; nothing else may end the mount. watch.py tells the kernel what other processes
changed. session.py owns the mount's life; pyfuse3 is imported in this folder only.
"""
