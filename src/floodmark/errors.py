"""Every exception of floodmark.

    FloodmarkError
    ├── ConfigError      a file, an option or an argument is wrong            exit 2
    │   └── ConfigErrors  all errors of one file                              exit 2
    ├── SetupError       Java, jars or a package is missing                   exit 2
    ├── PlanError        a batch cannot be planned as asked                   exit 4
    ├── SourceError      an upstream cannot be read exactly                   exit 4
    ├── SinkError        a target cannot be written exactly once              exit 4
    ├── StreamError      a stream cannot go on exactly once                   exit 4
    ├── TransformError   a step of a node cannot be applied                   exit 1
    ├── ControlError     the control store cannot be read or written          exit 4
    │   ├── FencedError  another runner has taken over                        exit 4
    │   └── UnknownNameError  a batch or pipeline that is not there           exit 2
    └── RunError         a user's function failed                             exit 1

An error says what happened, where, what was seen and what is allowed, what state the data is in,
the next command, and whether a retry helps; all of it is available as attributes. The codes are
stable: `CODES` lists each with its meaning, and docs/reference/errors.md is generated from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from floodmark.next_steps import Next
from floodmark.secrecy import masked

AGAIN = "again"
"""The label that tells people whether the same command may succeed; machines read `retryable`."""

NO_USE = "retrying will not help until you change something"

MAX_TEXT = 4_000
"""No field of an error is longer: errors go into tables, reports and terminals."""
_JAVA_STACK = re.compile(
    r"(?:^|\n)[ \t]*(?:at [\w.$/<>@~-]+\([^()\n]*(?:\)|$)|\.\.\. \d+ more|Driver stacktrace:?)[ \t]*(?=\n|$)"
)
"""Lines of a stack; a bounded text may end within one."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

