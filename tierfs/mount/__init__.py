"""Mount a store: segments as read-only files, directories as directories (design §9).

`operations` is thin: names and inodes in, records and bytes out. `tree` gives inodes from the records, so that they
survive a remount; `attributes` is what stat shows. `errors` is the only place in which an error becomes an errno:
pyfuse3 catches FUSEError alone, and anything else would end the mount. `watch` tells the kernel about changes of
other processes. `control_files` serves `.tierfs`. `session` owns the mount's life. The only folder that imports
pyfuse3.
"""
