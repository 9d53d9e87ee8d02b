"""Records of Kafka: read, judged, and counted."""
