"""Whole lives of a store, as users lead them: commands, a mount, a lost disk."""
