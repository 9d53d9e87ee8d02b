"""Keeping a control store quick and small."""
