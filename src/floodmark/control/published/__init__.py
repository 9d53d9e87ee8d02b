"""The published tables: what the journal says, as rows."""
