"""Write the pages of docs/ that list what the code defines: commands, fields of policies, properties, and errors.

Run it after one of these has changed: `python -m tools.write_reference_pages`; with `--check` it tells which are old.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click

from sparkcrypt import errors, names
from sparkcrypt.policy.key_service import KEY_SERVICE_OPTIONS
from sparkcrypt.policy.model import AccessLogRule, DeclassifyRule, Policy, TableRule, TagRule
from tools import write_commands_page

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = "It is written by `python -m tools.write_reference_pages`."

POLICY_HEAD = f"""# Fields of policies

This page lists every field of a policy file, as the code reads it. {WRITTEN}
The [examples](../conf/README.md) show them together. A policy is read strictly: another key, or a value that is not
allowed, is an error with its line. Of the allowed values the bold one counts where the field is left out. Durations are
a number and one of `s`, `m`, `h`, `d`, `w`, such as `400d`. Relative paths stand against the folder of the policy file.
"""
SECTIONS: tuple[tuple[str, str, type[Any]], ...] = (
    ("The policy", "What stands at the top of the file. `a.b` is `b` of the mapping `a`.", Policy),
    (
        "A tag",
        "What `tags` has below a tag's name, in order of precedence: of several tags of a column the first counts. "
        "`plaintext` in place of the mapping is a tag that encrypts nothing.",
        TagRule,
    ),
    ("A table", "What `tables` has below a table's name, such as `sales.customers`; all is optional.", TableRule),
    ("The access log", "What `access_log` has.", AccessLogRule),
    ("Removal of tags", "What `declassify` has.", DeclassifyRule),
)
FIELDS: dict[type[Any], dict[str, str]] = {
    Policy: {
        "version": "the version of the format: 1",
        "key_service": "which service has the master keys; its options are below",
        "algorithm": "the algorithm of new files; only `AES_GCM_V1` authenticates pages",
        "data_key_bits": "the length of the keys of files and columns",
        "footer.key": "the master key of footers, and of everything that no tag encrypts in an encrypted file",
        "footer.mode": "whether footers are encrypted, or readable and signed",
        "untagged": "what happens to columns without tags in a file with tagged ones",
        "run_state": "the folder or URI in which runs keep journals, locks and audits",
        "tags": "name of a tag -> its rule, in order of precedence",
        "tables": "name of a table -> its rule",
        "algorithm_history": "algorithms of earlier policies that readers still accept",
        "footer.history": "footer keys of earlier policies that readers still accept",
        "audit.key": "the master key of the audits of runs, which no reader may use; without it, the footer's",
        "audit.history": "audit keys of earlier policies",
        "old_files.grace": "how long old files stay for running readers before `expire` deletes them; `0s` moves them "
        "out of reach at once; 24h if it is not set",
        "ask_for_access": "a text for readers who are denied a key",
        "safe_aggregates": "the aggregates whose results have no tags; `count` if it is not set",
        "index.location": "where stores for data skipping are",
        "sinks": "what happens to tagged columns that are written to sinks that encrypt nothing",
        "inherit": "what happens to tagged values in columns of a table that lack these tags",
        "bucketing": "what happens to writes into tables that are bucketed by a tagged column",
        "access_log": "where readers write access events; none are written without it",
        "declassify": "who may remove tags from values; nobody without it",
        "rotate_every": "the age of a master key's newest version at which its rotation is due",
        "strict_projection": "whether it is an error to name a column that would be null because its key is denied",
        "formats": "the formats whose files runs encrypt: `[parquet]`, or `[parquet, orc]`",
        "aliases": "other names of a place -> the name that counts",
    },
    TagRule: {
        "key": "the master key, or a template such as `contact-{day:%Y-%m}`; null, beside a history, is plaintext",
        "dates": "how the dates of a template's partition columns are written",
        "retention": "how long the data of a dated template are kept, before `shred` may delete their key",
        "history": "keys of earlier policies, or `plaintext`, that readers accept until a backfill has replaced them",
        "on_denied": "what a reader gets whose key is denied: `mask` gives nulls unless the session asks for an error, "
        "`error` is an error whatever it asks for",
        "sinks": "as `sinks` of the policy, for the columns of this tag",
        "rotate_every": "as `rotate_every` of the policy, for this tag's key",
        "create_keys": "whether the first write into a bucket makes its key",
        "late_data": "the key of rows that come when the key of their bucket is gone; without it they are refused",
    },
    TableRule: {
        "require_encryption": "whether readers refuse its files, and writers its columns, in plaintext",
        "enforce": "whether its writes are encrypted; `false` only observes",
        "footer_mode": "as `footer.mode`, for its files",
        "location": "the folder of a dataset that no catalog has, so that the rule applies to it",
        "tags": "path of a column -> its tags, besides those of its schema",
        "inherit": "as `inherit` of the policy, for this table",
    },
    AccessLogRule: {
        "location": "a folder that exists under this path on every machine that reads",
        "required": "whether a key is handed out only after its event is on the disk",
    },
    DeclassifyRule: {
        "principals": "who may remove tags from values",
        "tags": "the tags that they may remove",
    },
}
"""What each field means, by its key in a policy file."""
BESIDE = {Policy: {"version": ("required", "1")}, TagRule: {"key": ("required", ""), "dates": ("", "")}}
"""Fields that are read without a field of the class that holds the others: whether required, and what is allowed."""

PROPERTIES_HEAD = f"""# Properties of Spark and Hadoop

