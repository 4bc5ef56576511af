"""Events of OpenLineage about runs: START, then COMPLETE or FAIL, sent by OpenLineage's own client where it is set up.

The client is configured in its own ways (``OPENLINEAGE_…``, ``openlineage.yml``); without these nothing is imported
or sent.  No event ends a run: after the first one that cannot be sent, the log says so, and this process sends none.

Source: OpenLineage 2-0-2; ``TagsDatasetFacet``, ``ColumnLineageDatasetFacet``, ``ErrorMessageRunFacet``.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sparkcrypt import __version__
from sparkcrypt.errors import SparkcryptError
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.runs.passes.lineage import Column, unite_columns
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.run_report import Report
from sparkcrypt.runs.table.open_table import OpenTable
from sparkcrypt.schema import join_dotted
from sparkcrypt.spark.jvm.gateway import hadoop_conf
from sparkcrypt.tags.field_metadata import ColumnLineage

if TYPE_CHECKING:
    from openlineage.client.event_v2 import OutputDataset
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_PREFIX, _FILE = "OPENLINEAGE_", "openlineage.yml"
_PRODUCER = f"urn:sparkcrypt:{__version__}"
_RUN_FACET, _KEYS_FACET = "sparkcrypt_run", "sparkcrypt_keys"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table or a folder, by the names that OpenLineage has for it, and what an event says of it.

    Attributes:
        namespace: of the metastore, or of the folder's file system.
        name: ``db.table``, or the path of the folder.
        tags: column -> its tags.
        lineage: column -> the columns that its values and tags come from.
        keys: by name, what is told of master keys: ``keyIds`` of its files, ``columns`` (column -> key id),
            ``shredded`` (key id -> the columns whose values went dark with it).
    """

    namespace: str
    name: str
    tags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lineage: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)


def _find_namespace(spark: SparkSession) -> str:
    """Return the namespace of tables: their metastore, or the session's warehouse if no other program reaches it."""
    uri = str(hadoop_conf(spark).get("hive.metastore.uris") or "").split(",")[0].strip()
    return f"hive://{urlsplit(uri).netloc}" if uri else str(spark.conf.get("spark.sql.warehouse.dir"))


def _name_dataset(namespace: str, name: str) -> tuple[str, str]:
    """Return namespace and name of a table, or of a folder, by its path or URI."""
    if "/" not in name:
        return namespace, name
    place = urlsplit(name)
    return (f"{place.scheme}://{place.netloc}" if place.netloc else "file"), place.path


def events_of_run(table: OpenTable, options: RunOptions, run_id: str) -> RunEvents:
    """Return the events of an execution over one target.

    Args:
        table: the target.
        options: those of the run.
        run_id: the id of the run in the journal; several executions may be of one run.
    """
    kind = "encrypt" if options.rotate_key is None else "rotate"
    outputs = []
    if is_set_up():
        outputs.append(Dataset(*_name_dataset(_find_namespace(table.spark), options.output or table.target.name)))
    return RunEvents(kind, outputs, run_id)


def events_of_shredding(spark: SparkSession) -> RunEvents:
    """Return the events of a command that shreds keys, whose outputs `RunEvents.tell_shredded` takes."""
    return RunEvents("shred", [], namespace=_find_namespace(spark) if is_set_up() else "")


