"""The differences between a plan and a file's footer; those of dark columns and of a key's rotation among them.

Dark columns: under a master key that was shredded, so that they can never be decrypted again.  A file that only gets
new key metadata keeps them byte for byte.  A Parquet file that gets new data keys cannot keep them: encrypted modules
are bound to the file's identity and to their position in it, and only their own key could bind them to another.  An ORC
file can keep them if it keeps its identity, since streams are bound only to column and stripe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from sparkcrypt.decide.identity import check_aad_prefix, check_orc_identity
from sparkcrypt.errors import PlanError, StorageError, UnsupportedFileError, VerificationError
from sparkcrypt.files.format import FORMATS
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.files.parquet.summary import columns_under
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.datakeys import WrappedKek
from sparkcrypt.keys.material import Wrapping, wrapping_of_kek
from sparkcrypt.names import FileFormat
from sparkcrypt.plan import EncryptionPlan
from sparkcrypt.runs.table.columns import FileColumns, ScannedFile
from sparkcrypt.schema import Path, join_dotted

DriftKind = Literal[
    "missing",
    "extra",
    "wrong_key",
    "wrong_algorithm",
    "wrong_footer",
    "plaintext",
    "aad_mismatch",
    "foreign_key",
    "unreadable",
    "missing_folder",
    "unlisted_folder",
    "away",
    "old_version",
    "other_kek",
    "dark",
    "external_material",
    "summary_file",
    "unknown",
]
EXTERNAL_MATERIAL: DriftKind = "external_material"
UNKNOWN: DriftKind = "unknown"
DECRYPTED: DriftKind = "extra"
_NO_COLUMN = (
    "no column of the table, so that it has no tag; was it renamed? Files keep the former name, so that readers of the "
    "new one get nulls"
)
"""The kind of drift that a run removes by decrypting a file or a column."""
OF_FOLDERS: tuple[DriftKind, ...] = ("missing_folder", "unlisted_folder")
"""Kinds of drift of a unit's folder, of which no file is known."""
AWAY: DriftKind = "away"
"""The kind of drift of a unit that is to be brought back to its former home."""
NO_DATA_FILE: frozenset[DriftKind] = frozenset({*OF_FOLDERS, AWAY, "summary_file"})
"""The kinds of drift of what is no data file."""


_OF_KEYS = ("wrong_key", "external_material")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Drift(JsonObject, json_names={"only_keys": None}):
    """One difference of a file from its plan.

    ``column`` is None if the file itself differs, ``detail`` is text for messages, and ``key_id`` is the key found.
    ``only_keys`` is true if only master keys differ in the whole file, so that its data keys could be rewrapped.
    """

    kind: DriftKind
    file: str
    column: str | None
    detail: str
    key_id: str | None = None
    only_keys: bool = False


def drift_of_file(
    file: ScannedFile, plan: EncryptionPlan, partition: Mapping[str, str], *, table_uuid: str | None
) -> tuple[Drift, ...]:
    """Compare one file with the plan.

    Inherited columns are no difference, and dark ones stay unchanged, whatever is planned for them.

    Args:
        file: the file; its columns must have been revealed with the footer key.
        plan: the plan of the file's table.
        partition: values of the file's partition, for key templates.
        table_uuid: the table's identity, or None.

    Raises:
        PlanError: the partition's values cannot be used in a key template.
    """
    summary, matched, dark = file.summary, file.columns, file.dark
    inherited = {entry.path for entry in file.inherited}
    columns = summary.columns or {}
    judged = [column for column in columns if column not in inherited and column not in dark]
    try:
        wanted = {path: key for path, key in matched.key_ids(plan, partition).items() if path not in dark}
    except PlanError as error:
        raise PlanError(f"{summary.path}: {error}") from error
    if summary.format == "orc":
        return _orc_drift(summary, plan, judged, wanted, matched, table_uuid)
    if summary.footer == "plaintext":
        return (Drift("plaintext", summary.path, None, "the file is not encrypted"),) if wanted else ()
    if not wanted and inherited and not dark and not any(columns[column].encrypted for column in judged):
        return tuple(_material_drift(summary))
    if not wanted and not dark:
        unknown = ", ".join(join_dotted(path) for path in matched.unknown)
        detail = "the file is encrypted, and the plan has no encrypted column in it"
        return (Drift("extra", summary.path, None, f"{detail}; {unknown}: {_NO_COLUMN}" if unknown else detail),)
    drift = (
        *_material_drift(summary),
        *_file_drift(summary, plan, table_uuid),
        *(found for column in judged for found in _column_drift(summary, plan, column, wanted, matched)),
    )
    if _needs_only_keys(summary, plan, wanted, drift):
        return tuple(replace(difference, only_keys=True) for difference in drift)
    return drift


