"""Frozen values that the rooms hand to one another."""
