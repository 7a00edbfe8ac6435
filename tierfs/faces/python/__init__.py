"""The Python user's face: `tierfs.open_store(path)`, and small classes over what the command line does.

store.py is a store, segment.py a segment with its facts, its writer and its reader, ledger.py a ledger with its
entries. Each method is one verb of the layers below, as each command is: no policy, no formats here. docs/python.md is
its manual.
"""
