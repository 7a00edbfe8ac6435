"""Adopting what others wrote."""
