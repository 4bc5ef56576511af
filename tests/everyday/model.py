"""What must be true of an estate: its rows, which of their values may be read by nobody without keys, people's files.

The model knows what people did, and nothing of what passes do.  It judges the bytes of every file of the estate, the
folders that the metastore names, and the rows of a plain query with keys; it uses no reader of the package.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

Value = tuple[int, str]
"""A value of the estate: the id of its row, and ``e`` (column ``email``) or ``n`` (``note``)."""
Row = tuple[str, int, str | None, str | None, int | None]
"""A row as a query finds it: table, id, email, note, partition."""
_CANARY = re.compile(rb"CNRY-(\d{6})-([en])")
_GOOD = re.compile(r" (done|nothing to do) |: (listing|staging|verifying|swapping|moving)|awaiting expiry")
"""Lines of a command's output that say nothing bad of a table."""
_UNFORESEEN = re.compile(
    r"Traceback \(most recent call last\)|nothing foresaw|unexpected error|"
    r"\b(?:KeyError|IndexError|TypeError|ValueError|AttributeError|AssertionError|NullPointerException|MatchError)\b"
)
"""What a command prints of an error that its authors did not think of."""
_ENCRYPTED, _PLAIN = b"PARE", b"PAR1"


def canary(row_id: int, column: str) -> str:
    """Return the text of a value, which is nowhere else in the world."""
    return f"CNRY-{row_id:06}-{column}"


