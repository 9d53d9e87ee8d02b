"""The rules of the protocol: for each event what must hold before it, and what it does."""
