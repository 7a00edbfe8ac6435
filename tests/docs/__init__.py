"""The examples of the documentation run as they are written."""