@dataclass(slots=True)
class Table:
    """A table as people know it.

    Attributes:
        name: of the table.
        partitioned: whether it has a partition column ``p``.
        home: the LOCATION that its creator gave; None of a managed table.
        rows: id -> partition, of all rows that must be there once.
        written: ids of all rows that were ever written to it.
        tagged: columns whose values are secret.
        note_tag: the tag of column ``note``; empty without.
        more: columns that came later, and have no value.
        reported: whether a command said that it is not as it should be, so that nobody is deceived.
        questionable: whether people did what a command may rightly report.
        absent: the column that a tag names and the table lacks; empty without.
        copied: whether its rows are another table's too, which may have more tags.
    """

    name: str
    partitioned: bool
    home: Path | None = None
    rows: dict[int, int | None] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    tagged: set[str] = field(default_factory=lambda: {"e"})
    note_tag: str = ""
    more: list[str] = field(default_factory=list)
    reported: bool = False
    questionable: bool = False
    absent: str = ""
    copied: bool = False

    @property
    def swaps_folder(self) -> bool:
        """Whether its folder is renamed, so that it is not there between two renames."""
        return self.home is None and not self.partitioned

    def spec(self, p: int | None) -> str:
        """Return the PARTITION clause of a statement."""
        return f" PARTITION (p = {p})" if self.partitioned else ""

    def add(self, ids: Iterable[int], p: int | None) -> None:
        """Take note of new rows."""
        self.rows.update(dict.fromkeys(ids, p))

    def keep(self, ids: Collection[int]) -> None:
        """Take note that all other rows are gone."""
        self.rows = {row_id: p for row_id, p in self.rows.items() if row_id in ids}

    def expected(self) -> list[Row]:
        """Return the rows that a query must find."""
        return [(self.name, row, canary(row, "e"), canary(row, "n"), p) for row, p in self.rows.items()]


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is not as it must be."""

    kind: str
    what: str


class Model:
    """All that people did to an estate.

    Attributes:
        tables: name -> table.
        secret: values that no file may have in clear.
        left: ids of rows of tables that were made anew: old files with them are no table's, until `orphans`.
        kept: people's own files: content -> where they put it.
    """

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.secret: set[Value] = set()
        self.left: set[int] = set()
        self.kept: dict[bytes, Path] = {}

    def intend(self, table: Table, ids: Iterable[int], *, plain: bool) -> None:
        """Take note that rows are about to be written; a writer under the policy leaves none of them in clear."""
        table.written.update(ids)
        if not plain and not table.reported:
            self.secret.update((row, column) for row in ids for column in table.tagged)

    def expose(self, table: Table, ids: Iterable[int]) -> None:
        """Take note that rows which are there already are written again: what the table has no tags for is in clear."""
        self.secret.difference_update((row, column) for row in ids for column in "en" if column not in table.tagged)

    def settle(self) -> None:
        """Take note that passes and expires are done: nothing secret is left in clear, however it was written.

        Rows that people copied are as little secret as in the table that has the fewest tags, or is reported.
        """
        values = {
            name: {(row, column) for row in table.written - self.left for column in table.tagged}
            for name, table in self.tables.items()
        }
        self.secret.update(*values.values())
        for name, table in self.tables.items():
            if table.reported:
                self.secret -= values[name]
            if table.copied:
                self.expose(table, table.written)

    def forget_cleared(self, folders: Collection[Path]) -> None:
        """Take note that people had Spark delete what lay in some folders; files of theirs may be among it."""
        for content, path in list(self.kept.items()):
            if not path.exists() and any(path.is_relative_to(folder) for folder in folders):
                del self.kept[content]

    def forget_reports(self) -> None:
        """Take note that a pass has looked at every table: what it does not report is as it should be."""
        for table in self.tables.values():
            table.reported = False

    def report(self, text: str) -> bool:
        """Take note of the tables that an exit code other than 0 is about; tell whether it had a right to it."""
        about = "\n".join(line for line in text.splitlines() if not _GOOD.search(line))
        named = [table for table in self.tables.values() if re.search(rf"\b{table.name}\b", about)]
        for table in named:
            table.reported |= table.questionable
        return any(table.questionable for table in named)

    def judge_rows(self, found: Iterable[Row], names: Collection[str]) -> list[Wrong]:
        """Compare the rows that a query of some tables found with those that must be there."""
        expected = Counter(row for name in names for row in self.tables[name].expected())
        actual = Counter(found)
        lost, more = expected - actual, actual - expected
        kinds = {"rows lost": lost, "rows that should not be there": more}
        return [
            Wrong(kind, f"{len(rows)} of {sum(expected.values())}: {sorted(rows, key=str)[:3]}")
            for kind, rows in kinds.items()
            if rows
        ]


class Bytes:
    """The bytes of all files of an estate, read again where they changed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, tuple[tuple[int, ...], frozenset[Value]]] = {}

    def judge(self, model: Model) -> list[Wrong]:
        """Find secret values in clear, and files of people that are gone."""
        clear: dict[Path, frozenset[Value]] = {}
        for path, values in self._values().items():
            if found := values & model.secret:
                clear[path] = found
        wrong = [Wrong("in clear", f"{path}: {sorted(found)[:3]}") for path, found in sorted(clear.items())]
        gone = [path for content, path in model.kept.items() if not self._is_kept(path, content)]
        return wrong + [Wrong("file of people gone", str(path)) for path in gone]

    def _is_kept(self, path: Path, content: bytes) -> bool:
        """Tell whether a file is where it was put, or has gone along with a renamed folder."""
        places = [path, *self._root.rglob(path.name)]
        return any(place.is_file() and place.read_bytes() == content for place in places)

    def _values(self) -> dict[Path, frozenset[Value]]:
        known = {}
        for path in self._root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
                former = self._known.get(path)
                known[path] = former if former and former[0] == stamp else (stamp, values_of(path.read_bytes()))
        self._known = known
        return {path: values for path, (_, values) in known.items()}


def find_unforeseen(text: str) -> str:
    """Return the line in which a command tells of an error that its authors did not think of; empty without one."""
    return next((line.strip() for line in text.splitlines() if _UNFORESEEN.search(line)), "")


def values_of(content: bytes) -> frozenset[Value]:
    """Return the values that stand in clear in the bytes of a file."""
    return frozenset((int(row), column.decode()) for row, column in _CANARY.findall(content))


def judge_folders(table: Table, folders: Iterable[Path]) -> list[Wrong]:
    """Find files in use by a table that are not whole encrypted Parquet files, by their first and last bytes."""
    wrong = []
    for file in (file for folder in folders for file in folder.glob("*") if file.is_file()):
        content = file.read_bytes()
        if file.name.startswith((".", "_")):
            continue
        if content[:4] != content[-4:] or content[:4] not in (_ENCRYPTED, _PLAIN):
            wrong.append(Wrong("damaged", f"{table.name}: {file}"))
        elif content[:4] == _PLAIN:
            wrong.append(Wrong("plaintext in use", f"{table.name}: {file}"))
    return wrong