def _orc_drift(
    summary: FileSummary,
    plan: EncryptionPlan,
    judged: Collection[Path],
    wanted: Mapping[Path, str | None],
    matched: FileColumns,
    table_uuid: str | None,
) -> tuple[Drift, ...]:
    """Compare an ORC file, in which columns, their keys and the identity to which keys are bound can differ."""
    wanted = {path: None if is_purged(summary, path, key, plan) else key for path, key in wanted.items()}
    drift = tuple(found for column in judged for found in _column_drift(summary, plan, column, wanted, matched))
    if not summary.encrypted:
        return (Drift("plaintext", summary.path, None, "the file is not encrypted"),) if drift else ()
    if not wanted and drift:
        return drift  # the rewritten file will be plaintext
    if all(column.key_id is None for column in (summary.columns or {}).values()):
        return drift  # another writer's key material, which is reported for each column
    try:
        check_orc_identity(summary.aad_prefix, summary.path, table_uuid=table_uuid, strict=table_uuid is not None)
    except VerificationError as error:
        return (*drift, Drift("aad_mismatch", summary.path, None, str(error)))
    if _keeps_roots(summary, wanted) and all(difference.kind in _OF_KEYS for difference in drift):
        return tuple(replace(difference, only_keys=True) for difference in drift)
    return drift


def _keeps_roots(summary: FileSummary, wanted: Mapping[Path, str | None]) -> bool:
    """Return whether each local key of an ORC file can stay: one master key is wanted for all of its columns.

    Columns of one top-level column and one master key may share a local key.
    """
    keys: dict[tuple[str, str | None], set[str | None]] = {}
    for path, column in (summary.columns or {}).items():
        if column.encrypted:
            keys.setdefault((path[0], column.key_id), set()).add(wanted.get(path))
    return all(len(found) == 1 for found in keys.values())


def _needs_only_keys(
    summary: FileSummary, plan: EncryptionPlan, wanted: Mapping[Path, str | None], drift: Iterable[Drift]
) -> bool:
    """Return whether new key metadata is enough: each column has its own data key if the plan wants one.

    A column under the footer's master key may have no own data key; if that would matter, it counts as having none.
    """
    if summary.aad_prefix is None or any(difference.kind not in _OF_KEYS for difference in drift):
        return False
    own = [column for column, key in wanted.items() if key is not None]
    shared = [column for column in own if (summary.columns or {})[column].key_id == summary.footer_key]
    return all(wanted[column] == summary.footer_key == plan.footer_key for column in shared)


def _material_drift(summary: FileSummary) -> Iterator[Drift]:
    if summary.external_material:
        yield Drift(EXTERNAL_MATERIAL, summary.path, None, "its key material stands in a file beside it, not inside")


def _file_drift(summary: FileSummary, plan: EncryptionPlan, table_uuid: str | None) -> tuple[Drift, ...]:
    found = []
    if summary.algorithm != plan.algorithm:
        found.append(Drift("wrong_algorithm", summary.path, None, f"{summary.algorithm}, not {plan.algorithm}"))
    mode = "encrypted" if summary.footer == "encrypted" else "plaintext"
    if mode != plan.footer_mode:
        found.append(Drift("wrong_footer", summary.path, None, f"the footer is {mode}, not {plan.footer_mode}"))
    if summary.footer_key != plan.footer_key:
        found.append(
            Drift(
                "wrong_key",
                summary.path,
                None,
                f"footer under {summary.footer_key!r}, not {plan.footer_key!r}",
                summary.footer_key,
            )
        )
    try:
        check_aad_prefix(summary.aad_prefix, summary.path, table_uuid=table_uuid, strict=table_uuid is not None)
    except VerificationError as error:
        found.append(Drift("aad_mismatch", summary.path, None, str(error)))
    return tuple(found)


