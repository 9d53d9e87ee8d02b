"""Streams: records of Kafka into a target, each exactly once."""
