"""Where a stream goes on: by its checkpoint, its target and its topics."""
