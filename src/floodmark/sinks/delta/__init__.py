"""Delta tables: rows and receipt in one commit."""
