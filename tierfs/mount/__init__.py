"""Mount a store: segments as read-only files, directories as directories (design §9).

Comes in: the kernel's requests, by name and inode. Goes out: bytes, attributes, or an errno. It never writes a
segment, and never decides where a byte is read from: `reading` does. Only this wing imports pyfuse3.
No rooms: `operations` is thin, one method for each request. `tree` gives inodes from the records, so that they survive
a remount; `attributes` is what stat shows. `errors` is the only module that turns an error into an errno: pyfuse3
catches FUSEError alone, and anything else would end the mount. `watch` informs the kernel about changes of other
processes. `control_files` serves `.tierfs`. `session` owns the mount's life.
Open `operations` first.
"""
