"""Reading databases: SQL of each dialect as text, the probe of PostgreSQL, the edge of a window."""
