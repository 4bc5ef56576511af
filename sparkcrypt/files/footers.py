"""Reads the footers of many files where the files are, and packs the facts that plans are compared with as JSON."""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from sparkcrypt.errors import (
    FormatError,
    KeyServiceError,
    SparkcryptError,
    StorageError,
    VerificationError,
    error_named,
)
from sparkcrypt.files.format import FORMATS, AnyVerification, format_of, read_orc_footer
from sparkcrypt.files.open_places import Settings, place
from sparkcrypt.files.parquet import (
    ColumnSummary,
    FileSummary,
    Footer,
    KnownColumns,
    RetrieveKey,
    summarise,
)
from sparkcrypt.files.parquet.file.footer import footer_of
from sparkcrypt.files.parquet.file.modules import FileCiphers
from sparkcrypt.files.parquet.summary import codecs_of, columns_under
from sparkcrypt.files.parquet.verify.file import open_every_key, verify_opened
from sparkcrypt.files.source import Source, open_source
from sparkcrypt.keys.material import Wrapping
from sparkcrypt.keys.opened import OpenedKeyService
from sparkcrypt.log_lines import LogSettings
from sparkcrypt.names import SPARK_SCHEMA
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.schema import Path
from sparkcrypt.tags.field_metadata import ColumnLineage, lineage_of_schema

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_LOG = logging.getLogger(__name__)
PACKED_SCHEMA = "packed string"
Part = TypeVar("Part")
Depth: TypeAlias = Literal["footer", "keys", "modules"]
"""What is opened of a file: its footer, the key of each column too, or every module of an encrypted file."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """What came of authenticating every module of an encrypted file, or of decrypting every stream of an ORC file.

    Attributes:
        error: why it failed; None if it did not.
        partial: whether something of the file is not authenticated.
        in_clear: what a plaintext footer says of the values of encrypted columns.
        dark: columns that were left out, since their keys were shredded -> those keys.
    """

    error: SparkcryptError | None = None
    partial: bool = True
    in_clear: tuple[str, ...] = ()
    dark: Mapping[Path, str] = field(default_factory=dict)

    def to_list(self) -> list[Any]:
        """Return it as JSON values."""
        error = None if self.error is None else [type(self.error).__name__, str(self.error)]
        return [error, self.partial, self.in_clear, [[path, key] for path, key in self.dark.items()]]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Authentication:
        """Return it from the values of `to_list`."""
        error, partial, in_clear, dark = values
        named = None if error is None else error_named(error[0])(error[1])
        return cls(named, partial, tuple(in_clear), {tuple(path): key for path, key in dark})


@dataclass(frozen=True, slots=True)
class FooterFacts:
    """The summary of a file's footer, the number of column chunks with each codec, and the lineage of columns.

    For an ORC file ``codecs`` counts stripes, and ``lineage`` is empty.  ``proof`` is None but for an encrypted file
    that was read to the depth ``modules``.
    """

    summary: FileSummary
    codecs: Mapping[str, int]
    lineage: tuple[ColumnLineage, ...] = ()
    proof: Authentication | None = None


Found: TypeAlias = "FooterFacts | SparkcryptError"


def read_facts(
    path: str,
    source: Source,
    retrieve_key: RetrieveKey,
    *,
    depth: Depth = "footer",
    shredded: Collection[str] = (),
) -> Found:
    """Read the footer of a Parquet or ORC file; if it cannot be read, the error is returned, not raised.

    Args:
        path: the file's name in what is returned.
        source: the file to open.
        retrieve_key: returns data keys, used to decrypt and authenticate the footer.
        depth: ``keys`` opens each column's own key too, and authenticates what it protects in the footer, whose failure
            is the error; ``modules`` authenticates the whole file, whose failure is that of ``proof``.
        shredded: master keys that no longer exist; columns under them are left out of what ``depth`` opens.
    """
    try:
        with open_source(source) as file:
            ciphers = FileCiphers(file.name, retrieve_key)
            try:
                footer = footer_of(file, ciphers)
            except FormatError:
                if format_of(source).name != "orc":
                    raise
                return _read_orc(path, source, retrieve_key, depth, shredded)
            summary = replace(summarise(footer), path=path)
            dark, proof = columns_under(summary, shredded), None
            if depth == "keys":
                open_every_key(file, footer, ciphers, dark)
            elif depth == "modules" and summary.encrypted:
                verify = partial(verify_opened, file, footer, ciphers, KnownColumns(dark))
                proof = _authenticate(verify, dark)
            return FooterFacts(summary, codecs_of(footer), _read_lineage(footer), proof)
    except SparkcryptError as error:
        return error
    except OSError as error:
        return StorageError(f"{path}: {error}")
    except ImportError:
        raise  # a fault of the machine, not of the file
    except Exception as error:  # noqa: BLE001 - an error in one file must not hide the facts of the others
        _LOG.error("%s: unforeseen error", path, exc_info=error)
        return SparkcryptError(f"{path}: {type(error).__name__}: {error}")


def _read_orc(
    path: str, source: Source, retrieve_key: RetrieveKey, depth: Depth, shredded: Collection[str]
) -> FooterFacts:
    keys = retrieve_key if depth == "keys" else None
    summary, codec = read_orc_footer(path, source, keys, shredded=shredded)
    proof = None
    if depth == "modules" and summary.encrypted:
        dark = columns_under(summary, shredded)
        verify = partial(
            FORMATS["orc"].verify,
            source,
            retrieve_key=retrieve_key,
            digest_key=os.urandom(32),
            known=KnownColumns(dark),
        )
        proof = _authenticate(verify, dark)
    return FooterFacts(summary, {codec: summary.row_groups or 0}, proof=proof)


def _authenticate(verify: Callable[[], AnyVerification], dark: Mapping[Path, str]) -> Authentication:
    """Verify a file; an error that speaks of the file or of its keys is part of the result, any other is raised."""
    try:
        found = verify()
    except (FormatError, VerificationError, KeyServiceError) as error:
        return Authentication(error, dark=dark)
    return Authentication(None, found.authenticated != "all", found.in_clear, dark)


def _read_lineage(footer: Footer) -> tuple[ColumnLineage, ...]:
    entries = (footer.metadata and footer.metadata.key_value_metadata) or ()
    schema = next((entry.value for entry in entries if entry.key == SPARK_SCHEMA), None)
    return lineage_of_schema(schema) if schema else ()


def pack(found: Mapping[str, Found]) -> str:
    """Return facts as JSON; what several files have in common is stored once."""
    shapes: dict[str, int] = {}
    wrappings: dict[Wrapping, int] = {}
    files: list[Any] = []
    errors: dict[str, list[str]] = {}
    proofs = {
        path: item.proof.to_list() for path, item in found.items() if isinstance(item, FooterFacts) and item.proof
    }
    for path, item in found.items():
        if isinstance(item, SparkcryptError):
            errors[path] = [type(item).__name__, str(item)]
            continue
        summary, shape = item.summary, json.dumps(_shape(item), ensure_ascii=True)
        own = (summary.aad_prefix, summary.aad_file_unique)
        place_of_shape = shapes.setdefault(shape, len(shapes))
        wrapped = [wrappings.setdefault(wrapping, len(wrappings)) for wrapping in summary.wrappings]
        files.append([path, place_of_shape, *map(_text, own), summary.rows, summary.row_groups, wrapped])
    return json.dumps(
        {
            "shapes": [json.loads(shape) for shape in shapes],
            "wrappings": [wrapping.to_list() for wrapping in wrappings],
            "files": files,
            "errors": errors,
            **({"proofs": proofs} if proofs else {}),
        }
    )


def unpack(packed: str) -> dict[str, Found]:
    """Return the facts that `pack` packed: path -> facts, or an error of its original class."""
    values = json.loads(packed)
    shapes = [_facts_of_shape(value) for value in values["shapes"]]
    wrappings = [Wrapping(*value) for value in values["wrappings"]]
    found: dict[str, Found] = {}
    proofs = {path: Authentication.from_list(proof) for path, proof in values.get("proofs", {}).items()}
    for path, shape, prefix, unique, rows, groups, wrapped in values["files"]:
        summary = replace(
            shapes[shape].summary,
            path=path,
            aad_prefix=_bytes(prefix),
            aad_file_unique=_bytes(unique),
            rows=rows,
            row_groups=groups,
            wrappings=tuple(wrappings[place] for place in wrapped),
        )
        found[path] = FooterFacts(summary, shapes[shape].codecs, shapes[shape].lineage, proofs.get(path))
    return found | {path: error_named(kind)(message) for path, (kind, message) in values["errors"].items()}


def run_parts(
    parts: Sequence[Part], work: Callable[[Part], Iterable[str]], log: LogSettings, batches: Iterable[RecordBatch]
) -> Iterator[RecordBatch]:
    """Yield the texts that a task's work on its parts gives, for ``mapInArrow`` over a column ``id``.

    Args:
        parts: the parts of all tasks.
        work: called with a part; with the parts it travels to executors, so both are plain values and functions of
            modules.
        log: of the driver, so that lines of the task's log name its run.
        batches: indices into ``parts``.
    """
    import pyarrow as pa

    log.apply()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for text in work(parts[number]):
                yield pa.RecordBatch.from_pydict({"packed": [text]})


def read_packed(
    key_service: tuple[str, str], settings: Settings, depth: Depth, shredded: Collection[str], paths: Iterable[str]
) -> Iterator[str]:
    """Yield the packed facts of files.

    Args:
        key_service: its configuration, as canonical JSON, and who asks: keys that this process has opened for one
            reader are used for no other.
        settings: how to reach the files.
        depth: as in `read_facts`.
        shredded: as in `read_facts`.
        paths: the files.
    """
    try:
        retrieve = _open_keys(*key_service)
    except SparkcryptError as error:
        yield pack(dict.fromkeys(paths, error))
        return
    yield pack({path: _read_placed(path, settings, retrieve, depth, shredded) for path in paths})


@lru_cache(maxsize=4)
def _open_keys(key_service: str, reader: str) -> RetrieveKey:
    """Return what opens the keys of all tasks that this process carries out for a reader."""
    opener = OpenedKeyService(KeyServiceConfig.from_dict(json.loads(key_service))).opener
    return lambda request: opener.open_metadata(request.key_metadata)


def _read_placed(
    path: str, settings: Settings, retrieve_key: RetrieveKey, depth: Depth, shredded: Collection[str]
) -> Found:
    try:
        where = place(path, settings)
    except SparkcryptError as error:
        return error
    return read_facts(path, where, retrieve_key, depth=depth, shredded=shredded)


def _facts_of_shape(values: list[Any]) -> FooterFacts:
    """Return the facts that files written by one job have in common, as `_shape` gave them."""
    footer, algorithm, footer_key, supply, columns, codecs, lineage, purged, file_format, external, fields = values
    summary = FileSummary(
        path="",
        footer=footer,
        algorithm=algorithm,
        footer_key=footer_key,
        aad_prefix=None,
        supply_aad_prefix=supply,
        aad_file_unique=None,
        rows=None,
        row_groups=None,
        columns=None if columns is None else {tuple(path): ColumnSummary(known, key) for path, known, key in columns},
        purged={tuple(path): key for path, key in purged},
        format=file_format,
        external_material=external,
        fields=fields,
    )
    return FooterFacts(summary, codecs, tuple(map(ColumnLineage.from_list, lineage)))


def _shape(facts: FooterFacts) -> list[Any]:
    summary = facts.summary
    columns = summary.columns
    listed = None if columns is None else [[list(path), item.encrypted, item.key_id] for path, item in columns.items()]
    return [
        summary.footer,
        summary.algorithm,
        summary.footer_key,
        summary.supply_aad_prefix,
        listed,
        dict(sorted(facts.codecs.items())),
        [lineage.to_list() for lineage in facts.lineage],
        [[list(path), key] for path, key in summary.purged.items()],
        summary.format,
        summary.external_material,
        summary.fields,
    ]


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
