"""Define the commands; a file is named after its commands.

Each function parses its options, calls one verb of `app` or of the engine, and formats the record it returns.
"""
