"""Checks at the end of a life, beside endings.py: of damage, and what compares."""
