"""Names inside a store: of its fields and of its objects.

Source: the specification of the Parquet metadata store, "Version 1", "Version 2" and "Version 4"; ``ParquetUtils`` and
``Identifier`` of Xskipper.
"""

from __future__ import annotations

from collections.abc import Sequence

OBJECT = "obj_name"
"""The field that names the object of a row: its path, ``#``, and when it was changed, in milliseconds."""
PARTITION_PREFIX = "virtual_"
FIRST_VERSION, VERSION = 1, 4
"""The oldest version that is read, and the newest, which is written."""
MINMAX, VALUES, BLOOM = "minmax", "valuelist", "bloomfilter"
"""The kinds of indexes that are used."""
FALSE_POSITIVES = "io.xskipper.index.bloom.fpp"
"""Parameter of an index: the share of values that a Bloom filter may take for one of its own.  Upstream's name."""
MOST_VALUES = "io.sparkcrypt.index.values.most"
"""Parameter of an index: how many distinct values an object may have for its list to be kept."""
COLUMN_TYPE = "io.sparkcrypt.index.column.type"
"""Parameter of an index: the Spark type of the column that a Bloom filter is of, which its bytes do not tell."""
"""Key of the footer's key-value metadata under which Spark keeps a schema."""


def field_name(columns: Sequence[str], kind: str, version: int = VERSION) -> str:
    """Return the name of the field that holds an index.

    From version 2 on, ``#`` in a column's name is ``##`` and ``.`` is ``$#$``, and the lengths of the columns' names
    follow the kind, in UTF-16 units as Java counts them.

    Args:
        columns: the columns of the index, in its order.
        kind: what the index is called.
        version: of the store, from 1 on.
    """
    if version < 2:
        return "_".join([*columns, kind])
    escaped = [column.replace("#", "##").replace(".", "$#$") for column in columns]
    lengths = "-".join(str(len(text.encode("utf-16-le", "surrogatepass")) // 2) for text in escaped)
    return "_".join([*escaped, kind, lengths])


def object_name(path: str, modified_ms: int) -> str:
    """Return what a store calls an object.

    Args:
        path: a path or a URI as Hadoop prints it, whose path is not percent-encoded; scheme and bucket are left out.
        modified_ms: when it was changed, in milliseconds since 1970.
    """
    return f"{table_identifier(path)}#{modified_ms}"


def table_identifier(location: str) -> str:
    """Return the path of a URI without scheme, authority and a slash at its end."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme.isascii() and scheme.replace("+", "").replace("-", "").replace(".", "").isalnum():
        location = rest
    if location.startswith("//"):
        location = "/" + location[2:].partition("/")[2]
    return location.removesuffix("/")
