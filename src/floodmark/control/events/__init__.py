"""The events of the journal: what can happen to a control store."""
