"""Two stories: a shop whose batches fail and recover, and a stream whose driver is killed."""

from __future__ import annotations


def main(folder: str | None = None, *, is_stream: bool = False) -> int:
    """Tell one in `folder`, by default ./floodmark-demo or -stream-demo; returns the exit code."""
    if is_stream:
        from floodmark.demo import stream_story

        return stream_story.tell(folder or "floodmark-stream-demo")
    from floodmark.demo import story

    return story.tell(folder or "floodmark-demo")
