"""Pure planning: facts and state in, drafts of batches out. Nothing here reads or writes."""
