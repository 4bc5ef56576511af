"""Advice on the page: the next step after each error, and commands for a run's old files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.runs.passes.html.text import shell_word

AGAIN = "then run the same command again: it goes on where it stopped."
NEXT_STEPS = {
    "ConfigError": f"Correct the policy, option or setting that the message names; {AGAIN}",
    "PlanError": f"Correct the tags or the policy until `sparkcrypt plan` makes a plan of the table; {AGAIN}",
    "PredicateError": "Correct --where as the message says, and run again.",
    "KeyServiceError": f"Look at the key service; {AGAIN}",
    "KeyNotFoundError": f"Restore the key from a backup, or correct its name in the policy; {AGAIN}",
    "KeyRetiredError": f"Bring the versions back (`sparkcrypt keys retire KEY_ID --undo`), and rotate; {AGAIN}",
    "KeyServiceUnavailableError": f"Wait until the key service answers again; {AGAIN}",
    "KeyAccessDeniedError": f"Let the job's credentials use this key; {AGAIN}",
    "BridgeError": f"Let `sparkcrypt doctor` check the jar, its helper and its interpreter; {AGAIN}",
    "FormatError": f"Restore the file from another copy, or write its rows again; {AGAIN}",
    "UnsupportedFileError": "Run again with `--engine spark`, which decodes what cannot be rewritten page by page.",
    "StorageError": f"See that the storage answers and lets the job in; the file itself may be right; {AGAIN}",
    "VerificationError": f"Find out who wrote what the message names before anything else; {AGAIN}",
    "SourceChangedError": "Somebody wrote to it meanwhile, and what they wrote stays. Run the same command again.",
    "RunConflictError": "Wait for the other run, or finish it first (`sparkcrypt backfill status` shows it).",
}
OPEN_PROBLEM = "Decide which rows are right, then close it with `sparkcrypt backfill resolve`."
REFUSED = "Nothing was changed. Remove the reason and run again, or leave the table as it is."
UNKNOWN = f"Do what the message asks for; {AGAIN}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and its purpose."""

    purpose: str
    line: str


def next_step(error: object) -> str:
    """Return the operator's next step after an error of a class."""
    return OPEN_PROBLEM if error == "OpenProblem" else NEXT_STEPS.get(str(error), UNKNOWN)


def commands(table: Mapping[str, Any]) -> tuple[Command, ...]:
    """Return the commands for a table's run; those for old files are omitted for a bare folder."""
    name, run = str(table.get("table") or ""), str(table.get("run_id") or "")
    if not name or not run:
        return ()
    of_table = f"--table {shell_word(name)} --policy policy.yaml"
    audit = table.get("audit") or {}
    head = f"{audit['number']}:{audit['digest']}" if "digest" in audit and "number" in audit else ""
    found = [Command("Show each unit's last step", f"sparkcrypt backfill show {shell_word(run)} --policy policy.yaml")]
    if head:
        line = f"sparkcrypt audit verify {of_table} --head {shell_word(head)}"
        found.append(Command("Prove the audit up to this run", line))
    if table.get("units") and not is_folder(name):
        found += [
            Command("Put the old files back", f"sparkcrypt backfill rollback {shell_word(run)} {of_table}"),
            Command("Delete the old files", f"sparkcrypt backfill expire {of_table} --run {shell_word(run)}"),
        ]
    return tuple(found)


def is_folder(name: str) -> bool:
    """Return whether a run's target is a bare folder, by its name."""
    return "/" in name
