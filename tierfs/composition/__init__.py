"""What commands do, put together from the layers below: over an open store (app.py), here or by its holder.

With app.py, initialize.py and connect.py the only code that names concrete classes.
"""