This page lists every property, mark and variable that the package and its jar read. {WRITTEN}
`sparkcrypt conf --policy policy.yaml` prints the properties of a launch; people set those of the first table alone.
"""
SETTINGS = {
    "spark.sparkcrypt.helper.deadline.seconds": "Launch conf only: how long a helper process may take for one answer; "
    "60 by default.",
    "spark.sparkcrypt.probe.path": "Launch conf: a folder that executors may write to, for the probe of `configure`; "
    "`/tmp` on the default file system if it is not set.",
}
"""Settings that sparkcrypt/names.py does not have, since one module alone reads each."""
OTHERS = {
    "COMMIT_PROTOCOL": "Spark's property for the commit protocol of writes, which gives writers their table.",
    "STREAM_COMMIT_PROTOCOL": "The same of streams.",
    "CRYPTO_FACTORY": "Parquet's property for the crypto factory: with the one of the jar, writes encrypt by tags.",
    "KMS_CLIENT": "Parquet's property for the client of the key service.",
    "ORC_KEY_PROVIDER": "ORC's property for its keys.",
    "SUMMARY_LEVEL": "Parquet's property for summaries of footers, which are in plaintext and so are turned off.",
    "SUMMARY_ENABLED": "The same, under its earlier name.",
    "CACHE_LIFETIME": "Parquet's property for how long opened keys are kept; a session may only shorten it.",
    "TABLE_UUID": "The table's UUID, to which its files are bound.",
    "REQUIRE_ENCRYPTION": "Table property: `true` if readers refuse the table's files in plaintext.",
}
"""What names of sparkcrypt/names.py mean that have no text there."""
VARIABLES = {
    "SPARKCRYPT_POLICY": "The policy file of all commands, where `--policy` names none.",
    "SPARKCRYPT_JAR": "The jar to use in place of the one in the package.",
    "SPARKCRYPT_TRACEBACK": "`1`: a command that fails also prints where it happened.",
    "SPARKCRYPT_KEY_LOG": "A file for a log of the calls to the key service "
    "([operations.md](operations.md#which-keys-were-asked-for)).",
    "SPARKCRYPT_ALLOW_HTTP": "`1`: services on other machines may be reached over plain http, outside of Spark.",
    "SPARKCRYPT_NO_ARCHIVE": "Not empty: JVMs of commands start as Spark starts them ([deploy.md](deploy.md)).",
    "SPARKCRYPT_LOG": "`json`: what commands write to stderr is one JSON object a line "
    "([operations.md](operations.md)).",
    "SPARKCRYPT_ENVIRONMENT_FILE": "Set by the jar for its helpers: the file of `spark.sparkcrypt.helper.environment`.",
}

ERRORS_HEAD = f"""# Errors

