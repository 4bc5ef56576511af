"""Options that several commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from sparkcrypt.runs.rewrite.engine_names import ENGINES

F = TypeVar("F", bound=Callable[..., Any])
PARALLELISM = 4
"""Default number of units that a pass works on concurrently."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The options with which a command starts its Spark session."""

    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    verbose: bool = False


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


class _PolicyFile(click.ParamType[str]):
    """The place of a policy file; where none is given, what it is for and what may be it are named."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the place unchanged."""
        return str(value)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        """Return what the option is for, with a policy file of the present folder if there is one."""
        return describe_policy()


def describe_policy() -> str:
    """Return what ``--policy`` is for, with a file of the present folder that may be one."""
    here = next((file for file in sorted(Path().glob("*.y*ml")) if _names_key_service(file)), None)
    example = f"{here} in this folder may be it" if here else "such as policy.yaml"
    return f"It names the file that says which key each tag has: --policy FILE; {example}."


def _names_key_service(file: Path) -> bool:
    try:
        return file.is_file() and file.stat().st_size <= _MOST_BYTES and b"key_service" in file.read_bytes()
    except OSError:
        return False


_MOST_BYTES = 1 << 20
policy_option = click.option(
    "--policy",
    required=True,
    type=_PolicyFile(),
    metavar="FILE",
    help="The policy file: a path, or a URI such as hdfs://nn/policy.yaml.",
)
optional_policy_option = click.option("--policy", metavar="FILE", help="The policy file: a path or a URI.")
any_key_option = click.option(
    "--any-key", is_flag=True, help="Also ask the key service for keys that only files name, not the policy."
)
table_option = click.option("--table", metavar="DB.TABLE", help="A table of the session catalog.")
databases_option = click.option(
    "--database",
    "databases",
    multiple=True,
    metavar="NAME",
    help="Every table of a database in a format of the policy.",
)
path_option = click.option("--path", metavar="DIR", help="A bare folder of data files: a path or a URI.")
avro_option = click.option(
    "--avro-schema", "avro_schema", metavar="FILE", help="An .avsc file whose tags (confluent:tags) are used as well."
)
where_option = click.option("--where", metavar="PREDICATE", help="Only these partitions; partition columns only.")
allow_decrypt_option = click.option(
    "--allow-decrypt",
    is_flag=True,
    help="Decrypt columns whose tags were taken off or mean plaintext now; else their units stay as they are.",
)
adopt_option = click.option(
    "--adopt", is_flag=True, help="Rewrite files too that a table which requires encryption would not believe."
)
output_option = click.option(
    "--output", metavar="DIR", help="With --path: write the encrypted copy there; the source stays."
)
exclusive_option = click.option(
    "--exclusive", is_flag=True, help="With --path: rename the folder while nobody reads or writes it."
)
accept_option = click.option(
    "--accept-path-readers", is_flag=True, help="Rewrite tables that share a folder with another one too."
)
purge_option = click.option(
    "--purge",
    is_flag=True,
    help="Put nulls in the place of columns whose keys were shredded; only an authentic tombstone counts.",
)
home_option = click.option(
    "--home",
    is_flag=True,
    help="Bring what runs have taken away from the table's folder back there, for jobs that use the folder by path.",
)
report_option = click.option(
    "--report", metavar="FILE", help="Also write the report there as JSON, a failed run's too: a path or a URI."
)


def engine_option(help_text: str) -> Callable[[F], F]:
    """Return ``--engine`` with a command's help text."""
    return click.option("--engine", type=click.Choice(ENGINES), default="native", show_default=True, help=help_text)


def move_old_option(help_text: str) -> Callable[[F], F]:
    """Return ``--move-old`` with a command's help text."""
    return click.option("--move-old", is_flag=True, help=help_text)


def resume_option(help_text: str) -> Callable[[F], F]:
    """Return ``--resume`` with a command's help text."""
    return click.option("--resume", default="auto", show_default=True, metavar="auto|RUN|never", help=help_text)


def spark_options(function: F) -> F:
    """Add ``--master``, ``--conf`` and ``--verbose``, which the function gets as one argument ``launch``."""

    @click.option("--master", metavar="URL", help="As spark-submit's; Spark's own configuration by default.")
    @click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", callback=_pairs, help="Spark configuration; may be repeated."
    )
    @click.option("--verbose", is_flag=True, help="Keep Spark's own log messages.")
    @functools.wraps(function)
    def collect(*args: Any, master: str | None, conf: tuple[tuple[str, str], ...], verbose: bool, **named: Any) -> Any:
        return function(*args, launch=Launch(master, conf, verbose), **named)

    return collect  # type: ignore[return-value]  # click's decorators keep the callable, and so does this one


class _Amount(click.ParamType[float]):
    """A number with a unit, such as ``500GB`` or ``4h``; only a zero needs none."""

    def __init__(self, name: str, units: Mapping[str, float], *, zero: bool = False) -> None:
        self.name, self._units, self._zero = name, units, zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the amount in the smallest unit."""
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", str(value).strip())
        number = float(match[1]) if match else 0.0
        unit = self._units.get(match[2].lower()) if match else None
        if match is not None and number == 0 and not match[2]:
            unit = 1.0
        if match is None or unit is None or (number <= 0 and not self._zero):
            bare = match is not None and number > 0 and not match[2]
            what = "has no unit" if bare else f"is not a {self.name}"
            least = "a number" if self._zero else "a number above 0"
            example = f", such as {match[1]}{[*self._units][-2]}" if bare and match else ""
            self.fail(f"{value!r} {what}; allowed: {least} with one of {', '.join(self._units)}{example}", param, ctx)
        return int(number * unit)


SIZE = _Amount("size", {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12})
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = _Amount("duration", _SECONDS)
AGE = _Amount("duration", _SECONDS, zero=True)


def budget_options(function: F) -> F:
    """Add ``--max-bytes``, ``--max-duration`` and ``--parallelism``."""
    return _MAX_BYTES(_MAX_DURATION(_PARALLELISM(function)))


_MAX_BYTES = click.option(
    "--max-bytes", type=SIZE, metavar="SIZE", help="Begin no unit beyond this, such as 500GB; run again to go on."
)
_MAX_DURATION = click.option(
    "--max-duration", type=DURATION, metavar="TIME", help="Begin no unit after this, such as 4h; run again to go on."
)
_PARALLELISM = click.option(
    "--parallelism", type=click.IntRange(1), default=PARALLELISM, show_default=True, help="Units at the same time."
)


def require_either(table: str | None, path: str | None) -> None:
    """Refuse a call with both or none of the two options.

    Raises:
        click.UsageError: both or none are given.
    """
    if (table is None) == (path is None):
        raise click.UsageError("give either --table or --path")


def _pairs(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for value in values:
        name, sign, rest = value.partition("=")
        if not sign or not name.strip():
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", context, option)
        pairs.append((name.strip(), rest))
    return tuple(pairs)
