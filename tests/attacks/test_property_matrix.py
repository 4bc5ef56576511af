"""Every property in every place: decided in a table, and tried on tables whose rule requires encryption."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from sparkcrypt.spark.setup.options import launch_conf
from tests.attacks.hostile_properties import HostileProperties, launch_lines, rules
from tests.attacks.matrix_sessions import Client, FrameSession, serve_connect, serve_thrift
from tests.attacks.property_matrix import NOT_OF_A_TABLE, PLACES, SESSIONS, Place, Session, decide, read_rows
from tests.attacks.property_names import find_names
from tests.conftest import require_service
from tests.services import ServiceUnavailableError
from tests.spark.fixtures import new_lake
from tests.spark.support import make_policy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Serve = Callable[[Path, dict[str, str]], contextlib.AbstractContextManager[Client]]
ALL_CELLS = bool(os.environ.get("SPARKCRYPT_ALL_CELLS"))
DRAWN = 60
TRIED: tuple[Place, ...] = tuple(place for place in PLACES if place != "launch")


def test_every_property_in_the_sources_has_a_row() -> None:
    """A property that jar or package come to read is decided here before it is released, and no row is left over."""
    assert find_names() == {*read_rows(), *NOT_OF_A_TABLE}
    assert not read_rows().keys() & NOT_OF_A_TABLE.keys()


def test_a_table_decides_its_identity_and_adds_protection_and_nothing_else() -> None:
    """Nothing else counts from a table's properties, whatever the session."""
    marks = {"sparkcrypt.rule", "sparkcrypt.table", "sparkcrypt.predecessor", "parquet.sparkcrypt.table.uuid"}
    for place in ("tblproperties", "serdeproperties"):
        for session in SESSIONS:
            counting = {name for name in read_rows() if decide(name, place, session) == "c"}
            assert counting <= marks, (place, session)


def test_nobody_but_the_launch_chooses_keys() -> None:
    """Neither SET, nor options, nor tables name a policy, a key service or a token, in any session."""
    for name in ("policy", "key_service", "session_token"):
        found = {decide(f"parquet.sparkcrypt.{name}", place, session) for place in TRIED for session in SESSIONS}
        assert found == {"r"}


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, private_jar: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Session, HostileProperties]]:
    """The tables in a session of each kind.

    The Connect server's launch has hostile values of all properties that are without effect there.
    """
    harmless = [name for name in read_rows() if decide(name, "launch", "connect") == "n"]
    with contextlib.ExitStack() as stack:
        lake = stack.enter_context(new_lake(spark, tmp_path_factory.mktemp("classic")))
        policy = lake.policy(tables=rules(lake.database))
        made: dict[Session, HostileProperties] = {
            "classic": HostileProperties(FrameSession(lake.spark), policy, lake.root / "db")
        }
        servers: dict[Session, tuple[Serve, list[str]]] = {
            "connect": (serve_connect, harmless),
            "thrift": (partial(serve_thrift, spark), []),
        }
        for kind, (serve, hostile) in servers.items():
            root = tmp_path_factory.mktemp(kind)
            made[kind] = stack.enter_context(launched(kind, serve, hostile, private_jar, root))
        yield made


@contextlib.contextmanager
def launched(kind: str, serve: Serve, hostile: list[str], jar: Path, root: Path) -> Iterator[HostileProperties]:
    """Yield the tables in a session of a server whose launch has hostile values of these properties."""
    policy = make_policy(root / "policy", tables=rules(kind))
    folder = root / "db"
    try:
        conf = {**launch_conf(policy, str(jar), sys.executable), **launch_lines(hostile, policy, folder / "t")}
        with serve(root, conf) as session:
            session.run(f"CREATE DATABASE {kind} LOCATION '{folder.as_uri()}'")
            session.run(f"USE {kind}")
            yield HostileProperties(session, policy, folder)
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.timeout(7200)
def test_cells_in_spark(tables: dict[Session, HostileProperties]) -> None:
    """Hostile values in drawn cells of each kind of session, or in all, bring no plaintext and let no forged row in."""
    seed = int(os.environ.get("SPARKCRYPT_ATTACK_SEED", "1"))
    wrong = []
    for kind, of_kind in tables.items():
        cells = [(name, place) for name in sorted(read_rows()) for place in TRIED]
        if not ALL_CELLS:
            cells = random.Random(f"{seed}: {kind}").sample(cells, DRAWN // len(SESSIONS))
        for name, place in cells:
            cell = decide(name, place, kind)
            outcome, said = of_kind.try_cell(name, place, refused=cell == "r")
            if (outcome == "refused") is not (cell == "r"):
                wrong.append(f"{name} by {place} ({kind}): {outcome}, and the matrix says {cell}: {said[:300]}")
            of_kind.end_cell(keeps=cell != "c")
    assert wrong == [], "\n".join(wrong)


if ALL_CELLS:  # each starts a server

    @pytest.mark.spark
    @pytest.mark.services
    @pytest.mark.parametrize("name", [name for name in read_rows() if decide(name, "launch", "thrift") == "r"])
    def test_refused_lines_of_a_launch(spark: SparkSession, private_jar: Path, tmp_path: Path, name: str) -> None:
        """A server that is launched with such a line writes no row, or reads none."""
        outcome = "refused"
        with (
            contextlib.suppress(Py4JJavaError),
            launched("thrift", partial(serve_thrift, spark), [name], private_jar, tmp_path) as tables,
        ):
            outcome, _ = tables.try_cell(name, "launch", refused=True)
        assert outcome == "refused"
