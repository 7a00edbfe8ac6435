"""The command line as users see it."""
