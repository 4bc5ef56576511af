"""Sets one property in one place on a table whose rule requires encryption, and checks that no protection is lost."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt import names
from sparkcrypt.spark.tables.catalog import Catalog
from tests.spark.support import SECRET, Lake, data_files, rows_of, said_of

FORGED = "forged@example.org"
TABLES = {"tblproperties": ("h", "STORED AS PARQUET"), "serdeproperties": ("t", "USING parquet")}
_TEXTS = {
    names.FIELD_METADATA: "drop",
    names.CRYPTO_FACTORY: names.STOCK_CRYPTO_FACTORY_CLASS,
    names.KMS_CLIENT: names.KMS_CLIENT_CLASS,
    names.KEY_SERVICE: '{"path":"/nowhere","type":"local"}',
    names.SESSION_TOKEN: "0" * 64,
    names.STREAM: "told",
    names.TABLE: "x.y",
    names.TABLE_NAME: "x.y",
    names.TABLE_UUID: "11111111-2222-3333-4444-555555555555",
    names.TABLE_SCHEMA: '{"type":"struct","fields":[]}',
    names.QUERY_SCHEMA: '{"type":"struct","fields":[]}',
    names.OWNER_SCHEMAS: "[]",
    f"{names.PREFIX}orc.schema": '{"type":"struct","fields":[]}',
    names.REQUIRE_ENCRYPTION: "false",
    names.PARTITION: "p=9",
    names.TAGS_PREFIX: "public",
    names.HISTORY_PREFIX: "plaintext",
    names.SUMMARY_LEVEL: "ALL",
    names.CACHE_LIFETIME: "9e9",
    names.ORC_KEY_PROVIDER: "memory",
    names.COMMIT_PROTOCOL: "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    names.STREAM_COMMIT_PROTOCOL: "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol",
    names.ON_DENIED: "mask",
    "spark.sql.hive.convertMetastoreOrc": "false",
    "spark.sql.orc.impl": "hive",
    "spark.sql.execution.id": "7",
}


class HostileProperties:
    """The tables of the matrix, in one session."""

    def __init__(self, lake: Lake) -> None:
        rules = "".join(
            f"  {lake.name(table)}: {{require_encryption: true, tags: {{email: pii}}}}\n"
            for table, _ in TABLES.values()
        )
        self.lake, self.policy = lake, lake.policy(tables=rules)
        for table, stored in TABLES.values():
            self._make(table, stored)
        self._uuid = Catalog(lake.spark).table(TABLES["serdeproperties"][0]).uuid or ""

    def _make(self, table: str, stored: str) -> None:
        self.lake.sql(f"DROP TABLE IF EXISTS {table}")
        self.lake.sql(f"CREATE TABLE {table} (id INT, email STRING) {stored}")

    def value(self, name: str, table: str) -> str:
        """Return a value that would weaken the table, if it counted."""
        if name == names.POLICY:
            document = json.loads(self.policy.canonical())
            return json.dumps({**document, "tables": {}})
        if name == names.LOCATIONS:
            return json.dumps({f"file:{self.lake.path(table)}": {"table": "x.y", "uuid": None}})
        return _TEXTS.get(name, "true")

    def try_cell(self, name: str, place: str, *, refused: bool) -> tuple[str, str]:
        """Set a property in a place, write a row and read, and take the property away.

        Args:
            name: the property.
            place: the place.
            refused: whether a refusal is expected: then of the read, if the write is not refused.

        Returns:
            ``refused`` or ``kept`` for the write (for the place ``read`` for the read), and the refusal's text.
        """
        table = TABLES.get(place, TABLES["serdeproperties"])[0]
        value = self.value(name, table)
        full = f"{name}email" if name in (names.TAGS_PREFIX, names.HISTORY_PREFIX) else name
        before = len(data_files(self.lake.path(table)))
        with self._set(full, value, place, table) as denied:
            outcome, said = ("refused", denied) if denied else self._write(full, value, place, table)
            wrote = len(data_files(self.lake.path(table))) > before
            assert wrote is (outcome == "kept"), (name, place, said)
            self._assert_encrypted(table)
            self._assert_nothing_forged(full, value, place, table)
            if outcome == "kept" and (place == "read" or refused):
                outcome, said = self._read(full, value, place, table)
        return outcome, said

    def end_cell(self, *, keeps: bool) -> None:
        """Assert that rows which were written under the property can be read without it, and remove them.

        Args:
            keeps: whether they can, as where the property has no effect.
        """
        for table, _ in TABLES.values():
            files = data_files(self.lake.path(table))
            if files and keeps:
                self.lake.sql(f"REFRESH TABLE {table}")
                assert rows_of(self.lake.spark.table(table)) == [(1, SECRET)] * len(files), table
            for file in files:
                file.unlink()

    @contextlib.contextmanager
    def _set(self, name: str, value: str, place: str, table: str) -> Iterator[str | None]:
        """Set the property for the block, and yield Spark's refusal, if it refuses that."""
        spark, text = self.lake.spark, value.replace("'", "\\'")
        refused = None
        known = spark.conf.get(name, None) if place == "set" else None
        try:
            if place == "set":
                spark.conf.set(name, value)
            elif place in TABLES:
                spark.sql(f"ALTER TABLE {table} SET {place.upper()} ('{name}' = '{text}')")
                spark.sql(f"REFRESH TABLE {table}")
        except Exception as error:  # noqa: BLE001  # of Spark, as of a static setting
            refused = said_of(error)
        try:
            yield refused
        finally:
            if place == "set" and refused is None:
                if known is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, known)
            elif place == "tblproperties":
                spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES IF EXISTS ('{name}')")
            elif place == "serdeproperties":
                self._keep_files(table)

    def _keep_files(self, table: str) -> None:
        """Make the table anew over the same files with the same UUID, since Spark cannot take an option away."""
        catalog = Catalog(self.lake.spark)
        folder = self.lake.path(table)
        kept = folder.with_name(f".{table}")
        folder.rename(kept)
        self._make(table, TABLES["serdeproperties"][1])
        catalog.set_options(catalog.table(table), {names.TABLE_UUID: self._uuid})
        if folder.exists():
            folder.rmdir()
        kept.rename(folder)

    def _write(self, name: str, value: str, place: str, table: str) -> tuple[str, str]:
        try:
            if place == "write":
                row = self.lake.spark.createDataFrame([(1, SECRET)], "id int, email string").coalesce(1)
                row.write.option(name, value).mode("append").parquet(str(self.lake.path(table)))
            else:
                self.lake.sql(f"INSERT INTO {table} VALUES (1, '{SECRET}')")
        except Exception as error:  # noqa: BLE001  # of Spark
            return "refused", said_of(error)
        return "kept", ""

    def _assert_encrypted(self, table: str) -> None:
        for file in data_files(self.lake.path(table)):
            content = file.read_bytes()
            assert content[-4:] == b"PARE" and SECRET.encode() not in content, file

    def _assert_nothing_forged(self, name: str, value: str, place: str, table: str) -> None:
        """Read with a planted plaintext file beside the others, whose row must never come out."""
        planted = self.lake.path(table) / "part-00000-forged.parquet"
        pq.write_table(pa.table({"id": pa.array([99], pa.int32()), "email": [FORGED]}), planted)
        try:
            rows = self._rows(name, value, place, table)
        except Exception:  # noqa: BLE001  # refused, as it should be
            rows = []
        finally:
            planted.unlink()
        assert FORGED not in str(rows), (name, place)

    def _read(self, name: str, value: str, place: str, table: str) -> tuple[str, str]:
        try:
            self._rows(name, value, place, table)
        except Exception as error:  # noqa: BLE001  # of Spark
            return "refused", said_of(error)
        return "kept", ""

    def _rows(self, name: str, value: str, place: str, table: str) -> list[object]:
        self.lake.sql(f"REFRESH TABLE {table}")
        if place == "read":
            reader = self.lake.spark.read.option(name, value).schema("id int, email string")
            return rows_of(reader.parquet(str(self.lake.path(table))))
        return rows_of(self.lake.spark.table(table))
