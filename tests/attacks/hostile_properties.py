"""Sets one property in one place on a table whose rule requires encryption, and checks that no protection is lost."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkcrypt import names
from sparkcrypt.policy.model import Policy
from tests.attacks.matrix_sessions import SCHEMA, Client
from tests.spark.support import SECRET, data_files, said_of

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


def rules(database: str) -> str:
    """Return the lines of a policy that require encryption for the tables."""
    return "".join(
        f"  {database}.{table}: {{require_encryption: true, tags: {{email: pii}}}}\n" for table, _ in TABLES.values()
    )


def launch_lines(named: list[str], policy: Policy, folder: Path) -> dict[str, str]:
    """Return the lines of a launch that give properties hostile values."""
    told = {full_name(name): hostile_value(name, policy, folder) for name in named}
    return {name if name.startswith("spark.") else f"spark.hadoop.{name}": value for name, value in told.items()}


def full_name(name: str) -> str:
    """Return a property's name, for a prefix that of the tagged column's."""
    return f"{name}email" if name in (names.TAGS_PREFIX, names.HISTORY_PREFIX) else name


def hostile_value(name: str, policy: Policy, folder: Path) -> str:
    """Return a value that would weaken the table in a folder, if it counted."""
    if name == names.POLICY:
        document = json.loads(policy.canonical())
        return json.dumps({**document, "tables": {}})
    if name == names.LOCATIONS:
        return json.dumps({f"file:{folder}": {"table": "x.y", "uuid": None}})
    return _TEXTS.get(name, "true")


class HostileProperties:
    """The tables of the matrix, in one session under a policy that has their `rules`.

    Args:
        session: the session, whose database is in use.
        policy: the policy.
        folder: the folder of the database.
    """

    def __init__(self, session: Client, policy: Policy, folder: Path) -> None:
        self.session, self.policy, self.folder = session, policy, folder
        for table, stored in TABLES.values():
            self._make(table, stored)
        described = str(session.run(f"DESCRIBE EXTENDED {TABLES['serdeproperties'][0]}"))
        self._uuid = re.findall(rf"{re.escape(names.TABLE_UUID)}=([0-9a-f-]{{36}})", described)[0]

    def _make(self, table: str, stored: str) -> None:
        self.session.run(f"DROP TABLE IF EXISTS {table}")
        self.session.run(f"CREATE TABLE {table} ({SCHEMA}) {stored}")

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
        value = hostile_value(name, self.policy, self.folder / table)
        full = full_name(name)
        before = len(data_files(self.folder / table))
        with self._set(full, value, place, table) as denied:
            outcome, said = ("refused", denied) if denied else self._write(full, value, place, table)
            wrote = len(data_files(self.folder / table)) > before
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
            files = data_files(self.folder / table)
            if files and keeps:
                self.session.run(f"REFRESH TABLE {table}")
                assert self.session.run(f"SELECT * FROM {table}") == [(1, SECRET)] * len(files), table
            for file in files:
                file.unlink()

    @contextlib.contextmanager
    def _set(self, name: str, value: str, place: str, table: str) -> Iterator[str | None]:
        """Set the property for the block, and yield Spark's refusal, if it refuses that."""
        session, text = self.session, value.replace("'", "\\'")
        refused = None
        known = session.get(name) if place == "set" else None
        try:
            if place == "set":
                session.set(name, value)
            elif place in TABLES:
                session.run(f"ALTER TABLE {table} SET {place.upper()} ('{name}' = '{text}')")
                session.run(f"REFRESH TABLE {table}")
        except Exception as error:  # noqa: BLE001  # of Spark, as of a static setting
            refused = said_of(error)
        try:
            yield refused
        finally:
            if place == "set" and refused is None:
                session.set(name, known)
            elif place == "tblproperties":
                session.run(f"ALTER TABLE {table} UNSET TBLPROPERTIES IF EXISTS ('{name}')")
            elif place == "serdeproperties":
                self._keep_files(table)

    def _keep_files(self, table: str) -> None:
        """Make the table anew over the same files with the same UUID, since Spark cannot take an option away."""
        folder = self.folder / table
        kept = folder.with_name(f".{table}")
        folder.rename(kept)
        self._make(table, TABLES["serdeproperties"][1])
        self.session.run(f"ALTER TABLE {table} SET SERDEPROPERTIES ('{names.TABLE_UUID}' = '{self._uuid}')")
        if folder.exists():
            folder.rmdir()
        kept.rename(folder)

    def _write(self, name: str, value: str, place: str, table: str) -> tuple[str, str]:
        try:
            if place == "write":
                self.session.append(self.folder / table, {name: value})
            else:
                self.session.run(f"INSERT INTO {table} VALUES (1, '{SECRET}')")
        except Exception as error:  # noqa: BLE001  # of Spark
            return "refused", said_of(error)
        return "kept", ""

    def _assert_encrypted(self, table: str) -> None:
        for file in data_files(self.folder / table):
            content = file.read_bytes()
            assert content[-4:] == b"PARE" and SECRET.encode() not in content, file

    def _assert_nothing_forged(self, name: str, value: str, place: str, table: str) -> None:
        """Read with a planted plaintext file beside the others, whose row must never come out."""
        planted = self.folder / table / "part-00000-forged.parquet"
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
        self.session.run(f"REFRESH TABLE {table}")
        if place == "read":
            return self.session.read(self.folder / table, {name: value})
        return self.session.run(f"SELECT * FROM {table}")
