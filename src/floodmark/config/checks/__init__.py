"""Everything that judges files, without Spark and without looking at data."""
