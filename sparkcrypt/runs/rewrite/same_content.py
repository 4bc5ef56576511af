"""Comparison of two folders' decrypted content: file by file if their names match, else by all rows.

This is slower than the comparison by which engines prove what they write, since one process reads every page.  It is
used for files that a crash, or a restored state directory, left without a proof.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from sparkcrypt.errors import SparkcryptError, VerificationError
from sparkcrypt.files.format import FORMATS
from sparkcrypt.files.parquet import FileSummary, verify_file
from sparkcrypt.files.proof import ContentProof, RewrapProof
from sparkcrypt.ledger.audit.evidence import Proof
from sparkcrypt.ledger.unit import Folder, Unit, by_place
from sparkcrypt.runs.rewrite.context import RunContext
from sparkcrypt.runs.rewrite.engine import describe_staged
from sparkcrypt.runs.rewrite.file_orders import new_name
from sparkcrypt.runs.rewrite.spark_engine import SparkStager
from sparkcrypt.runs.table.difference import find_dark
from sparkcrypt.runs.table.footers import DriverFooters, RetrieveKey, own_keys, summaries_of
from sparkcrypt.schema import Path

_FILTERS = "bloom_filters"
"""A part of ORC files that a rewrite omits for columns that are encrypted then, which nothing tells afterwards."""

Summaries = Mapping[str, FileSummary]


def compare_content(run: RunContext, sources: Unit, targets: Unit, renamed_by: str | None) -> tuple[Proof, Summaries]:
    """Prove that the files of two folders have the same content, and that those of the second authenticate.

    Args:
        run: the run's context, whose keys open the files.
        sources: the old files, in their present folder.
        targets: the new files; if each old file has a new one, further files are later writes and are ignored.
        renamed_by: the id of the run if it gave files new names; None if they kept their names.

    Returns:
        The proof, and the footers of the sources.

    Raises:
        SparkcryptError: the content differs, or cannot be read.
    """
    keys = own_keys(run.table.policy.key_service)
    before = _summaries(run, sources, keys)
    pairs = _pair_files(sources, targets, renamed_by)
    if pairs is None and not FORMATS[run.table.target.format].rewritten_by_rows:
        raise VerificationError(f"{targets.location}: lacks files that were made of those in {sources.location}")
    if pairs is None:
        return _compare_rows(run, sources, targets), before
    kept_folders = _keep_files(targets, pairs)
    after = _summaries(run, targets.relocate(targets.location, kept_folders), run.fresh_keys)
    dark = {target: find_dark(after[target], run.table.trust.shredded.select) for target in pairs}
    purged = {
        target: known for target, source in pairs.items() if (known := _find_purged(run, before[source], after[target]))
    }
    weak = [
        _compare_kept(run, source, target, keys, dark[target])
        if dark[target] and not FORMATS[after[target].format].carries_dark
        else _compare_file(run, source, after[target], keys, dark[target], purged.get(target, {}))
        for target, source in pairs.items()
    ]
    staged = describe_staged(kept_folders, after, chain.from_iterable(weak))
    return Proof(staged, staged.rows, pairs=pairs, carried=dark, purged=purged), before


def _compare_rows(run: RunContext, sources: Unit, targets: Unit) -> Proof:
    after = _summaries(run, targets, run.fresh_keys)
    weak: list[str] = []
    for file in targets.files:
        with run.table.files.open(file.path) as stream:
            weak.extend(verify_file(stream, retrieve_key=run.fresh_keys).not_authenticated)
    stager = SparkStager(run.table)
    digests, found = stager.digest(sources), stager.digest(targets)
    if digests != found:
        counts = [{folder: digest.rows for folder, digest in some.items()} for some in (digests, found)]
        raise VerificationError(f"their rows differ, {counts[0]} and {counts[1]} by folder, or differ in a value")
    count = sum(digest.rows for digest in digests.values())
    return Proof(describe_staged(targets.folders, after, weak), count, row_digests=digests)


def _pair_files(sources: Unit, targets: Unit, renamed_by: str | None) -> dict[str, str] | None:
    """Return new file -> old file, by name; None if an old file has no new one, so rows must have been rewritten."""
    now = by_place(targets.location, targets.folders)
    pairs: dict[str, str] = {}
    for place, file in by_place(sources.location, sources.folders).items():
        folder, _, name = place.rpartition("/")
        made = now.get(f"{folder}/{new_name(name, renamed_by)}".lstrip("/"))
        if made is None:
            return None
        pairs[made.path] = file.path
    return pairs


def _keep_files(unit: Unit, paths: Mapping[str, str]) -> tuple[Folder, ...]:
    kept = (
        Folder(folder.relative, tuple(file for file in folder.files if file.path in paths)) for folder in unit.folders
    )
    return tuple(folder for folder in kept if folder.files)


def _find_purged(run: RunContext, before: FileSummary, after: FileSummary) -> dict[Path, str]:
    """Return the columns that are under shredded keys in the old file and nulls in the new one, with those keys."""
    dark = find_dark(before, run.table.trust.shredded.select)
    return {path: key_id for path, key_id in dark.items() if after.purged.get(path) == key_id}


def _compare_file(
    run: RunContext,
    source: str,
    target: FileSummary,
    keys: RetrieveKey,
    dark: Collection[Path],
    purged: Collection[Path],
) -> tuple[str, ...]:
    """Check that two files have the same content for readers with the keys; return what is not authenticated.

    Purged columns must be nulls, and dark columns that an ORC file keeps equal byte by byte.  Parts are not compared
    of which a rewrite omits what reveals encrypted columns.
    """
    file_format = FORMATS[target.format]
    proof = ContentProof(target.format, dark, purged)
    with run.table.files.open(source) as stream:
        proof.read_source(stream, keys, will_encrypt=())
    redacts = target.footer == "plaintext_signed" or not file_format.authenticates
    left_out = file_format.list_left_out(redacts=redacts, purges=bool(purged))
    if not file_format.authenticates:
        left_out = (*left_out, _FILTERS)
    with run.table.files.open(target.path) as stream:
        return proof.compare(stream, run.fresh_keys, left_out).not_authenticated


def _compare_kept(
    run: RunContext, source: str, target: str, keys: RetrieveKey, dark: Collection[Path]
) -> tuple[str, ...]:
    """Check that a file with dark columns equals its source except for the key metadata of its other columns."""
    with run.table.files.open(source) as old, run.table.files.open(target) as new:
        RewrapProof(old, keys, dark).compare(target, new, run.fresh_keys)
    return ("pages: only the footer and one module of each key were opened",)


def _summaries(run: RunContext, unit: Unit, keys: RetrieveKey) -> Summaries:
    found = DriverFooters(run.table.files, keys).read(unit.files)
    for path, facts in found.items():
        if isinstance(facts, SparkcryptError):
            raise VerificationError(f"{path}: cannot be read: {facts}") from facts
    return summaries_of(found)
