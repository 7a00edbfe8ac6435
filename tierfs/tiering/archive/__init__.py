"""Archive: move cold objects into another storage class of the same bucket, and back; and request them back to read.

Comes in: the policies `archive_after` and `archive_class`, or a command. Goes out: the same object under a new name in
the other class, its record changed in one commit. Chunks and checksums name an object by its id, so that clones, packs
and segments that were joined need no change of their own. `due` finds what moves, `move` moves one object, `watch` does
both in the background, `command` below a path, and `thaw` requests objects back.
Open `move` first.
"""
