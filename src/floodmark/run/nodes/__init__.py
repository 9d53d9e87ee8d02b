"""Pipelines of nodes: each is a function over the tables that its nodes read.

`graph.pipeline_nodes` makes what a run executes; plan, lease, receipts, retry and finalize are those of
every pipeline. `support.unsupported` tells what of the settings is not run.
"""