CODES: dict[str, str] = {
    "FM-CONFIG-001": "floodmark.yaml, or another file of settings, is missing or cannot be read",
    "FM-CONFIG-002": "a file of settings is not valid YAML, or JSON",
    "FM-CONFIG-003": "a key is unknown",
    "FM-CONFIG-004": "a value is missing or not of the allowed kind",
    "FM-CONFIG-005": "a name is used twice",
    "FM-CONFIG-006": "a pipeline's function cannot be found",
    "FM-CONFIG-007": "an argument of a call or command is not allowed",
    "FM-CONFIG-008": "a pipeline or stream named on the command line does not exist",
    "FM-CONFIG-009": "a plan file cannot be read or written",
    "FM-CONFIG-010": "an environment has no overlay, or more than one",
    "FM-CONFIG-011": "a secret is written in the project, or would be shown",
    "FM-CONFIG-012": "a reference cannot be resolved",
    "FM-CONFIG-013": "a connection, node, format or transform that is named does not exist",
    "FM-CONFIG-014": "nodes depend on one another in a circle",
    "FM-CONFIG-015": "two settings do not go together",
    "FM-CONFIG-016": "a key of a node is not run by this version, or two nodes read one table in different ways",
    "FM-CONFIG-018": "a warning: files are written at least once",
    "FM-CONFIG-017": "a warning: rows that arrive late may be lost",
    "FM-CONFIG-020": "metrics cannot be written or served there",
    "FM-CONFIG-021": "a module or package with plug-ins cannot be used",
    "FM-CONFIG-022": "a schema of a stream cannot be used",
    "FM-CONFIG-023": "a credential of a stream cannot be found or used",
    "FM-CONFIG-024": "a warning: a setting of a stream has no effect, or another one rules",
    "FM-CONFIG-025": "an option of the Kafka client is not allowed",
    "FM-CONFIG-028": "a warning: only Spark can tell whether SQL is right",
    "FM-CONFIG-029": "a warning: nodes disturb each other in one target",
    "FM-CONFIG-030": "every read of a pipeline is a lookup",
    "FM-CONFIG-031": "a node looks up a table that its own pipeline writes",
    "FM-CONFIG-032": "a key does not go with a lookup",
    "FM-CONFIG-033": "what a node reads cannot be looked up",
    "FM-CONFIG-034": "a pipeline reads a table for its news and looks it up",
    "FM-CONFIG-035": "a node writes and has only lookups above it",
    "FM-CONFIG-039": "a warning: rows of CSV files were loaded by the rules of an older version",
    "FM-CONFIG-045": "a warning: rows of files that change are appended again",
    "FM-CONFIG-044": "the SQL of a node reads a node that it does not depend on",
    "FM-CONFIG-042": "a warning: values of sensitive columns can still be shown in some places",
    "FM-CONFIG-041": "a warning: Spark writes to S3, and nobody says that it is the only one",
    "FM-SETUP-001": "no usable Java was found",
    "FM-SETUP-002": "jars are missing and could not be fetched",
    "FM-SETUP-003": "pyspark is not installed",
    "FM-SETUP-004": "a jar does not match its checksum",
    "FM-SETUP-005": "the Spark session handed in has no Delta support",
    "FM-SETUP-006": "a PostgreSQL server could not be started",
    "FM-SETUP-007": "the PostgreSQL driver is not installed",
    "FM-SETUP-008": "the Spark session has no JDBC driver for the database",
    "FM-SETUP-009": "a Kafka broker could not be started",
    "FM-SETUP-010": "the Kafka client is not installed",
    "FM-SETUP-011": "the Spark session has no connector to Kafka",
    "FM-SETUP-012": "Java made no archive of the classes",
    "FM-SETUP-013": "Spark Connect is asked for where a local session is needed",
    "FM-PLAN-001": "an upstream cannot be found",
    "FM-PLAN-002": "an upstream is not a Delta table",
    "FM-PLAN-003": "an upstream is named twice, or one table has two names",
    "FM-PLAN-004": "a request names nothing to plan",
    "FM-PLAN-005": "an upstream was recreated: its table id has changed",
    "FM-PLAN-006": "the history of an upstream that was not yet planned is gone",
    "FM-PLAN-007": "the schema of an upstream changes, and that is to be looked at first",
    "FM-PLAN-008": "a pipeline joined after data was committed and would miss it",
    "FM-PLAN-009": "an upstream needs a feature that floodmark cannot read",
    "FM-PLAN-010": "an upstream lies behind its committed watermark",
    "FM-PLAN-012": "the batch of a plan file is gone, finished or of another control store",
    "FM-PLAN-014": "the range cannot be backfilled",
    "FM-PLAN-015": "the batch cannot be replayed",
    "FM-PLAN-020": "the change feed does not cover what comes next, and a snapshot is not wanted",
    "FM-PLAN-021": "a baseline cannot be kept",
    "FM-PLAN-022": "pipelines of one scope say different things about an upstream",
    "FM-PLAN-023": "an upstream was processed in another way than it shall be read now",
    "FM-PLAN-024": "rows of an upstream have no value in its time column",
    "FM-PLAN-025": "an upstream cannot be read by its time column",
    "FM-PLAN-030": "a catalog name is not resolved yet",
    "FM-PLAN-031": "a name stands for another table or place than before",
    "FM-PLAN-032": "a table that is looked up does not exist",
    "FM-SOURCE-001": "the range reaches beyond the table",
    "FM-SOURCE-002": "part of the planned range is gone from the log",
    "FM-SOURCE-003": "the table is no longer the one that was planned",
    "FM-SOURCE-004": "the change feed does not cover the planned range",
    "FM-SOURCE-005": "the session hides missing or corrupt files",
    "FM-SOURCE-006": "data files of the planned range are gone",
    "FM-SOURCE-007": "the schema is no longer the one that was planned",
    "FM-SOURCE-008": "a file of a table's log is damaged",
    "FM-SOURCE-009": "a table's log could not be looked at",
    "FM-SOURCE-010": "a lost range cannot be settled in the way asked for",
    "FM-SOURCE-011": "the end of a window is not frozen yet",
    "FM-SOURCE-030": "a query cannot be bound to its window",
    "FM-SOURCE-031": "the database could not be asked",
    "FM-SOURCE-032": "rows have no value in the cursor column",
    "FM-SOURCE-033": "the cursor column has a type that gives no marks",
    "FM-SOURCE-034": "what is said about a cursor does not go with its column",
    "FM-SOURCE-035": "only a node of its project can read an upstream of a database",
    "FM-SOURCE-036": "rows near the mark cannot be told from those that were applied",
    "FM-SOURCE-037": "it is not known which rows near the mark were applied",
    "FM-SOURCE-040": "the list of the files that were processed is gone",
    "FM-SOURCE-041": "a file of the batch was deleted or changed since it was planned",
    "FM-SOURCE-042": "the columns of files are not known before the first one is there",
    "FM-SOURCE-045": "the reader of a plug-in failed, or gave other rows than were asked for",
    "FM-SOURCE-050": "a web API could not be asked",
    "FM-SOURCE-051": "a web API refuses the request",
    "FM-SOURCE-052": "the answer of a web API cannot be used",
    "FM-SOURCE-053": "the answer of a web API that was planned is gone",
    "FM-SOURCE-054": "a table that is looked up cannot be read as it was frozen",
    "FM-SOURCE-055": "the loss of a table that is looked up cannot be accepted",
    "FM-SOURCE-063": "Delta refuses to read versions that old, and nothing else can read them",
    "FM-SOURCE-057": "a file has other columns than the node reads",
    "FM-SOURCE-058": "a CSV file is not written as RFC 4180 has it",
    "FM-SOURCE-059": "a file cannot be read as the node says",
    "FM-SOURCE-060": "times without a zone cannot be read exactly in this session",
    "FM-SOURCE-064": "the rows that are read are not as many as the table's log says",
    "FM-SOURCE-065": "a write took other rows than the table's log says",
    "FM-SOURCE-066": "a value of a database cannot be read exactly",
    "FM-SINK-001": "a write does not say what to do with updates and deletes",
    "FM-SINK-002": "a whole table would be appended to a target that holds rows of it already",
    "FM-SINK-003": "a feed window would overwrite a whole target",
    "FM-SINK-004": "a merge of a whole table does not say what becomes of rows that are no longer in it",
    "FM-SINK-005": "an option of a write is missing or not allowed",
    "FM-SINK-006": "two writes of one run have the same name",
    "FM-SINK-007": "the target is not the table that was written before",
    "FM-SINK-008": "the target does not hold the receipt after the write",
    "FM-SINK-009": "the target was restored: its receipts stand although rows may be gone",
    "FM-SINK-010": "the target forgets transaction ids too early",
    "FM-SINK-011": "the rows do not fit the target",
    "FM-SINK-012": "the target already holds a later batch of this pipeline",
    "FM-SINK-013": "several upstreams with rows make missing= ambiguous",
    "FM-SINK-014": "the target could not be locked",
    "FM-SINK-015": "the target holds a batch that this control store did not write",
    "FM-SINK-016": "somebody else emptied or replaced the target",
    "FM-SINK-017": "the target no longer shows the receipt of our last write",
    "FM-SINK-018": "a lost target cannot be settled in the way asked for",
    "FM-SINK-019": "the target could not be written: no space, no permission, no connection",
    "FM-SINK-021": "a backfill or replay would double rows",
    "FM-SINK-022": "a backfill or replay could replace newer rows by older ones",
    "FM-SINK-023": "a catalog name stands for something that cannot be a target",
    "FM-SINK-024": "a new target has no place in the catalog",
    "FM-SINK-025": "the table of a target's catalog name has moved, or its name was taken",
    "FM-SINK-030": "a value does not fit its column",
    "FM-SINK-031": "it could not be learned whether a commit happened",
    "FM-SINK-032": "the target could not be looked at",
    "FM-SINK-033": "the target names a connection that cannot be written to",
    "FM-SINK-034": "rows do not match the condition of replace_where",
    "FM-SINK-035": "a write by a plug-in failed",
    "FM-SINK-036": "a key comes from two upstreams or several versions, and nothing puts its rows in order",
    "FM-SINK-042": "the target's log no longer tells what others did since our last write",
    "FM-SINK-043": "the target shows a receipt of this number, and not which batch left it",
    "FM-SINK-044": "the target is a copy that went its own way",
    "FM-SINK-045": "files are missing from the target's log",
    "FM-SINK-046": "the Spark session cannot commit rows and receipt together",
    "FM-SINK-047": "micro-batches are missing in the target of a merge",
    "FM-SINK-048": "a write to S3 through a log store that may lose a commit",
    "FM-CONTROL-001": "there is no control store at that place",
    "FM-CONTROL-002": "the control store cannot be read",
    "FM-CONTROL-003": "the control store was written by a newer floodmark",
    "FM-CONTROL-004": "the batch is unknown",
    "FM-CONTROL-005": "the pipeline is unknown or not part of the batch",
    "FM-CONTROL-006": "another runner holds the lease",
    "FM-CONTROL-007": "this runner was fenced: another one has taken over",
    "FM-CONTROL-008": "an earlier batch of the pipeline is not finished",
    "FM-CONTROL-009": "the journal is too busy",
    "FM-CONTROL-010": "the journal refused an event: its precondition does not hold",
    "FM-CONTROL-011": "the pipeline is registered in another scope",
    "FM-CONTROL-012": "the batch was cancelled, or can no longer be cancelled",
    "FM-CONTROL-013": "the run is already finished",
    "FM-CONTROL-014": "the outcome of a commit could not be learned",
    "FM-CONTROL-015": "a published table cannot be refreshed; the journal is complete",
    "FM-CONTROL-016": "the project was copied or moved: its control store names another folder",
    "FM-CONTROL-018": "the pipeline is paused",
    "FM-CONTROL-019": "the pipeline's new name is or was in use",
    "FM-CONTROL-020": "a batch in which the pipeline has a part is open",
    "FM-CONTROL-021": "a control store is already there",
    "FM-CONTROL-022": "a file is no complete export of a control store",
    "FM-CONTROL-023": "a batch holds the upstream whose watermark should be reset",
    "FM-CONTROL-024": "the targets do not tell which control store wrote them",
    "FM-CONTROL-025": "the store is being written, faster than it can be exported",
    "FM-CONTROL-031": "the archive in this place belongs to another control store",
    "FM-CONTROL-032": "old rows could not be moved to the archive",
    "FM-CONTROL-033": "rows are gone from the archive of the control store",
    "FM-CONTROL-034": "a value cannot be stored in the journal",
    "FM-CONTROL-035": "the control store cannot be in a folder of this name",
    "FM-CONTROL-027": "an operation that was journaled is no longer in the journal",
    "FM-CONTROL-028": "somebody else has taken events out of the journal",
    "FM-CONTROL-029": "a table of the control store was made append-only",
    "FM-CONTROL-030": "the protocol of a table of the control store was raised",
    "FM-RUN-001": "the function of a pipeline raised an error",
    "FM-RUN-002": "the function of a pipeline returned something unknown",
    "FM-RUN-003": "the function asked for an upstream that the run does not have",
    "FM-RUN-004": "a run needs a Spark session",
    "FM-RUN-005": "a run failed outside the function of its pipeline",
    "FM-RUN-006": "a write failed and the function went on as if it had not",
    "FM-RUN-007": "the function of a pipeline took longer than its timeout",
    "FM-RUN-008": "other nodes read what a node writes, and its target has no change feed",
    "FM-RUN-009": "the rows of a node do not pass an expectation",
    "FM-RUN-010": "the batch has not frozen what a node reads whole",
    "FM-RUN-011": "a backfill or replay would replace all rows of a target by none",
    "FM-RUN-012": "rows that were put aside for a batch are gone",
    "FM-RUN-013": "the nodes below a node cannot read any more what it has committed",
    "FM-TRANSFORM-001": "a step names no known transform",
    "FM-TRANSFORM-002": "the parameters of a step are wrong",
    "FM-TRANSFORM-003": "a step names a column that is not there",
    "FM-TRANSFORM-004": "a column has a type that the transform does not take",
    "FM-TRANSFORM-005": "a column would be there twice",
    "FM-TRANSFORM-006": "a step's SQL is not one expression or one query",
    "FM-TRANSFORM-007": "a step names a frame that is not there",
    "FM-TRANSFORM-008": "Spark refuses the SQL of a step",
    "FM-TRANSFORM-009": "the function of a Python step cannot be found",
    "FM-TRANSFORM-010": "the function of a Python step raised an error",
    "FM-TRANSFORM-011": "the function of a Python step returned no frame",
    "FM-TRANSFORM-012": "two transforms have the same name",
    "FM-TRANSFORM-013": "a module or package with transforms cannot be used",
    "FM-STREAM-001": "this runner of a stream was fenced: another one has taken over",
    "FM-STREAM-002": "a batch of a stream begins behind what the target holds: records would be lost",
    "FM-STREAM-003": "a batch of a stream holds records that the target already holds",
    "FM-STREAM-004": "the tables of a stream are missing in the database, or cannot be used",
    "FM-STREAM-005": "the database of a stream did not do what was asked",
    "FM-STREAM-006": "it could not be learned whether a batch of a stream was committed",
    "FM-STREAM-007": "the counts of a batch of a stream do not agree",
    "FM-STREAM-008": "the rows of a stream do not fit the target",
    "FM-STREAM-009": "a record was refused, and the stream is to stop at the first one",
    "FM-STREAM-010": "rows that were staged for a batch of a stream are not all there",
    "FM-STREAM-011": "the stream moved while it was being looked at",
    "FM-STREAM-012": "the circuit breaker of a stream is open",
    "FM-STREAM-013": "the executors could not stage a batch of a stream",
    "FM-STREAM-014": "the target does not take a row of a window",
    "FM-STREAM-015": "a batch of a stream could not be written to its Delta table",
    "FM-STREAM-020": "Kafka could not be asked",
    "FM-STREAM-021": "a topic of Kafka is not there",
    "FM-STREAM-022": "records could not be sent to Kafka",
    "FM-STREAM-023": "records that a stream has to read next are gone from Kafka",
    "FM-STREAM-024": "a topic was recreated: its id has changed",
    "FM-STREAM-025": "a topic ends before the offsets that a stream has read",
    "FM-STREAM-026": "records of a batch could not be read from Kafka",
    "FM-STREAM-030": "a file of a checkpoint is damaged",
    "FM-STREAM-031": "a checkpoint was written in a form that floodmark does not know",
    "FM-STREAM-032": "a checkpoint could not be looked at",
    "FM-STREAM-033": "the checkpoint is not that of the stream, which keeps state",
    "FM-STREAM-034": "the target knows nothing of a stream that has a checkpoint",
    "FM-STREAM-035": "the checkpoint and the target of a stream do not agree",
    "FM-STREAM-036": "the row of a stream has forgotten batches that the tracker still has",
    "FM-STREAM-037": "the target of a stream is gone although the stream has written to it",
    "FM-STREAM-043": "a stream is to be run, or stopped, in a way that is not possible",
    "FM-STREAM-044": "offsets do not fit the topics of a stream",
    "FM-STREAM-045": "the target of a stream is older than the stream's own notes",
    "FM-STREAM-046": "the target of a stream is a copy that went its own way",
    "FM-STREAM-047": "the log of a stream's target does not tell what happened since its last batch",
    "FM-STREAM-048": "floodmark_stream and batch_tracker tell of different batches of one number",
    "FM-STREAM-053": "the dead letters of a stream beside its Delta target were not cleaned up",
    "FM-STREAM-054": "the dead letters of a stream beside its Delta target could not be relayed",
    "FM-STREAM-055": "the target of a stream took too long for a batch",
    "FM-CLI-001": "the command line failed in a way that nobody foresaw",
    "FM-CLI-002": "the command was interrupted",
}


