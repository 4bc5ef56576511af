"""Options that several commands share, and how a dataclass states the options of one."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

import click
from click.core import ParameterSource

from sparkcrypt.runs.rewrite.options import ENGINES, Engine

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
POLICY_VARIABLE = "SPARKCRYPT_POLICY"
"""The environment's default of ``--policy``."""
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
    return (
        f"It names the file that says which key each tag has: --policy FILE, or {POLICY_VARIABLE} for all commands; "
        f"{example}."
    )


def is_typed(context: click.Context, name: str) -> bool:
    """Tell whether a parameter was given on the command line, and not by a default or the environment."""
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


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
    envvar=POLICY_VARIABLE,
    show_envvar=True,
    help="The policy file: a path, or a URI such as hdfs://nn/policy.yaml.",
)
optional_policy_option = click.option(
    "--policy", metavar="FILE", envvar=POLICY_VARIABLE, show_envvar=True, help="The policy file: a path or a URI."
)
any_key_option = click.option(
    "--any-key", is_flag=True, help="Also ask the key service for keys that only files name, not the policy."
)
table_option = click.option("--table", metavar="DB.TABLE", help="A table of the session catalog.")
leave_out_option = click.option(
    "--leave-out", multiple=True, metavar="TABLE", help="Skip this table; use it for tables that were dropped."
)
required_table_option = click.option(
    "--table", required=True, metavar="DB.TABLE", help="A table of the session catalog."
)
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
accept_option = click.option(
    "--accept-path-readers", is_flag=True, help="Also rewrite tables that share a folder with another table."
)
move_old_option = click.option(
    "--move-old",
    is_flag=True,
    help="Move the old files out of the table's folder at once; running readers fail, and no rollback is possible.",
)
report_option = click.option(
    "--report", metavar="FILE", help="Also write the report there as JSON, a failed run's too: a path or a URI."
)


def spark_options(function: F) -> F:
    """Add ``--master``, ``--conf`` and ``--verbose``, which the function gets as one argument ``launch``."""

    @click.option(
        "--master",
        metavar="URL",
        help="Spark's master, as for spark-submit; by default that of Spark's own configuration.",
    )
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


def option(help_text: str, *flags: str, **settings: Any) -> Any:
    """Return a field of a dataclass of options; its name and type give the rest, such as ``--dry-run`` of a bool.

    Args:
        help_text: the help.
        *flags: the option as it is typed, if not as the field is named.
        **settings: as for ``click.option``.
    """
    return field(metadata={"flags": flags, "help": help_text, **settings})


def use(decorator: Callable[[Any], Any]) -> Any:
    """Return a field of a dataclass of options whose option or argument is declared elsewhere."""
    return field(metadata={"decorator": decorator})


def options_from(options: type[Any]) -> Callable[[F], F]:
    """Add an option for each field of a dataclass; the function gets its value.

    The help shows the fields of the class itself before those of its bases.
    """
    hints, declared = get_type_hints(options), {known.name: known.metadata for known in fields(options)}
    names = dict.fromkeys(name for base in options.__mro__ for name in inspect.get_annotations(base))

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def collect(*args: Any, **values: Any) -> Any:
            return function(*args, options(**values))

        for name in reversed(names):
            collect = _declare(name, hints[name], declared[name])(collect)
        return collect  # type: ignore[return-value]  # click's decorators keep the callable, and so does this one

    return decorate


def _declare(name: str, kind: Any, metadata: Mapping[str, Any]) -> Callable[[Any], Any]:
    settings = dict(metadata)
    if "decorator" in settings:
        return settings["decorator"]  # type: ignore[no-any-return]  # `use` is given a decorator
    flags = settings.pop("flags") or ("--" + name.replace("_", "-"),)
    shape: dict[str, Any] = (
        {"is_flag": True} if kind is bool else {"multiple": True} if get_origin(kind) is tuple else {}
    )
    return click.option(*flags, name, **shape, **settings)


def select_options(kind: type[T], options: Any, **more: Any) -> T:
    """Return a value of another dataclass, from the fields that a command's options have too, and others."""
    names = {known.name for known in fields(kind)}  # type: ignore[arg-type]  # only dataclasses are given
    return kind(**{name: value for name, value in vars(options).items() if name in names}, **more)


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of a command that reads a policy and may start Spark."""

    policy: str = use(policy_option)
    as_json: bool = use(json_option)
    launch: Launch = use(spark_options)


@dataclass(frozen=True, kw_only=True)
class TablesOptions:
    """The options that choose tables of the catalog."""

    tables: tuple[str, ...] = option(
        "A table, or a pattern such as 'sales.cust*'; may be repeated.", "--table", metavar="PATTERN"
    )
    databases: tuple[str, ...] = use(databases_option)


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """The options that keep some of the tables that are chosen."""

    select: tuple[str, ...] = option(
        "Only tables of which a column has this tag, such as tag:pii; may be repeated.", metavar="tag:NAME"
    )
    exclude: tuple[str, ...] = option(
        "Leave out a table, or those of a pattern such as 'sales.tmp_*'; may be repeated.", metavar="PATTERN"
    )


@dataclass(frozen=True, kw_only=True)
class RewriteOptions(CommandOptions):
    """The options of a command that rewrites the files of tables or of a folder."""

    path: str | None = use(path_option)
    output: str | None = option("With --path: write the encrypted copy there; the source stays.", metavar="DIR")
    exclusive: bool = option("With --path: rename the folder while nobody reads or writes it.")
    engine: Engine = option(
        "native rewrites files page by page; spark reads and writes their rows anew.",
        type=click.Choice(ENGINES),
        default="native",
        show_default=True,
    )
    where: str | None = use(where_option)
    adopt: bool = option("Also take in files that readers of a table which requires encryption refuse.")
    allow_decrypt: bool = option(
        "Decrypt columns whose tags were taken off or mean plaintext now; else their units stay as they are."
    )
    purge: bool = option(
        "Put nulls in the place of columns whose keys were shredded; only an authentic tombstone counts."
    )
    move_old: bool = use(move_old_option)
    resume: str = option(
        "Continue an unfinished run of the table.", default="auto", show_default=True, metavar="auto|RUN|never"
    )
    report: str | None = use(report_option)


@dataclass(frozen=True, kw_only=True)
class PassCommandOptions(FilterOptions, TablesOptions):
    """The options of a command that rewrites files of many tables."""

    accept_path_readers: bool = use(accept_option)
    tables_at_once: int = option(
        "Number of tables that are worked on at the same time, each with --parallelism.",
        type=click.IntRange(1),
        default=1,
        show_default=True,
    )
    max_bytes: int | None = option(
        "Begin no unit beyond this, such as 500GB; run again to go on.", type=SIZE, metavar="SIZE"
    )
    max_seconds: float | None = option(
        "Begin no unit after this, such as 4h; run again to go on.", "--max-duration", type=DURATION, metavar="TIME"
    )
    parallelism: int = option(
        "Number of units, or batches of small ones, that are rewritten at the same time.",
        type=click.IntRange(1),
        default=PARALLELISM,
        show_default=True,
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
