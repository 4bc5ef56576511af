"""Reading a table under its policy: a denied column is an error, or null where the caller asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkcrypt.errors import ConfigError, FormatError, KeyAccessDeniedError, KeyNotFoundError
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.service import KeyService, open_key_service
from sparkcrypt.parquet import KeyRequest, read_footer
from sparkcrypt.policy.model import Policy
from sparkcrypt.spark.catalog import Catalog
from sparkcrypt.spark.files import HadoopFiles
from sparkcrypt.spark.session import configure

OnDenied = Literal["error", "null"]


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What became of a table's columns when it was read: ``denied`` ones are null in every row."""

    table: str
    on_denied: OnDenied
    denied: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "denied": list(self.denied)}


def read_table(
    spark: SparkSession,
    name: str,
    policy: Policy,
    *,
    on_denied: OnDenied = "error",
    report: Callable[[ReadReport], None] | None = None,
) -> DataFrame:
    """Read a table.

    Args:
        spark: a classic session; it is configured with the policy.
        name: ``db.table``.
        policy: of the table.
        on_denied: ``error``: a query that touches a column whose key is denied fails; ``null``: such a column is null
            in every row, as a whole as soon as any file's key of any of its leaves is denied.
        report: hears, before anything is read, which columns are null for want of a key.

    Raises:
        KeyAccessDeniedError: the footer key is denied; then nothing can be read.
    """
    if on_denied not in ("error", "null"):
        raise ConfigError(f"on_denied is {on_denied!r}; allowed: error, null")
    configure(spark, policy)
    frame = spark.table(name)
    denied = denied_columns(spark, name, policy) if on_denied == "null" else frozenset()
    if report is not None:
        report(ReadReport(name, on_denied, tuple(field for field in frame.columns if field in denied)))
    for field in frame.schema.fields:
        if field.name in denied:
            # With its tags: what is derived from the column goes on being encrypted.
            nothing = F.lit(None).cast(field.dataType).alias(field.name, metadata=field.metadata)
            frame = frame.withColumn(field.name, nothing)
    return frame


def denied_columns(spark: SparkSession, name: str, policy: Policy) -> frozenset[str]:
    """Return the top-level columns of which some file's key is denied to these credentials, or is gone."""
    files, catalog = HadoopFiles(spark), Catalog(spark)
    table = catalog.table(name)
    locations = [one.location for one in catalog.partitions(table)] if table.partition_columns else [table.location]
    access = _Access(open_key_service(policy.key_service))
    denied: set[str] = set()
    for location in locations:
        for status in files.data_files(location):
            with files.open(status.path) as stream:
                footer = read_footer(stream, retrieve_key=access.open)
            for column in footer.columns or ():
                if column.encrypted and not access.allows(column.key_metadata):
                    denied.add(column.path[0])
    return frozenset(denied)


class _Access:
    """Which keys these credentials may open; each is asked for once."""

    def __init__(self, service: KeyService) -> None:
        self._opener = DataKeyOpener(service)
        self._known: dict[tuple[str, str | None], bool] = {}

    def open(self, request: KeyRequest) -> bytes:
        """Open a key, or raise."""
        return self._opener.open(parse_key_material(request.key_metadata or b""))

    def allows(self, key_metadata: bytes | None) -> bool:
        """Tell whether a column's key may be opened; None is the footer key, which was opened before."""
        if key_metadata is None:
            return True
        try:
            material = parse_key_material(key_metadata)
        except FormatError:
            return False
        key = (material.master_key_id, material.kek_id)
        if key not in self._known:
            try:
                self._opener.open(material)
                self._known[key] = True
            except (KeyAccessDeniedError, KeyNotFoundError):
                self._known[key] = False
        return self._known[key]
