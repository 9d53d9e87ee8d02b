"""Web APIs: whole answers, and what is new in them."""