ARGUMENT_RULES: dict[str, str] = {
    "address": "an address is PORT or HOST:PORT",
    "argument_type": "an argument of a call has a type that its function does not take",
    "command_line": "an option or argument of a command is unknown, missing or not of its type",
    "delta_stream_has_no_tables": "a stream into a Delta table has no tables in a database",
    "duration": "a duration is a number and a unit",
    "ends_of_range": "a range has two ends of one kind",
    "folder_in_use": "a folder that should be new has something in it",
    "metric_of_record": "a metric is KEY=VALUE",
    "name_of_pipeline": "a name of a pipeline has other characters",
    "name_of_stream": "a name of a stream has other characters",
    "needs_scope": "several scopes read the upstream: one has to be named",
    "needs_yes": "what cannot be taken back needs --yes",
    "no_first_run_query": "none of the nodes says a first_run_query",
    "offsets": "offsets are neither two words nor a JSON of topics",
    "one_of_two": "two options exclude each other",
    "out_of_range": "a number is too small or too large",
    "pipeline_in_project": "a pipeline to be removed is still in floodmark.yaml",
    "place_of_export": "an export cannot be written to that place",
    "place_of_schema": "a schema cannot be written to that place",
    "plan_file_alone": "a plan file names what is run: nothing else may",
    "reset_takes_value": "the upstream is reset to a value of its column, not to a version",
    "reset_takes_version": "the upstream is reset to a version, not to a value",
    "reset_to_beginning_only": "the upstream is reset to its beginning, or not at all",
    "retention_too_short": "a retention could take files from under those who read them",
    "retry": "the policy of retries has other keys or values",
    "selector": "the grammar of selectors does not have this",
    "stream_cannot_be_moved": "the target, or the checkpoint, does not tell where the stream goes on",
    "target_of_several_nodes": "a full refresh would remove rows of other nodes",
    "targets_of_rebuild": "--from-targets and the targets go together",
    "unknown_choice": "a word is none of those that the argument takes",
    "unknown_connector": "there is no connector of that name",
    "unknown_jars": "there is no group of jars of that name",
    "unknown_template": "there is no template of that name",
    "unknown_upstream": "no pipeline reads that upstream",
    "upstream_option": "an option of an upstream has another value",
    "value_of_reset": "the value is of another type than the column, or after its newest one",
}
"""What an argument breaks (FM-CONFIG-007): `rule` of the error, as stable as a code."""


