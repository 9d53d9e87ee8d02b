"""Files of a folder or glob, told apart by lists."""
