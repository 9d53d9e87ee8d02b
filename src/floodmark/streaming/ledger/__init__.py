"""The memory of a stream: who may write, what is committed, what commands ask of a runner."""
