"""Verifies single files without their table, by their own metadata and the policy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from sparkcrypt.cli.frame.command_context import Workplace
from sparkcrypt.cli.frame.named_files import NamedFile, named_files, policy_keys
from sparkcrypt.decide.identity import check_claims, check_orc_identity
from sparkcrypt.errors import FormatError, KeyNotFoundError, SparkcryptError, VerificationError
from sparkcrypt.files.footers import read_facts
from sparkcrypt.files.orc import inspect_orc, is_orc, verify_orc
from sparkcrypt.files.parquet import RetrieveKey, read_footer, verify_file
from sparkcrypt.ledger.audit.key_audit import ShreddedKeys
from sparkcrypt.paths import full_path
from sparkcrypt.policy.model import Policy
from sparkcrypt.runs.table.difference import find_dark
from sparkcrypt.schema import Path, join_dotted
from sparkcrypt.text import count_of

_NONE: Mapping[Path, str] = MappingProxyType({})


def verify_files(
    workplace: Workplace, paths: tuple[str, ...], policy: Policy, *, any_key: bool = False
) -> tuple[dict[str, Any], int, str]:
    """Verify files and all data files below folders.

    Args:
        workplace: the command's workplace.
        paths: paths of files and folders.
        policy: defines the key service, the algorithm and the state directory.
        any_key: whether the key service is also asked for keys that only files name.

    Returns:
        The report, the number of files that failed, and the report as text.

    Raises:
        ConfigError: a path does not exist.
        KeyServiceError: a key is denied, or does not exist and is not known to be shredded.
    """
    verifier = _Verifier(workplace, policy, policy_keys(policy, any_key=any_key))
    results = [verifier.verify(file) for file in named_files(workplace, paths)]
    problems = [result for result in results if result["error"] is not None]
    lines = [
        f"{result['file']}: " + (f"FAIL: {result['error']}" if result["error"] else _describe_result(result))
        for result in results
    ]
    plaintext = [result for result in results if _is_plaintext(result)]
    outcome = "failed" if problems else "not encrypted" if plaintext else "verified"
    if plaintext:
        lines.append(
            f"{count_of(len(plaintext), 'file')} of {len(results)} not encrypted: nothing vouches for such files"
        )
    document = {"files": results, "verified": outcome == "verified", "outcome": outcome}
    return document, len(problems), "\n".join(lines)


@dataclass
class _Verifier:
    workplace: Workplace
    policy: Policy
    retrieve: RetrieveKey

    def verify(self, file: NamedFile) -> dict[str, Any]:
        """Verify a file, except columns under shredded keys, and return the result as JSON values."""
        try:
            try:
                return {**self._verify(file), "dark_columns": []}
            except KeyNotFoundError:
                dark = self._find_dark(file)
                if not dark:
                    raise
                dark_columns = [
                    {"column": join_dotted(path), "key_id": key, "why": self._shredded.tombstone(key).to_text()}
                    for path, key in sorted(dark.items())
                ]
                return {**self._verify(file, dark), "dark_columns": dark_columns}
        except (FormatError, VerificationError) as error:
            return {"file": file.path, "error": str(error)}

    @cached_property
    def _shredded(self) -> ShreddedKeys:
        return ShreddedKeys(self.workplace.state_directory(self.policy.run_state), self.policy)

    def _find_dark(self, file: NamedFile) -> Mapping[Path, str]:
        with file.open() as stream:
            found = read_facts(file.path, stream, self.retrieve)
        return _NONE if isinstance(found, SparkcryptError) else find_dark(found.summary, self._select)

    def _select(self, key_ids: Collection[str]) -> Collection[str]:
        return self._shredded.select(key_ids)

    def _verify(self, file: NamedFile, dark: Mapping[Path, str] = _NONE) -> dict[str, Any]:
        with file.open() as stream:
            if is_orc(stream):
                claimed, weak = inspect_orc(stream), None
                if claimed.encrypted:
                    weak = check_orc_identity(claimed.identity, full_path(file.path), table_uuid=None, strict=False)
                found = verify_orc(stream, retrieve_key=self.retrieve, dark=dark).to_dict()
            else:
                footer, weak = read_footer(stream), None
                if footer.mode != "plaintext":
                    place = full_path(file.path)
                    weak = check_claims(self.policy, file.path, footer.aad_prefix, footer.algorithm, place=place)
                found = verify_file(stream, retrieve_key=self.retrieve, dark=dark).to_dict()
        return {**found, "file": file.path, "identity": weak, "error": None}


def _is_plaintext(result: dict[str, Any]) -> bool:
    if result.get("format") == "orc":
        return not result["columns"]
    return result.get("footer") == "plaintext"


def _describe_result(result: dict[str, Any]) -> str:
    dark = (f"column {column['column']} cannot be read: {column['why']}" for column in result["dark_columns"])
    return "; ".join((_describe_content(result), *dark))


def _describe_content(result: dict[str, Any]) -> str:
    if _is_plaintext(result):
        return f"plaintext: not encrypted, so nothing is authenticated; {count_of(result['rows'], 'row')}"
    if result.get("format") == "orc":
        return "; ".join(
            [
                f"decrypts: {count_of(result['decrypted'], 'stream')} of {count_of(len(result['columns']), 'column')}",
                count_of(result["rows"], "row"),
                "ORC authenticates nothing",
                *([f"identity: {result['identity']}"] if result["identity"] else []),
                *result["notes"],
            ]
        )
    amount = f"{count_of(result['modules'], 'module')}, {count_of(result['rows'], 'row')}"
    text = f"authenticated: {result['authenticated']}; {amount}"
    if result["identity"]:
        text += f"; identity: {result['identity']}"
    for what in ("not authenticated", "in clear"):
        found = "; ".join(result[what.replace(" ", "_")])
        text += f"; {what}: {found}" if found else ""
    return text