class FloodmarkError(Exception):
    """What every floodmark error is; `str()` gives the whole text, `title` the first line."""

    exit_code: ClassVar[int] = 4
    hides_cause: bool = False
    """Whether the error behind it shows values that nobody is to see."""

    def __init__(
        self,
        code: str,
        title: str,
        *,
        rule: str | None = None,
        stream: str | None = None,
        where: str | None = None,
        found: str | None = None,
        allowed: str | None = None,
        state: str | None = None,
        next: str | None = None,
        retryable: bool = False,
        details: Mapping[str, str] | None = None,
    ) -> None:
        if code not in CODES:
            raise ValueError(f"error code {code} is not in CODES")
        if rule is not None and rule not in ARGUMENT_RULES:
            raise ValueError(f"rule {rule} is not in ARGUMENT_RULES")
        self.code = code
        self.rule = rule
        """Which of the rules that share the code; None where the code says it."""
        self.title = _bounded(_plain(title))
        self.stream: str | None = None
        """Which stream it is of; `where` begins with it."""
        self.where = _plain(where) if where else where
        if stream is not None:
            self.name_stream(stream)
        self.found = _plain(found) if found else found
        self.allowed = allowed
        self.state = state
        self.next = next
        self.retryable = retryable
        self.details = {name: _plain(text) for name, text in (details or {}).items()}
        super().__init__(self.title)

    def name_stream(self, stream: str) -> None:
        """Let `where` say which stream the error is of, unless it does."""
        if self.stream is None:
            self.stream = stream
            self.where = ", ".join(filter(None, (f"stream {stream}", self.where)))

    def fields(self) -> list[tuple[str, str]]:
        """The labelled lines below the title, in the order they are printed."""
        # Once more: a part may have been put in later, a secret revealed since.
        named = [("where", self._masked("where")), ("found", self._masked("found"))]
        named += [("allowed", self.allowed)]
        named += [(name, masked(text)) for name, text in self.details.items()]
        named += [("state", self.state), ("next", self.next)]
        lines = [(label, str(_bounded(text))) for label, text in named if text]
        return [
            *lines,
            (AGAIN, "safe to retry now" if self.retryable else NO_USE),
        ]

    @property
    def commands(self) -> list[list[str]]:
        """The commands that `next` names, each as a process is started with it."""
        return self.next.commands if isinstance(self.next, Next) else []

    def _masked(self, part: str) -> str | None:
        text = getattr(self, part)
        return masked(text) if text else text

    def as_dict(self) -> dict[str, object]:
        """The same for machines: what `--json` prints."""
        return {
            "code": self.code,
            **({"rule": self.rule} if self.rule else {}),
            "title": self.title,
            **{label: text for label, text in self.fields() if label != AGAIN},
            "retryable": self.retryable,
        }

    def in_one_line(self) -> str:
        """The most important of it, for a log."""
        found = [self._masked("where"), self._masked("found")]
        parts = [f"{self.code}  {self.title}", *found, self.next]
        return "; ".join(" ".join(part.split()) for part in parts if part)

    def __str__(self) -> str:
        lines = [f"{self.code}  {self.title}"]
        lines += [f"  {label:<8} {text}" for label, text in self.fields()]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), dict(self.__dict__))


