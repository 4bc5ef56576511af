"""The evidence in an audit of which old files of a unit became which new ones, identified by keyed digests.

Every engine gives the same form: a list of changes, each from source files to target files.  An engine that rewrites
file by file gives a change for each file; one that reads and writes all rows gives a change for each folder.

A file's digest covers its length and its whole footer: it distinguishes files and costs one small read, but does not
cover the pages of a plaintext file.  The digest of an ORC file, in which nothing is authenticated, covers all of its
bytes.  A digest of the rows, which is equal before and after, identifies the rows.  Both are HMACs under a secret of
the run, so that nobody can test guessed values against them; the secret is stored beside them, wrapped by the master
key that wraps the audit's MAC key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Any, Literal, TypeAlias

from sparkcrypt.errors import FormatError
from sparkcrypt.files.parquet import FileSummary
from sparkcrypt.json_objects import JsonObject
from sparkcrypt.keys.service import KeyService
from sparkcrypt.ledger.unit import Folder
from sparkcrypt.names import FileFormat
from sparkcrypt.paths import comparable_path
from sparkcrypt.policy.key_service import canonical_json
from sparkcrypt.schema import Path, join_dotted
from sparkcrypt.spark.files.hadoop import HadoopFiles
from sparkcrypt.spark.files.listing import SourceFile
from sparkcrypt.spark.tasks.digest import RowsDigest


@dataclass(frozen=True, slots=True)
class StagedUnit:
    """The result of verifying a staged unit."""

    folders: tuple[Folder, ...]
    summaries: Mapping[str, FileSummary]
    total_bytes: int
    rows: int
    not_authenticated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof that staged files are correct, and that their content equals the old files'.

    Attributes:
        unit: the verified staged files.
        rows: the number of rows in them.
        row_digests: folder -> digest of its rows, equal before and after, from an engine that rewrites rows.
        pairs: new file -> old file with the same pages, from an engine that works file by file.
        carried: new file -> its columns under shredded keys, with these, copied byte for byte from the old file.
        purged: new file -> its columns that were replaced by nulls, with the shredded keys that the old file's had.
    """

    unit: StagedUnit
    rows: int
    row_digests: Mapping[str, RowsDigest] = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, Mapping[Path, str]] = field(default_factory=dict)
    purged: Mapping[str, Mapping[Path, str]] = field(default_factory=dict)


SECRET_BYTES = 32
_TRAILER_BYTES = 8
Member: TypeAlias = Literal["dark_columns", "purged_columns"]
_FILE, _ROWS = b"sparkcrypt audit: length and footer\0", b"sparkcrypt audit: rows\0"
_WHOLE = b"sparkcrypt audit: whole file\0"
_OF: Mapping[FileFormat, str] = {"parquet": "length and footer", "orc": "whole file"}
_ORC_MAGIC, _PIECE_BYTES = b"ORC", 1 << 20
_READERS = 4


