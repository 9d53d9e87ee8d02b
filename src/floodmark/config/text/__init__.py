"""The text of project files: YAML and JSON with places, layers, references to secrets."""
