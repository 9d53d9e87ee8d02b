"""The demo shop: a batch planned, run, failed, held, retried, killed and recovered."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run the demo in `argv[0]`, by default ./floodmark-demo; returns the exit code."""
    from floodmark.demo.story import tell

    return tell(argv[0] if argv else "floodmark-demo")