def _column_drift(
    summary: FileSummary,
    plan: EncryptionPlan,
    column: Path,
    wanted: Mapping[Path, str | None],
    matched: FileColumns,
) -> tuple[Drift, ...]:
    actual, name = (summary.columns or {})[column], join_dotted(column)
    if actual.encrypted is None:  # no row group, so nothing to encrypt
        return ()
    if column not in wanted:
        unknown = f", and {_NO_COLUMN}" if column in matched.unknown else ""
        found = Drift("extra", summary.path, name, f"encrypted with {actual.key_id!r}{unknown}")
        return (found,) if actual.encrypted else ()
    if not actual.encrypted:
        return (Drift("missing", summary.path, name, f"plaintext, not {wanted[column] or plan.footer_key!r}"),)
    key = wanted[column] or plan.footer_key
    if actual.key_id == key or is_purged(summary, column, key, plan) or matched.is_late(column, actual.key_id, key):
        return ()
    if actual.key_id is None:
        return (Drift("foreign_key", summary.path, name, f"its key metadata names no master key, so not {key!r}"),)
    return (Drift("wrong_key", summary.path, name, f"encrypted with {actual.key_id!r}, not {key!r}", actual.key_id),)


def is_purged(summary: FileSummary, column: Path, key_id: str | None, plan: EncryptionPlan) -> bool:
    """Return whether a column has nulls under the footer's key, since the key that is planned for it was shredded.

    Args:
        summary: the footer's contents, written by a holder of its key; in an ORC file by anyone who can write the file.
        column: the column's path in the file.
        key_id: the planned key.
        plan: has the current and former footer keys, which are used for an ORC file, whose footer names none.
    """
    of_plan = (plan.footer_key, *plan.footer_key_history)
    footer_keys = (summary.footer_key,) if FORMATS[summary.format].names_footer_key else of_plan
    under_footer = (summary.columns or {})[column].key_id in footer_keys
    return under_footer and key_id is not None and summary.purged.get(column) == key_id


def drift_of_unknown(file: ScannedFile, plan: EncryptionPlan) -> tuple[Drift, ...]:
    """Return the plaintext columns of a file that its table lacks, if any of the table's is encrypted.

    An encrypted one is `extra`.
    """
    columns, detail = file.summary.columns or {}, f"plaintext, and {_NO_COLUMN}"
    lost = [path for path in file.columns.unknown if columns[path].encrypted is False] if plan.encrypted else []
    return tuple(Drift(UNKNOWN, file.path, join_dotted(path), detail) for path in lost)


def drift_of_unreadable(file: str, error: Exception) -> Drift:
    """Return the drift of a file whose footer cannot be read."""
    return Drift("unreadable", file, None, f"{type(error).__name__}: {error}")


def drift_by_file(drift: Iterable[Drift]) -> dict[str, list[Drift]]:
    """Return file -> its differences, for the files that have any."""
    found: dict[str, list[Drift]] = {}
    for difference in drift:
        found.setdefault(difference.file, []).append(difference)
    return found


def drift_of_missing_folder(location: str) -> Drift:
    """Return the drift of a unit whose folder does not exist, so that it is unknown which rows were in it."""
    detail = (
        "the metastore points there, and there is no such folder, so its rows read as none; restore it, or point the "
        "unit to where its files are with ALTER TABLE … SET LOCATION; where it should be empty, make the folder"
    )
    return Drift("missing_folder", location, None, detail)


def drift_of_unlisted_folder(location: str, error: StorageError) -> Drift:
    """Return the drift of a unit whose folder cannot be listed, so that it is unknown which files are in it."""
    detail = f"its files cannot be listed, so nothing of them is known: {error}; see that the job may list it"
    return Drift("unlisted_folder", location, None, detail)


