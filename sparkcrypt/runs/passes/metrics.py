"""The state of all tables as metrics, in Prometheus' text format 0.0.4, as node exporter's textfile collector reads it.

Labels are names of tables, folders, tags, master keys, kinds of drift and outcomes: no units, since those are named by
values of partition columns, and no text of errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from sparkcrypt.text import parse_time

if TYPE_CHECKING:
    from sparkcrypt.runs.passes.estate import EstateStatus, TableStatus
    from sparkcrypt.runs.passes.last_pass import Figures, LastPass

GAUGES = {
    "sparkcrypt_status_timestamp_seconds": "When this file was written.",
    "sparkcrypt_tables": "Tables and folders that the state directory knows.",
    "sparkcrypt_earlier_tables": "Tables that had the name of another before: dropped or renamed, and made again.",
    "sparkcrypt_tag_files": "Files with columns of the tag, in all tables.",
    "sparkcrypt_tag_matching_files": "Files with columns of the tag whose columns match the plan, in all tables.",
    "sparkcrypt_tag_bytes": "Bytes of the files with columns of the tag, in all tables.",
    "sparkcrypt_tag_matching_bytes": "Bytes of the files whose columns of the tag match the plan, in all tables.",
    "sparkcrypt_table_last_pass_timestamp_seconds": "When a pass last worked on the table, skipped or refused it.",
    "sparkcrypt_table_last_pass_outcome": "1 for the outcome of the last pass over the table.",
    "sparkcrypt_table_surveyed_timestamp_seconds": "When the table was last surveyed as a whole.",
    "sparkcrypt_table_files": "Files of the table when it was surveyed.",
    "sparkcrypt_table_untagged": "1 if nothing of the table is encrypted, since no column has a tag that encrypts.",
    "sparkcrypt_table_drifted_files": "Files of the table that differ from the plan, by kind of drift.",
    "sparkcrypt_table_units_left": "Units of the table that differ from the plan.",
    "sparkcrypt_table_bytes_left": "Bytes in units of the table that differ from the plan.",
    "sparkcrypt_table_quarantined_units": "Units of the table in which the last run failed.",
    "sparkcrypt_table_reader_key_calls": "Calls to the key service by a reader of all files, before the last run.",
    "sparkcrypt_table_run_duration_seconds": "How long the last run over the table took.",
    "sparkcrypt_table_run_rewritten_bytes": "Bytes of old files that the last run rewrote.",
    "sparkcrypt_table_run_rewritten_bytes_per_second": "Bytes of old files that the last run rewrote in a second.",
    "sparkcrypt_table_open_problems": "Open problems of the table, which a person must decide.",
    "sparkcrypt_table_tags_lost": "1 if the table lost tags, by the last pass over it.",
    "sparkcrypt_table_old_bytes": "Bytes of old files of the table that await expiry.",
    "sparkcrypt_table_old_plaintext_files": "Old files in clear of the table that await expiry.",
    "sparkcrypt_table_old_plaintext_bytes": "Bytes of old files in clear of the table that await expiry.",
    "sparkcrypt_table_old_plaintext_since_timestamp_seconds": "When the first old file in clear was replaced.",
    "sparkcrypt_table_old_beyond_grace": "1 if old files of the table await expiry beyond the policy's grace.",
    "sparkcrypt_keys_known": "1 if the key service said which rotations are overdue, 0 if it did not answer.",
    "sparkcrypt_key_rotation_overdue_since_timestamp_seconds": "Since when the rotation of a master key is overdue.",
}
"""Name -> what it is; all are gauges, since a pass and `expire` may lower each."""

Sample: TypeAlias = tuple[str, dict[str, str], float]


def metrics_text(done: EstateStatus) -> str:
    """Return the state of all tables as the text of a file of metrics."""
    by_name: dict[str, list[str]] = {name: [] for name in GAUGES}
    for name, labels, value in _list_samples(done):
        pairs = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        by_name[name].append(f"{name}{{{pairs}}} {value:.16g}" if pairs else f"{name} {value:.16g}")
    lines = []
    for name, samples in by_name.items():
        if samples:
            lines += [f"# HELP {name} {GAUGES[name]}", f"# TYPE {name} gauge", *samples]
    return "\n".join([*lines, ""])


def _escape(text: str) -> str:
    """Return the value of a label as it stands between quotes; what is no UTF-8 becomes question marks."""
    clean = text.encode(errors="replace").decode()
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _list_samples(done: EstateStatus) -> Iterator[Sample]:
    yield "sparkcrypt_status_timestamp_seconds", {}, _seconds(done.at)
    yield "sparkcrypt_tables", {}, len(done.tables)
    yield "sparkcrypt_earlier_tables", {}, len(done.earlier)
    for tag, found in done.coverage.items():
        yield "sparkcrypt_tag_files", {"tag": tag}, found.files
        yield "sparkcrypt_tag_matching_files", {"tag": tag}, found.matching_files
        yield "sparkcrypt_tag_bytes", {"tag": tag}, found.total_bytes
        yield "sparkcrypt_tag_matching_bytes", {"tag": tag}, found.matching_bytes
    for table in done.tables:
        labels = {"table": table.table}
        yield "sparkcrypt_table_open_problems", labels, len(table.problems)
        yield "sparkcrypt_table_tags_lost", labels, table.tags_lost is not None
        yield from _list_old(table, labels)
        if table.last is not None:
            yield from _list_of_pass(table.last, labels)
        if table.figures is not None:
            yield from _list_figures(table.figures, labels)
    yield "sparkcrypt_keys_known", {}, done.overdue is not None
    for key in done.overdue or ():
        yield "sparkcrypt_key_rotation_overdue_since_timestamp_seconds", {"key": key.key_id}, _seconds(key.since)


def _list_old(table: TableStatus, labels: dict[str, str]) -> Iterator[Sample]:
    waiting = table.awaiting
    if waiting is None:
        return
    yield "sparkcrypt_table_old_bytes", labels, waiting.total_bytes
    yield "sparkcrypt_table_old_plaintext_files", labels, waiting.plaintext_files
    yield "sparkcrypt_table_old_plaintext_bytes", labels, waiting.plaintext_bytes
    yield "sparkcrypt_table_old_beyond_grace", labels, waiting.beyond_grace
    if waiting.plaintext_since is not None:
        since = _seconds(waiting.plaintext_since)
        yield "sparkcrypt_table_old_plaintext_since_timestamp_seconds", labels, since


def _list_of_pass(last: LastPass, labels: dict[str, str]) -> Iterator[Sample]:
    yield "sparkcrypt_table_last_pass_timestamp_seconds", labels, _seconds(last.tried)
    yield "sparkcrypt_table_last_pass_outcome", {**labels, "outcome": last.outcome}, 1
    if last.run_id is not None:
        yield "sparkcrypt_table_run_duration_seconds", labels, last.seconds
        yield "sparkcrypt_table_run_rewritten_bytes", labels, last.bytes_rewritten
        yield "sparkcrypt_table_run_rewritten_bytes_per_second", labels, last.bytes_a_second


def _list_figures(figures: Figures, labels: dict[str, str]) -> Iterator[Sample]:
    yield "sparkcrypt_table_surveyed_timestamp_seconds", labels, _seconds(figures.at)
    yield "sparkcrypt_table_files", labels, figures.files
    yield "sparkcrypt_table_untagged", labels, figures.untagged
    yield "sparkcrypt_table_units_left", labels, figures.units_left
    yield "sparkcrypt_table_bytes_left", labels, figures.bytes_left
    yield "sparkcrypt_table_quarantined_units", labels, figures.quarantined
    yield "sparkcrypt_table_reader_key_calls", labels, figures.key_calls
    for kind, files in figures.drift.items():
        yield "sparkcrypt_table_drifted_files", {**labels, "kind": kind}, files


def _seconds(time: str) -> float:
    return parse_time(time).timestamp()
