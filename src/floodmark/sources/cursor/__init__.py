"""Databases, and other sources whose rows are told apart by a cursor column."""