@dataclass(frozen=True, slots=True)
class DigestSecret:
    """The secret key of one execution's digests; it leaves the process only wrapped."""

    key_id: str
    wrapped: str
    secret: bytes = field(repr=False)

    @classmethod
    def make(cls, service: KeyService, key_id: str) -> DigestSecret:
        """Generate a random secret and wrap it by a master key."""
        secret = secrets.token_bytes(SECRET_BYTES)
        return cls(key_id, service.wrap(key_id, secret), secret)

    def to_dict(self) -> dict[str, str]:
        """Return the wrapped secret as an audit stores it, for those who may use the master key."""
        return {"key_id": self.key_id, "wrapped": self.wrapped}

    def of_file(self, stream: IO[bytes]) -> str:
        """Return the digest of a Parquet file's length and footer, or of a whole ORC file, in hex.

        Raises:
            FormatError: the file is too short for its footer.
        """
        stream.seek(0)
        if stream.read(len(_ORC_MAGIC)) == _ORC_MAGIC:
            return self._digest_all(stream)
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _TRAILER_BYTES))
        trailer = stream.read(_TRAILER_BYTES)
        start = size - _TRAILER_BYTES - int.from_bytes(trailer[:4], "little")
        if start < 0 or len(trailer) < _TRAILER_BYTES:
            raise FormatError("the file is shorter than its footer says; it is no Parquet file, or was cut")
        stream.seek(start)
        return self._make_digest(_FILE + size.to_bytes(8, "little") + stream.read(size - start))

    def _digest_all(self, stream: IO[bytes]) -> str:
        made = hmac.new(self.secret, _WHOLE, hashlib.sha256)
        stream.seek(0)
        while piece := stream.read(_PIECE_BYTES):
            made.update(piece)
        return made.hexdigest()

    def of_rows(self, rows: RowsDigest) -> str:
        """Return the keyed digest of a digest of rows, in hex."""
        return self._make_digest(_ROWS + canonical_json(rows.to_dict()).encode())

    def _make_digest(self, content: bytes) -> str:
        return hmac.new(self.secret, content, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class FileEvidence(JsonObject, json_names={"total_bytes": "bytes"}):
    """One file as an audit describes it."""

    path: str
    total_bytes: int
    modified_ms: int
    rows: int | None
    key_ids: tuple[str, ...]
    digest: str


def files_of(
    files: HadoopFiles, folders: Iterable[Folder], summaries: Mapping[str, FileSummary], secret: DigestSecret
) -> dict[str, list[FileEvidence]]:
    """Return the evidence of files, folder by folder.

    Raises:
        FormatError: a file is neither a Parquet nor an ORC file.
    """

    def read_evidence(file: SourceFile) -> FileEvidence:
        with files.open(file.path) as stream:
            digest = secret.of_file(stream)
        summary = summaries[file.path]
        return FileEvidence(file.path, file.length, file.modified_ms, summary.rows, _key_ids(summary), digest)

    with ThreadPoolExecutor(_READERS) as pool:
        return {folder.relative: list(pool.map(read_evidence, folder.files)) for folder in folders}


def list_evidence(
    files: HadoopFiles, folders: Iterable[Folder], summaries: Mapping[str, FileSummary], secret: DigestSecret
) -> dict[str, Any]:
    """Return the evidence of files that no run has made, as JSON values for an audit.

    Raises:
        FormatError: a file is neither a Parquet nor an ORC file.
    """
    found = files_of(files, folders, summaries, secret)
    changes = [
        {"folder": folder, "sources": [], "targets": [file.to_dict() for file in listed]}
        for folder, listed in found.items()
    ]
    formats = {summary.format for summary in summaries.values()}
    return {"digests": _describe_digests(formats.pop() if formats else "parquet", secret), "changes": changes}


def evidence_of(
    sources: Mapping[str, list[FileEvidence]],
    targets: Mapping[str, list[FileEvidence]],
    proof: Proof,
    secret: DigestSecret,
    file_format: FileFormat = "parquet",
) -> dict[str, Any]:
    """Return the evidence of a unit's files for a journal and an audit, as JSON values.

    Args:
        sources: folder -> its old files.
        targets: folder -> its new files.
        proof: the proof that they are equal.
        secret: the secret of this execution.
        file_format: the format of every file.
    """
    changes = [
        {
            "folder": folder,
            "sources": [file.to_dict() for file in sources[folder]],
            "targets": [file.to_dict() for file in targets.get(folder, [])],
            "rows": {"count": found.rows, "equal": True, "digest": secret.of_rows(found)},
        }
        for folder, found in proof.row_digests.items()
    ]
    old = {comparable_path(file.path): (folder, file) for folder, files in sources.items() for file in files}
    new = {comparable_path(file.path): file for files in targets.values() for file in files}
    for target, source in proof.pairs.items():
        folder, file = old[comparable_path(source)]
        new_file = new[comparable_path(target)]
        changes.append(
            {
                "folder": folder,
                "sources": [file.to_dict()],
                "targets": [new_file.to_dict()],
                "pages": {"equal": True},
                "rows": {"count": new_file.rows, "equal": True},
                **_tell_columns("dark_columns", proof.carried.get(target, {})),
                **_tell_columns("purged_columns", proof.purged.get(target, {})),
            }
        )
    return {"digests": _describe_digests(file_format, secret), "changes": changes}


def _describe_digests(file_format: FileFormat, secret: DigestSecret) -> dict[str, Any]:
    return {"of": _OF[file_format], "by": "HMAC-SHA256", "secret": secret.to_dict()}


def _tell_columns(member: Member, columns: Mapping[Path, str]) -> dict[str, Any]:
    """Return the member of a change that lists its dark, or its purged, columns; empty if there are none."""
    entries = [{"column": join_dotted(path), "key_id": key_id} for path, key_id in sorted(columns.items())]
    return {member: entries} if entries else {}


def list_columns(evidence: Mapping[str, Any], member: Member) -> tuple[dict[str, Any], ...]:
    """Return the dark, or the purged, columns in a unit's evidence, each with the number of its files and their rows.

    Args:
        evidence: from `evidence_of`, or from a journal.
        member: ``dark_columns``, which stayed under shredded keys, or ``purged_columns``, which became nulls.
    """
    files, rows = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for change in evidence.get("changes", ()):
        for entry in change.get(member, ()):
            files[entry["column"], entry["key_id"]] += 1
            rows[entry["column"], entry["key_id"]] += change["rows"]["count"] or 0
    return tuple(
        {"column": column, "key_id": key_id, "files": count, "rows": rows[column, key_id]}
        for (column, key_id), count in sorted(files.items())
    )


def describe_dark_columns(evidence: Mapping[str, Any]) -> tuple[str, ...]:
    """Return notes for the report on a unit's dark and purged columns."""
    stayed = (
        f"column {entry['column']} stayed as it is, under the shredded key {entry['key_id']!r}: it cannot be read"
        for entry in list_columns(evidence, "dark_columns")
    )
    purged = (
        f"column {entry['column']} was replaced by nulls, since its key {entry['key_id']!r} was shredded"
        for entry in list_columns(evidence, "purged_columns")
    )
    return (*stayed, *purged)


def _key_ids(summary: FileSummary) -> tuple[str, ...]:
    columns = (summary.columns or {}).values()
    return tuple(
        sorted({key for key in (summary.footer_key, *(column.key_id for column in columns)) if key is not None})
    )
