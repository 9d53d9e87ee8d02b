"""The settings of a project: connections, pipelines, nodes, and what its nodes mean together."""
