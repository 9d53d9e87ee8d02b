"""Folders and tables whose rows are told apart by a time column."""