class RunEvents:
    """The events of one execution, which is what its block does: an error in it makes the last event FAIL.

    Args:
        kind: what is done: ``encrypt``, ``rotate`` or ``shred``.
        outputs: the datasets whose files it changes, as far as they are known before.
        run_id: the id of the run in the journal, if it is of one.
        namespace: that of tables which are not known before.
    """

    def __init__(self, kind: str, outputs: Sequence[Dataset], run_id: str | None = None, namespace: str = "") -> None:
        self._kind, self._outputs, self._namespace = kind, tuple(outputs), namespace
        self._facts: dict[str, Any] = {"runId": run_id} if run_id else {}
        self._add_columns: Callable[[Dataset], Dataset] = lambda told: told
        self._shredded: dict[str, dict[str, list[str]]] = {}
        self._id = str(uuid.uuid4())

    def __enter__(self) -> RunEvents:
        """Send START."""
        _SENDER.send(self, "START")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send COMPLETE, or FAIL with the error's class, and the message of an error of this package."""
        _SENDER.send(self, "COMPLETE" if error is None else "FAIL", error)

    def tell_run(self, report: Report, plan: EncryptionPlan, noted: Iterable[ColumnLineage]) -> None:
        """Take what the last event says of a run and its dataset.

        Columns from which values were derived without their tags, by `declassify`, are left out of its lineage, since
        whoever reads the event would carry their tags along.

        Args:
            report: has the outcome, and the keys of files.
            plan: has the tags.
            noted: the lineage in the files of the dataset.
        """
        self._facts |= {"runId": report.run_id, "outcome": report.outcome, "filesRewritten": report.files_rewritten}
        self._add_columns = partial(_add_columns, report, plan, noted)

    def tell_shredded(self, key_id: str, dark: Mapping[str, Sequence[str]]) -> None:
        """Take a key that was shredded, with the tables in which values went dark, each with their columns."""
        for table, columns in dark.items():
            self._shredded.setdefault(table, {})[key_id] = list(columns)
        self._outputs = tuple(
            Dataset(*_name_dataset(self._namespace, table), keys={"shredded": keys})
            for table, keys in self._shredded.items()
        )

    def make(self, state: str, error: BaseException | None) -> Any:
        """Return an event as an object of OpenLineage's client."""
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import RunFacet, error_message_run

        facets: dict[str, Any] = {}
        if self._facts:
            facets[_RUN_FACET] = RunFacet(producer=_PRODUCER).with_additional_properties(**self._facts)
        if error is not None:
            text = f"{type(error).__name__}: {error}" if isinstance(error, SparkcryptError) else type(error).__name__
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(text, "python", producer=_PRODUCER)
        name = ".".join(["sparkcrypt", self._kind, *(told.name for told in self._outputs if self._kind != "shred")])
        return RunEvent(
            eventTime=datetime.now(timezone.utc).isoformat(),
            producer=_PRODUCER,
            run=Run(self._id, facets),
            job=Job(os.environ.get("OPENLINEAGE_NAMESPACE", "default"), name),
            eventType=RunState[state],
            outputs=[_describe(self._add_columns(told)) for told in self._outputs],
        )


def _add_columns(report: Report, plan: EncryptionPlan, noted: Iterable[ColumnLineage], dataset: Dataset) -> Dataset:
    tags = {join_dotted(column.leaf.logical): column.tags for column in plan.columns if column.tags}
    lineage = {found.name: found.origins for found in unite_columns(noted) if found.origins}
    keys = {"keyIds": list(report.key_ids), "columns": dict(report.columns)}
    return replace(dataset, tags=tags, lineage=lineage, keys=keys)


def _describe(dataset: Dataset) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import DatasetFacet, column_lineage_dataset, tags_dataset

    facets: dict[str, Any] = {}
    if dataset.tags:
        tags = [
            tags_dataset.TagsDatasetFacetFields(tag, "true", "SPARKCRYPT", column)
            for column, found in dataset.tags.items()
            for tag in found
        ]
        facets["tags"] = tags_dataset.TagsDatasetFacet(tags, producer=_PRODUCER)
    if dataset.lineage:
        fields = {
            column: column_lineage_dataset.Fields(
                [
                    column_lineage_dataset.InputField(*_name_dataset(dataset.namespace, table), origin)
                    for table, origin in origins
                ]
            )
            for column, origins in dataset.lineage.items()
        }
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(fields, producer=_PRODUCER)
    if dataset.keys:
        facets[_KEYS_FACET] = DatasetFacet(producer=_PRODUCER).with_additional_properties(**dataset.keys)
    return OutputDataset(dataset.namespace, dataset.name, facets=facets)


class _Sender:
    """Sends this process's events, in whichever thread a run is, until one cannot be sent."""

    def __init__(self) -> None:
        self._mutex, self._ended = threading.Lock(), False

    def send(self, events: RunEvents, state: str, error: BaseException | None = None) -> None:
        """Send an event if the client is set up; an error is a line of the log, and the last event."""
        if self._ended or not is_set_up():
            return
        try:
            with self._mutex:
                client = self._client
            client.emit(events.make(state, error))
        except Exception as failure:  # noqa: BLE001  # whatever a listener does, the run goes on
            self._end(failure)

    @cached_property
    def _client(self) -> Any:
        from openlineage.client import OpenLineageClient

        client = OpenLineageClient()
        atexit.register(client.close)
        return client

    def _end(self, failure: Exception) -> None:
        with self._mutex:
            told, self._ended = self._ended, True
        if told:
            return
        step = "look at its configuration and its listener; runs go on, and this process sends no further event"
        if isinstance(failure, ImportError):
            step = "pip install 'sparkcrypt[openlineage]', or unset what configures it; runs go on"
        _LOG.warning("OpenLineage: an event was not sent: %s: %s; %s", type(failure).__name__, failure, step)


_SENDER = _Sender()


def is_set_up() -> bool:
    """Tell whether anything configures OpenLineage's client: its variables, or its file where it looks for it."""
    if any(name.startswith(_PREFIX) for name in os.environ):
        return True
    try:
        return Path(_FILE).is_file() or Path("~/.openlineage", _FILE).expanduser().is_file()
    except (OSError, RuntimeError):  # this user may not look there, or has no home
        return False