This page lists the classes of `sparkcrypt.errors`, which commands, jobs and functions raise. {WRITTEN}
Each message says what happened, to which thing, what is allowed, and the next step; this page says what a class means.
A class is also an error of the one that it belongs to, so `except sparkcrypt.errors.KeyServiceError` takes every error
of key services. [exit-codes.md](exit-codes.md) lists the codes of commands.
"""
NEXT_STEPS = {
    "SparkcryptError": "read the message; the classes below say more",
    "ConfigError": "correct the policy, option or variable that the message names; `sparkcrypt doctor` checks a set-up",
    "PlanError": "compare tags, policy and schema: `sparkcrypt plan` shows each column with its reason",
    "PredicateError": "give `--where` a condition on partition columns alone",
    "KeyServiceError": "see that the key service works: `sparkcrypt doctor` calls it",
    "KeyNotFoundError": "if the key never existed, make it by `sparkcrypt keys create`; if it is lost, restore it "
    "([runbooks.md](runbooks.md#a-key-is-lost))",
    "KeyRetiredError": "bring the version back in the key service, or read a file that was rotated",
    "KeyServiceUnavailableError": "try again; then [runbooks.md](runbooks.md#the-key-service-is-down)",
    "KeyAccessDeniedError": "ask the owner of the key for access, or give the credentials that have it",
    "BridgeError": "see that jar and interpreter are there on driver and executors: `sparkcrypt doctor`",
    "FormatError": "compare the file with a copy; `sparkcrypt inspect` shows what can be read of it",
    "UnsupportedFileError": "use `--engine spark`, or do what the message says",
    "StorageError": "see that the storage answers and grants access, then run the same again",
    "VerificationError": "read what differs, then [runbooks.md](runbooks.md); nothing was taken over",
    "SourceChangedError": "run the same command again",
    "RunConflictError": "wait for the other run, or look at it: `sparkcrypt backfill list`",
}
"""What to do about each class."""


def render_policy() -> str:
    """Return the page of the fields of policies.

    Raises:
        ValueError: a field has no meaning here, or a meaning no field.
    """
    parts = [POLICY_HEAD]
    for heading, about, kind in SECTIONS:
        parts += [f"## {heading}\n\n{about}\n", "| field | required | allowed | meaning |", "|---|---|---|---|"]
        found = {**BESIDE.get(kind, {}), **dict(_fields_of(kind))}
        _require_same(f"fields of {kind.__name__}", found, FIELDS[kind])
        parts += [
            f"| `{key}` | {required} | {allowed} | {_cell(FIELDS[kind][key])} |"
            for key, (required, allowed) in found.items()
        ]
        parts.append("")
    parts += ["## Options of key services\n\n[keys.md](keys.md) explains them. `former` and `type` belong to each.\n"]
    parts += ["| type | options |", "|---|---|"]
    for name, options in KEY_SERVICE_OPTIONS.items():
        parts.append(f"| `{name}` | {', '.join(f'`{option}`' for option in options if option != 'type')} |")
    return "\n".join(parts) + "\n"


def render_properties() -> str:
    """Return the page of properties and variables.

    Raises:
        ValueError: a name has no meaning.
    """
    told = dict(_named_properties())
    groups = (
        ("Settings of launches and sessions", "spark.sparkcrypt.", "People set these."),
        (
            "What travels with a table, a write or a read",
            "parquet.sparkcrypt.",
            "Commands, `configure` and the Spark extension set these; `parquet.` is what reaches every writer.",
        ),
        ("Marks", "sparkcrypt.", "Properties of tables and databases, and keys of footers, that reach no writer."),
        ("Properties of others", "", "`configure` and `sparkcrypt conf` set these."),
    )
    parts, told = [PROPERTIES_HEAD], {**told, **SETTINGS}
    for heading, prefix, about in groups:
        own = {name: text for name, text in sorted(told.items()) if name.startswith(prefix)}
        told = {name: text for name, text in told.items() if name not in own}
        parts += [f"## {heading}\n\n{about}\n", "| property | meaning |", "|---|---|"]
        parts += [f"| `{name}` | {_cell(text)} |" for name, text in own.items()]
        parts.append("")
    parts += ["## Variables of the environment\n", "| variable | meaning |", "|---|---|"]
    parts += [f"| `{name}` | {text} |" for name, text in VARIABLES.items()]
    return "\n".join(parts) + "\n"


def render_errors() -> str:
    """Return the page of errors.

    Raises:
        ValueError: a class has no next step here, or a next step no class.
    """
    kinds = list(_walk_errors(errors.SparkcryptError))
    _require_same("errors", [kind.__name__ for kind in kinds], NEXT_STEPS)
    rows = [
        f"| `{kind.__name__}` | {'' if kind.__base__ is Exception else f'`{kind.__base__.__name__}`'} "
        f"| {kind.exit_code} | {_cell((inspect.getdoc(kind) or '').partition(chr(10))[0])} "
        f"| {NEXT_STEPS[kind.__name__]} |"
        for kind in kinds
        if kind.__base__ is not None
    ]
    head = ["| class | belongs to | exit code | meaning | next step |", "|---|---|---|---|---|"]
    return "\n".join([ERRORS_HEAD, *head, *rows]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "commands.md": write_commands_page.render_page,
    "errors.md": render_errors,
    "policy.md": render_policy,
    "properties.md": render_properties,
}
"""Page of docs/ -> what renders it."""


def find_old() -> list[str]:
    """Return the pages that are not as the code has them."""
    paths = {page: ROOT / "docs" / page for page in PAGES}
    return [page for page, path in paths.items() if not path.exists() or path.read_text() != PAGES[page]()]


def _fields_of(kind: type[Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the key of each field that a policy file has, whether it is required, and which values are allowed."""
    for known in fields(kind):
        key = known.metadata.get("key") or ("tables" if known.name == "tables" else None)
        if key is None:
            continue
        unset = known.metadata.get("unset")
        optional = known.default is not MISSING or unset is not None or key in ("tables", "tags", "run_state")
        allowed = known.metadata.get("allowed", ())
        yield key, ("" if optional else "required", ", ".join(_show_choice(entry, unset) for entry in allowed))


