"""What keeps a store tiered: roll, offload, publish, evict, collect, one module each.

planning.py is pure: records in, frozen actions out. Each task carries out one action, is safe to
repeat, and states its crash order. A command runs tasks inline under the holder's lock; a background
runner calls the same tasks. Cold changes are made by the holder only, and by nobody who was fenced.
"""
