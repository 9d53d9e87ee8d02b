"""Running one pipeline of a batch: lease, check, read, call, write, record."""
