"""XML that Spark would read as other values, or not to its end, without a word.

numbers     12abc becomes 12.0, 1,5 becomes 15, and a decimal 1.005 becomes 1.01
times       a number becomes a year, a time of day one of today
elements    of one that comes twice the last one counts, unless the column is an array
end         a file that was cut off behind a record has all rows up to there
rows        a row tag that no element has gives no rows; a column that no record has is NULL
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from floodmark.deltalog import Storage
from floodmark.model.ddl import Column, Kind
from floodmark.sources.files.values import Rules, opened

_CUT_OFF = {
    expat.errors.codes[text]
    for text in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
}
"""A file ends where it may not. Of what else is wrong with a file Spark is the judge."""


@dataclass(frozen=True, slots=True)
class XmlLook:
    """What a file is, as far as Spark would not tell."""

    fault: str | None = None
    """Where it cannot be read as it is meant, and why."""
    absent: tuple[str, ...] = ()
    """The columns that no record of the file has; none where it has no record."""
    has_rows: bool = True
    """Whether an element has the row tag."""


@dataclass(frozen=True)
class XmlFile:
    """One file, looked at without Spark."""

    path: str
    storage: Storage
    options: Mapping[str, str]
    """Of Spark's reader, names in lower case."""
    columns: Sequence[Column] = ()
    """Those of the node; none where Spark finds them by itself."""
    folders: Collection[str] = ()
    """The columns that the folders of the file are."""

    def look(self) -> XmlLook:
        """What Spark would not tell; the fault is the first one, with its line."""
        encoding = self.options.get("charset", self.options.get("encoding"))
        try:
            parser = expat.ParserCreate(encoding)
            records = _Records(self.columns, self.options, parser, self.folders)
            with opened(self.path, self.storage) as file:
                parser.ParseFile(file)
        except _FaultError as fault:
            return XmlLook(f"line {fault.line:,}: {fault}")
        except expat.ExpatError as error:
            found = f"line {error.lineno:,}: the file ends before its last element does"
            return XmlLook(found if error.code in _CUT_OFF else None)
        except ValueError:  # an encoding that only Spark knows
            return XmlLook()
        return records.look()


class _FaultError(Exception):
    """What is wrong with an element."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(slots=True)
class _Element:
    """An element of a record that is being read."""

    name: str
    """Its column, with those around it."""
    kind: Kind | None
    """None for what no column is made of."""
    children: set[str] = field(default_factory=set)
    text: list[str] = field(default_factory=list)
    value: _Element | None = None
    """The column of its text, if that is not its own."""


class _Records:
    """The records of a file, one element after the other."""

    def __init__(
        self,
        columns: Sequence[Column],
        options: Mapping[str, str],
        parser: expat.XMLParserType,
        folders: Collection[str],
    ) -> None:
        self.row_tag = options.get("rowtag", "")
        self.rows = 0
        self.namesakes: set[str] = set()
        """Elements that the row tag means but for a prefix or the case of its letters."""
        self._row = Kind("struct", 0, columns=tuple(columns))
        self._attribute = options.get("attributeprefix", "_")
        self._value = options.get("valuetag", "_VALUE")
        self._no_prefix = options.get("ignorenamespace", "false").lower() == "true"
        self._rules = Rules.of(options, floats="locale" not in options)
        self._unseen = {column.name.casefold(): column.name for column in columns}
        self._folders = {name.casefold() for name in folders}
        self._open: list[_Element] = []
        self._parser = parser
        parser.buffer_text = True
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._read

    def look(self) -> XmlLook:
        """What the file is, read to its end."""
        if self.rows:
            return XmlLook(absent=tuple(self._unseen.values()))
        if self.namesakes:
            names = ", ".join(sorted(self.namesakes))
            return XmlLook(f"no element {self.row_tag}, but {names}")
        return XmlLook(has_rows=False)

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2] if self._no_prefix else name
        if self._open:
            self._open.append(self._child(self._open[-1], name))
        elif name == self.row_tag:
            self.rows += 1
            self._open.append(_Element("", self._row))
        else:
            if name.rpartition(":")[2].casefold() == self.row_tag.rpartition(":")[2].casefold():
                self.namesakes.add(name)
            return
        self._note(attributes)

    def _note(self, attributes: Mapping[str, str]) -> None:
        element = self._open[-1]
        for name, text in attributes.items():
            self._check(self._child(element, self._attribute + name), text)
        # An element with attributes, or with others in it, has its text in a column of its own.
        if _field(element.kind, self._value) is not None:
            element.value = self._child(element, self._value)

    def _child(self, parent: _Element, name: str) -> _Element:
        kind = _field(parent.kind, name)
        if len(self._open) == 1:
            self._unseen.pop(name.casefold(), None)
            if name.casefold() in self._folders:
                raise self._fault(f"column {name} is in the file and in the name of its folder")
        full = f"{parent.name}.{name}" if parent.name else name
        if kind is not None and kind.name == "array":
            return _Element(full, kind.parts[0])
        if kind is not None and name.casefold() in parent.children:
            raise self._fault(f"element {full} is there twice, and its column is no ARRAY")
        parent.children.add(name.casefold())
        return _Element(full, kind)

    def _read(self, text: str) -> None:
        if self._open:
            self._open[-1].text.append(text)

    def _end(self, _: str) -> None:
        if self._open:
            element = self._open.pop()
            self._check(element.value or element, "".join(element.text))

    def _check(self, element: _Element, text: str) -> None:
        if element.kind is None:
            return
        if (why := self._rules.fault(element.name, text, element.kind)) is not None:
            raise self._fault(why)

    def _fault(self, why: str) -> _FaultError:
        return _FaultError(self._parser.CurrentLineNumber, why)


def _field(kind: Kind | None, name: str) -> Kind | None:
    """The type of what is called so within a type; Spark ignores case."""
    if kind is None:
        return None
    if kind.name == "map":
        return kind.parts[1]
    wanted = name.casefold()
    return next((each.kind for each in kind.columns if each.name.casefold() == wanted), None)