def _show_choice(entry: Any, unset: Any) -> str:
    return f"**`{entry}`**" if entry == unset else f"`{entry}`"


def _named_properties() -> Iterator[tuple[str, str]]:
    """Yield the properties of sparkcrypt/names.py, each with the text that stands below it there."""
    body = ast.parse(inspect.getsource(names)).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        constant = node.targets[0].id
        value = getattr(names, constant)
        if constant in ("PREFIX", "ORC_KEY_PROVIDER_KIND") or not re.fullmatch(r"[a-z]+\.[\w.]+", str(value)):
            continue
        if constant.endswith("_CLASS") or constant == "SPARK_SCHEMA":
            continue
        told = following.value if isinstance(following, ast.Expr) else None
        text = told.value if isinstance(told, ast.Constant) else OTHERS.get(constant)
        if not text:
            raise ValueError(f"sparkcrypt/names.py: {constant} has no text; write one below it, or into OTHERS here")
        wildcard = "…" if value.endswith(".") else ""
        yield f"{value}{wildcard}", str(text)


def _walk_errors(kind: type[errors.SparkcryptError]) -> Iterator[type[errors.SparkcryptError]]:
    """Yield a class of sparkcrypt/errors.py and those that belong to it, in the order of the file."""
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _walk_errors(child)


def _require_same(what: str, found: Sequence[str] | dict[str, Any], told: dict[str, str]) -> None:
    lacking, gone = sorted({*found} - {*told}), sorted({*told} - {*found})
    if lacking or gone:
        raise ValueError(f"{what}: without a text here: {lacking}; with a text and not there: {gone}")


def _cell(text: str) -> str:
    """Return a text as a cell of a table: one line, with code in single quotes."""
    line = re.sub(r"\s+", " ", text.replace("``", "`")).strip()
    return re.sub(r"`[^`]*`|[|<]", lambda found: found[0] if found[0][0] == "`" else f"\\{found[0]}", line)


@click.command
@click.option("--check", is_flag=True, help="Write nothing; end with 1 where a page is not as the code has it.")
def main(check: bool) -> None:
    """Write the pages of docs/ that list what the code defines."""
    old = find_old()
    if check and old:
        raise click.ClickException(f"old: {', '.join(old)}; run: python -m tools.write_reference_pages")
    for page in old:
        (ROOT / "docs" / page).write_text(PAGES[page]())


if __name__ == "__main__":
    main()
