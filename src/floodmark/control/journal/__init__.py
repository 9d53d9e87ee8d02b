"""The journal: every event, committed by compare-and-swap."""