class ConfigError(FloodmarkError):
    """A file, an option or an argument is wrong; nothing was done."""

    exit_code = 2


class ConfigErrors(ConfigError):
    """Several errors of one file; `errors` has each, the first one gives code and title."""

    def __init__(self, file: str, errors: Sequence[ConfigError]) -> None:
        super().__init__(errors[0].code, f"{len(errors)} errors in {file}")
        self.errors = tuple(errors)

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "errors": [error.as_dict() for error in self.errors]}

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.errors), self.title])


class SetupError(FloodmarkError):
    """Something that has to be installed is not there."""

    exit_code = 2


class PlanError(FloodmarkError):
    """A batch cannot be planned as asked; nothing was journaled."""


class SourceError(FloodmarkError):
    """An upstream cannot be read exactly; nothing was written."""


class SinkError(FloodmarkError):
    """A target cannot be written exactly once."""


class StreamError(FloodmarkError):
    """A stream cannot go on exactly once; what is committed stays as it is."""


class TransformError(FloodmarkError):
    """A step of a node cannot be applied; nothing was written."""

    exit_code = 1

    step: int | None = None
    """The number of the step in its list, from 1."""
    transform: str | None = None
    column: str | None = None
    nearest: str | None = None
    """The known name that was probably meant."""


class ControlError(FloodmarkError):
    """The control store cannot be read, written, or would break a guarantee."""

    held_by: str | None = None
    """Who holds the lease that was asked for."""


class UnknownNameError(ControlError):
    """A batch, a pipeline, an upstream or a scope that the store does not know; nothing was done."""

    exit_code = 2


class FencedError(ControlError):
    """Another runner has taken over; this one stops without writing."""


class RunError(FloodmarkError):
    """A user's function failed; the run is recorded as FAILED and can be retried."""

    exit_code = 1


def _plain(text: str) -> str:
    """Text of others without secrets, without the colours that delta-rs gives its errors, and
    without the stacks that Java appends to them.
    """
    return without_java_stack(_COLOUR.sub("", masked(text)))


def without_java_stack(text: str) -> str:
    r"""Text of an error of Java without the lines of its stack.

    >>> without_java_stack("o1.load failed\n\tat org.A$.b(A.scala:1)\n\t... 12 more\nso it is")
    'o1.load failed\nso it is'
    """
    return _JAVA_STACK.sub("", text)


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _rebuild(cls: type[FloodmarkError], attributes: dict[str, object]) -> FloodmarkError:
    error = cls.__new__(cls)
    error.__dict__.update(attributes)
    Exception.__init__(error, attributes["title"])
    return error