def drift_of_away(location: str, home: str) -> Drift:
    """Return the drift of a unit that a run has taken away from its home, to which it is to be brought back."""
    return Drift(AWAY, location, None, f"its home, where jobs look for it by path, is {home}")


def drift_of_summary(path: str, *, above: bool = False) -> Drift:
    """Return the drift of a summary of footers beside files with encrypted columns.

    Args:
        path: its path.
        above: it is above the table's partitions, where no run replaces it.
    """
    fate = "no run replaces it above partitions: delete it, once no reader uses it" if above else "no new file has it"
    detail = f"a summary of footers, with statistics of the encrypted columns in plaintext; {fate}"
    return Drift("summary_file", path, None, detail)


def drift_in_short(drift: Iterable[Drift]) -> tuple[str, ...]:
    """Return one line for each kind of drift: the number of files, the columns, and the first few files."""
    by_kind: dict[str, list[Drift]] = {}
    for difference in drift:
        by_kind.setdefault(difference.kind, []).append(difference)
    return tuple(_describe_kind(kind, found) for kind, found in by_kind.items())


def _describe_kind(kind: str, found: list[Drift]) -> str:
    files = list(dict.fromkeys(difference.file for difference in found))
    columns = list(dict.fromkeys(difference.column for difference in found if difference.column))
    where = f" in {_name_some(columns)}" if columns else ""
    count = f"{len(files):,} {'file' if len(files) == 1 else 'files'}"
    return f"{kind}: {count}{where}: {found[0].detail}: {_name_some(files)}"


def _name_some(texts: list[str]) -> str:
    more = f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


TellShredded: TypeAlias = Callable[[Collection[str]], Collection[str]]
"""Returns which of some master keys were shredded, by an authentic record; never keys that are merely missing."""


def tell_none(_: Collection[str]) -> Collection[str]:
    """Return no key; for callers that do not check whether keys were shredded."""
    return ()


def find_dark(summary: FileSummary, tell_shredded: TellShredded) -> dict[Path, str]:
    """Return a file's dark columns, with their master keys.

    Args:
        summary: the file's footer; a column under the footer's key is not dark, since the footer was opened.
        tell_shredded: returns which keys were shredded.
    """
    named = {column.key_id for column in (summary.columns or {}).values() if column.key_id is not None}
    return columns_under(summary, tell_shredded(named)) if named else {}


def find_dark_drift(files: Iterable[ScannedFile]) -> Iterator[Drift]:
    """Yield dark columns as differences from the plan, for a run that replaces them by nulls."""
    for file in files:
        for path, key_id in sorted(file.dark.items()):
            detail = f"under the shredded key {key_id!r}, to be replaced by nulls"
            yield Drift("dark", file.path, join_dotted(path), detail, key_id)


def keeps_dark(file_format: FileFormat, action: str, drift: Iterable[Drift]) -> bool:
    """Return whether an action on a file keeps its dark columns unchanged, or purges them.

    Args:
        file_format: the file's format.
        action: the action, as named in reports.
        drift: the file's drift.
    """
    if action in ("re-wrap", "purge"):
        return True
    return FORMATS[file_format].carries_dark and not any(difference.kind == "aad_mismatch" for difference in drift)


def describe_dark(dark: Mapping[Path, str]) -> str:
    """Return dark columns as text for messages, each with its key."""
    return ", ".join(f"{join_dotted(path)} (key {key_id!r})" for path, key_id in sorted(dark.items()))


def refuse_dark(file: str, dark: Mapping[Path, str], doing: str, advice: str) -> None:
    """Refuse an operation on a file that has dark columns.

    Args:
        file: its path.
        dark: its dark columns; if empty, nothing is refused.
        doing: the operation, as the subject of the message's sentence.
        advice: what the operator can do instead.

    Raises:
        UnsupportedFileError: there are dark columns; the message names them and their keys.
    """
    if dark:
        raise UnsupportedFileError(
            f"{file}: {doing} would need the keys of columns that were shredded: {describe_dark(dark)}; {advice}; "
            "nothing was changed"
        )


