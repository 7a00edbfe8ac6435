"""Say what a thing is called: errors, identifiers, names of segments and objects, sizes and times as text.

Every module is pure. `errors` is the tree that callers catch, by what they should do. `types` are the identifiers and
ranges of records, `names` the rules of segments' names and of text for a terminal, `object_names` those of objects in a
bucket, `units` numbers as people type them, `json_data` records as programs get them.
"""
