"""Tables of the session catalog and their partitions, as values that need no pyspark, and names of tables.

Names are quoted for SQL, and one that a person gave is searched among those that there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from sparkcrypt.names import TABLE_UUID, FileFormat

HIVE = "hive"
NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""A null partition value in folder names and the metastore (ExternalCatalogUtils.DEFAULT_PARTITION_NAME)."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its values, its files' location (a full URI), and, if its table is Hive's, their SerDe.

    ``pin`` is its parameter `sparkcrypt.names.PIN`, empty if it has none.
    """

    values: tuple[tuple[str, str], ...]
    location: str
    serde: str
    pin: str = field(default="", compare=False)

    @property
    def sql_spec(self) -> str:
        """The values in SQL, as between the parentheses of ``PARTITION (…)``."""
        return ", ".join(f"{name} = {value}" for name, value in self._quote_values())

    @property
    def predicate(self) -> str:
        """A predicate that is true of this partition alone."""
        return " AND ".join(f"{name} <=> {value}" for name, value in self._quote_values())

    def _quote_values(self) -> Iterator[tuple[str, str]]:
        for name, value in self.values:
            yield quote_name(name), "NULL" if value == NULL_VALUE else quote_text(value)

    @property
    def folder(self) -> str:
        """The partition's folders as Spark names them, such as ``p=0/q=a%3Ab``."""
        return "/".join(f"{_escape(name)}={_escape(value)}" for name, value in self.values)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the session catalog.

    ``options`` are the properties that reach a Parquet writer: TBLPROPERTIES of a Hive table, OPTIONS of a data source
    table.  ``unused`` are those that do not: SERDEPROPERTIES of a Hive table, TBLPROPERTIES of a data source table.
    """

    database: str
    name: str
    kind: str
    provider: str
    serde: str
    location: str
    schema_json: str
    partition_columns: tuple[str, ...]
    options: Mapping[str, str]
    properties: Mapping[str, str]
    owner: str
    bucket_columns: tuple[str, ...] = ()
    created: int = 0
    unused: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.name}"

    @property
    def quoted(self) -> str:
        """The full name, quoted for SQL."""
        return f"{quote_name(self.database)}.{quote_name(self.name)}"

    @property
    def is_hive(self) -> bool:
        """Whether it is a Hive table; its TBLPROPERTIES reach its writers, a data source table's OPTIONS reach its."""
        return self.provider == HIVE

    @property
    def managed(self) -> bool:
        """Whether DROP TABLE deletes its files."""
        return self.kind == "MANAGED"

    @property
    def is_parquet(self) -> bool:
        """Whether its files are Parquet."""
        return self.provider == "parquet" or (self.is_hive and "parquet" in self.serde.lower())

    @property
    def format(self) -> FileFormat | None:
        """The format of its files; None if it is neither Parquet nor ORC."""
        if self.is_parquet:
            return "parquet"
        by_serde = self.is_hive and self.serde.rpartition(".")[2].lower().startswith("orc")
        return "orc" if by_serde or self.provider == "orc" else None

    @property
    def uuid(self) -> str | None:
        """The table's identity in AAD prefixes, or None if it has none yet."""
        return self.options.get(TABLE_UUID)


def quote_name(name: str) -> str:
    """Quote an identifier for SQL."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """Quote a literal for SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def find_bare_name(name: str, known: Iterable[str]) -> list[str]:
    """Return the tables of any database that a name without a database may mean; none for one that has a database.

    Args:
        name: the name as it was given.
        known: ``database.table`` of each table that there is.
    """
    wanted = _comparable(name)
    return [] if "." in wanted else sorted(full for full in known if _comparable(full).rpartition(".")[2] == wanted)


def describe_near_names(name: str, known: Iterable[str]) -> str:
    """Return the question whether a table of a similar name was meant, for a message; empty if there is none.

    Args:
        name: a name of which there is no table.
        known: as for `find_bare_name`.
    """
    wanted = _comparable(name)
    by_name = {_comparable(full): full for full in known}
    by_table: dict[str, list[str]] = {}
    for compared, full in by_name.items():
        by_table.setdefault(compared.rpartition(".")[2], []).append(full)
    database, _, table = wanted.rpartition(".")
    near = [*by_table.get(table, []), *(by_name[full] for full in get_close_matches(wanted, by_name, _NEAR))]
    if not database:
        near += [full for close in get_close_matches(table, by_table, _NEAR) for full in by_table[close]]
    shown = list(dict.fromkeys(near))[:_NEAR]
    return f"did you mean {' or '.join(shown)}? " if shown else ""


_NEAR = 3
"""The most similar names that a message has."""


def _comparable(name: str) -> str:
    return name.replace("`", "").strip().lower().removeprefix("spark_catalog.")


def _escape(text: str) -> str:
    """Escape a partition's name or value as ``ExternalCatalogUtils.escapePathName`` does."""
    if not text:
        return NULL_VALUE
    special = "\"#%'*/:=?\\\x7f{[]^"
    return "".join(f"%{ord(sign):02X}" if sign in special or ord(sign) < 0x20 else sign for sign in text)
