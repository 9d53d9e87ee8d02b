"""What every kind of window answers, for kinds that have nothing else to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from floodmark.model.delta import ChangeKind
from floodmark.model.file_marks import AnyMark
from floodmark.model.query import Query, WindowKind

if TYPE_CHECKING:
    from floodmark.model.state import Mark

_NO_VERSION = -1
"""What is published in the place of a version where versions do not apply."""


class WindowAnswers:
    """The answers of an upstream without versions that shows each row once.

    A kind says only what is different. What is computed from the fields stands in `Window`.
    """

    __slots__ = ()

    covers_one_step: ClassVar[bool] = True
    """Whether each window is exactly one number further than the one before."""
    is_landed: ClassVar[bool] = False
    """Whether its rows are put aside before anybody sees them, since no two reads are the same."""
    is_replayable: ClassVar[bool] = True
    """Whether reading it again gives the same rows."""

    # What the upstream is --------------------------------------------------------------------------

    @property
    def kind(self) -> WindowKind:
        """What the upstream is measured by, as it is published."""
        raise NotImplementedError

    @property
    def query(self) -> Query | None:
        """How the rows are found where there are no versions."""
        return None

    @property
    def has_log(self) -> bool:
        """Whether a log tells when each of the numbers came."""
        return False

    # From where to where ---------------------------------------------------------------------------

    @property
    def after_mark(self) -> AnyMark | None:
        """Where the rows begin, excluded; None for the beginning, and where versions tell."""
        return None

    @property
    def through_mark(self) -> AnyMark | None:
        """Where the rows end, included; None while nothing is there, or deferred."""
        return None

    @property
    def deferred(self) -> bool:
        """Whether the end is not known yet: the first run of the batch freezes it before it reads."""
        return False

    @property
    def is_frozen(self) -> bool:
        """Whether it is decided what a read gives."""
        return True

    @property
    def lost_marks(self) -> tuple[AnyMark | None, AnyMark | None]:
        """Between which marks rows were given up, where nothing is numbered."""
        return self.after_mark, self.through_mark

    def is_range_of(self, mark: Mark) -> bool:  # noqa: ARG002 the same for every kind
        """Whether the window is a range that somebody may choose from what is committed."""
        return True

    # How it is read --------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether all rows of the upstream are read, also those that were processed before."""
        raise NotImplementedError

    @property
    def snapshot_version(self) -> int | None:
        """The version at which the whole table is read; None where it is not."""
        return None

    @property
    def feed_start(self) -> int | None:
        """The first version whose changes are read; None where no changes are."""
        return None

    @property
    def feed_after_version(self) -> int | None:
        """The version after which changes are read, where that is not the beginning of the window."""
        return None

    @property
    def feed_enabled(self) -> bool:
        """Whether the change feed is on at the end."""
        return False

    @property
    def changes(self) -> frozenset[ChangeKind]:
        """The kinds of change in the versions that are read by feed."""
        return frozenset()

    @property
    def reads_every_row(self) -> bool:
        """Whether every window of the upstream is all of its rows, since nothing tells which are new."""
        return False

    @property
    def meets_again(self) -> bool:
        """Whether the window reads rows again that a window before it has read."""
        return False

    @property
    def is_counted(self) -> bool:
        """Whether a log told how many rows the window has, and nobody took them as they are read."""
        return False

    def is_read_whole(self, *, as_asked: bool) -> bool:  # noqa: ARG002 the same for every kind
        """Whether every batch that has news of the upstream reads all of it.

        `as_asked`: the pipeline wants the whole table each time.
        """
        return False

    def is_older_than(self, latest_version: int) -> bool:  # noqa: ARG002 the same for every kind
        """Whether later versions may have replaced what the window reads."""
        return False

    # How it is shown -------------------------------------------------------------------------------

    @property
    def start_version(self) -> int:
        """The first version as it is published: -1 where versions do not apply."""
        return _NO_VERSION

    @property
    def end_version(self) -> int:
        """The last version as it is published: -1 where versions do not apply."""
        return _NO_VERSION

    @property
    def latest_version(self) -> int:
        """The newest version when the window was planned; -1 where versions do not apply."""
        return _NO_VERSION

    @property
    def shown_versions(self) -> int | None:
        """How many versions the window covers, for people; None where versions do not apply."""
        return None

    def processed_version(self, *, is_completed: bool) -> int:  # noqa: ARG002 the same for every kind
        """The last version that is processed, as it is published."""
        return _NO_VERSION

    @property
    def start_mark(self) -> str | None:
        """Where the rows begin, excluded, as it is published: typed JSON."""
        mark = self.after_mark
        return None if mark is None else mark.encoded()

    @property
    def end_mark(self) -> str | None:
        """Where the rows end, included, as it is published: typed JSON."""
        mark = self.through_mark
        return None if mark is None else mark.encoded()

    def shown_range(self, mark_text: Callable[[AnyMark | None], str]) -> str:
        """From where to where, in a few characters."""
        return f"to {mark_text(self.through_mark)}"

    @property
    def shown_end(self) -> str:
        """Where the window ends, for people."""
        mark = self.through_mark
        return mark.text if mark is not None else "nothing"

    @property
    def shown_lookup(self) -> str:
        """As what a table is looked up, for people."""
        return "as it is now"
