"""Delta tables: their versions, as the log numbers them."""
