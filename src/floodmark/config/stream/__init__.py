"""The settings of a stream, its schemas and its credentials."""
