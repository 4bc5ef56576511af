"""What the tests of rotations share: tables with tags on two columns, and the KEKs of their files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkcrypt.files.parquet import KeyRequest, read_footer
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.material import parse_key_material, version_of
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.keys.rotate import RotationOptions, rotate_key
from sparkcrypt.runs.passes.report import PassReport
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.tables.tagging import set_tags
from tests.spark.support import Lake, key_service, retriever


def make_tables(lake: Lake, *names: str) -> Policy:
    """Create partitioned tables with tags on two columns, under a policy."""
    policy = lake.policy()
    for name in names:
        lake.sql(
            f"CREATE TABLE {name} (id BIGINT, email STRING, amount DOUBLE, p INT) USING parquet PARTITIONED BY (p)"
        )
        set_tags(lake.spark, name, {"email": ["pii"], "amount": ["fin"]}, policy)
    return policy


def write(lake: Lake, table: str, number: int) -> None:
    """Write one file as a separate JVM does: parquet-mr generates KEKs, and keeps a JVM's in static caches.

    ``bench.many_writers`` writes with twenty JVMs, which takes minutes.
    """
    lake.jvm.org.apache.parquet.crypto.keytools.KeyToolkit.removeCacheEntriesForAllTokens()
    lake.sql(f"INSERT INTO {table} SELECT {number}, 'e{number}', double({number}), {number % 2}")


def files_of(lake: Lake, table: str = "t") -> list[Path]:
    """Return the table's files that are in use."""
    lake.sql(f"REFRESH TABLE {table}")
    return sorted(Path(name.removeprefix("file://")) for name in lake.spark.table(table).inputFiles())


def keks_of(files: list[Path], policy: Policy) -> dict[str, set[tuple[int, str | None]]]:
    """Return, by master key, the KEKs of files, each with the version that wrapped it."""
    return keks_by(files, key_service(policy))


def retrieve_by(service: KeyService) -> Callable[[KeyRequest], bytes]:
    """Return a function that opens data keys by a key service, with an empty cache."""
    opener = DataKeyOpener(service)
    return lambda request: opener.open_metadata(request.key_metadata)


def keks_by(files: list[Path], service: KeyService) -> dict[str, set[tuple[int, str | None]]]:
    """Return the same for files under the keys of a key service."""
    found: dict[str, set[tuple[int, str | None]]] = defaultdict(set)
    for file in files:
        footer = read_footer(file, retrieve_key=retrieve_by(service))
        columns = [column.key_metadata for column in footer.columns or () if column.own_key]
        for metadata in (footer.footer_key_metadata, *columns):
            material = parse_key_material(metadata or b"")
            found[material.master_key_id].add((version_of(material.wrapped_kek or ""), material.wrapped_kek))
    return found


def data_of(file: Path, policy: Policy) -> bytes:
    """Return a file's bytes before its footer."""
    return file.read_bytes()[: read_footer(file, retrieve_key=retriever(policy)).offset]


def rotate(
    lake: Lake, policy: Policy, key: str = "pii", *, run: dict[str, Any] | None = None, **more: Any
) -> PassReport:
    """Rotate a master key in some tables, or in all that are known."""
    chosen = {name: more.pop(name) for name in ("tables", "databases") if name in more}
    options = RotationOptions(run=RunOptions(**(run or {})), **more)
    return rotate_key(lake.spark, policy, key, options=options, **chosen)