OLD_VERSION: DriftKind = "old_version"
OTHER_KEK: DriftKind = "other_kek"
KINDS: tuple[DriftKind, ...] = (OLD_VERSION, OTHER_KEK)
_TAKES_PART = (*KINDS, "wrong_key", "external_material", "unreadable", *OF_FOLDERS, UNKNOWN)
"""Kinds of drift with which a unit may still be rewrapped, or for which another check refuses it."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of one master key, for one table.

    Attributes:
        key_id: the master key.
        version: the lowest version of it that may wrap keys.
        wrapping: the wrapping of the table's KEK under it; None if there is no KEK yet, so that every file under it
            has to be rewrapped.
        predecessor: another master key, which must no longer wrap any key; None for a new version of one key.
    """

    key_id: str
    version: int
    wrapping: Wrapping | None
    predecessor: str | None = None

    def drift_of(self, summary: FileSummary, found: Iterable[Drift]) -> tuple[Drift, ...]:
        """Return a file's differences from its plan, and from what the rotation requires.

        Args:
            summary: the file's footer.
            found: its differences from the plan.
        """
        drift = tuple(found)
        stale = [wrapping for wrapping in summary.wrappings if self._is_stale(wrapping)]
        if not stale:
            return drift
        bound = not FORMATS[summary.format].authenticates or summary.aad_prefix is not None
        only_keys = bound and all(difference.only_keys for difference in drift)
        oldest = min(stale)
        return (*drift, replace(self._describe(summary.path, oldest, len(stale)), only_keys=only_keys))

    def with_keks(self, keks: Iterable[WrappedKek]) -> Rotation:
        """Return the rotation for files wrapped by these KEKs, of which there is one for each master key."""
        wrappings = {kek.master_key_id: wrapping_of_kek(kek.master_key_id, kek.kek_id, kek.wrapped_kek) for kek in keks}
        return replace(self, wrapping=wrappings.get(self.key_id, self.wrapping))

    def _is_stale(self, wrapping: Wrapping) -> bool:
        """Return whether the table's KEK has to replace what a master key wrapped.

        A later version counts too, as what another process wrote after this rotation looked: each text besides the
        table's KEK costs a reader a call.  A rewritten file has the KEK alone, so it is never stale again.
        """
        if self.predecessor is not None and wrapping.key_id == self.predecessor:
            return True
        return wrapping.key_id == self.key_id and wrapping != self.wrapping

    def _describe(self, file: str, oldest: Wrapping, count: int) -> Drift:
        if oldest.key_id == self.predecessor:
            return Drift(OTHER_KEK, file, None, f"under {oldest.key_id!r}, not {self.key_id!r}", oldest.key_id)
        if 0 < oldest.version < self.version:
            detail = f"under version {oldest.version} of {self.key_id!r}, not {self.version}"
            return Drift(OLD_VERSION, file, None, detail, self.key_id)
        wrapped = "a key that is" if count == 1 else f"{count} keys that are"
        detail = f"under {self.key_id!r} by {wrapped} not the table's KEK of version {self.version}"
        return Drift(OTHER_KEK, file, None, detail, self.key_id)


def select_drift(drift: tuple[Drift, ...]) -> tuple[Drift, ...]:
    """Return all differences of a unit if a rotation concerns it, else none.

    A rotation is not a backfill: a unit without keys to rewrap is skipped, whatever else differs there.  An unreadable
    file may be under the key, so it counts.
    """
    concerned = any(difference.kind in (*KINDS, "unreadable") for difference in drift)
    return drift if concerned else ()


def refuse_other_drift(unit: str, drift: Iterable[Drift], rotation: Rotation) -> None:
    """Refuse to rotate keys of a unit in which more differs than the keys that wrap its data keys.

    To re-encrypt files, or to give a file of another table this one's identity, the operator must run a backfill.

    Raises:
        VerificationError: there is another difference; the message names it, the file, and what to do first.
    """
    for difference in drift:
        if difference.kind not in _TAKES_PART:
            raise VerificationError(
                f"{unit}: {difference.file}: {difference.column or 'the file'}: {difference.kind}: "
                f"{difference.detail}; a rotation of {rotation.key_id!r} wraps keys anew and changes nothing else; "
                "bring the unit to its plan with `sparkcrypt backfill` first"
            )
