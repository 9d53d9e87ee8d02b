"""What goes on around a run: retries, the circuit breaker, watchers, numbers, who holds the stream."""
