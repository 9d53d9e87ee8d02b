"""The pipelines of the demo shop."""
