"""The names of fields and objects in a store.

Source: the specification of the Parquet metadata store, "Version 1", "Version 2" and "Version 4"; ``ParquetUtils`` and
``Identifier`` of Xskipper.
"""

from __future__ import annotations

from collections.abc import Sequence

OBJECT = "obj_name"
"""The field with the name of a row's object: its path, ``#``, and its modification time in milliseconds."""
PARTITION_PREFIX = "virtual_"
FIRST_VERSION, VERSION = 1, 4
"""The oldest version that is read; the newest version, which is also the one that is written."""
MINMAX, VALUES, BLOOM = "minmax", "valuelist", "bloomfilter"
"""The kinds of indexes that are used."""
FALSE_POSITIVES = "io.xskipper.index.bloom.fpp"
"""Parameter of an index: the share of false positives of a Bloom filter.  Upstream's name."""
MOST_VALUES = "io.sparkcrypt.index.values.most"
"""Parameter of an index: the number of distinct values of an object up to which its list is stored."""
COLUMN_TYPE = "io.sparkcrypt.index.column.type"
"""Parameter of an index: the Spark type of a Bloom filter's column, which the filter's bytes do not contain."""


def field_name(columns: Sequence[str], kind: str, version: int = VERSION) -> str:
    """Return the name of an index's field.

    From version 2 on, ``#`` in a column's name is written ``##`` and ``.`` is written ``$#$``, and the lengths of the
    escaped names follow the kind, in UTF-16 units as Java counts them.

    Args:
        columns: the columns of the index, in its order.
        kind: the name of the index's kind.
        version: the store's version, from 1 on.
    """
    if version < 2:
        return "_".join([*columns, kind])
    escaped = [column.replace("#", "##").replace(".", "$#$") for column in columns]
    lengths = "-".join(str(len(text.encode("utf-16-le", "surrogatepass")) // 2) for text in escaped)
    return "_".join([*escaped, kind, lengths])


def object_name(path: str, modified_ms: int) -> str:
    """Return the name of an object in a store.

    Args:
        path: a path or a URI as Hadoop prints it, not percent-encoded; scheme and bucket are removed.
        modified_ms: modification time in milliseconds since 1970.
    """
    return f"{table_identifier(path)}#{modified_ms}"


def table_identifier(location: str) -> str:
    """Return the path of a URI without scheme, authority and trailing slash."""
    scheme, colon, rest = location.partition(":")
    if colon and scheme.isascii() and scheme.replace("+", "").replace("-", "").replace(".", "").isalnum():
        location = rest
    if location.startswith("//"):
        location = "/" + location[2:].partition("/")[2]
    return location.removesuffix("/")
