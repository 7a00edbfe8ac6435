"""Define the commands; a file is named for the commands in it.

Each function parses its options, calls one verb of `app` or of the engine, and formats the record it returns.
"""
