"""Java, jars and Spark sessions: the only room that finds, fetches or builds them."""
