"""A batch into its target: rows, dead letters and offsets."""
