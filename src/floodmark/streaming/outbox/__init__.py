"""Dead letters and late records on their way to Kafka."""
