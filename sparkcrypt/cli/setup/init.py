"""`sparkcrypt init`: writes a first policy with comments, and the folders that it names."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from sparkcrypt.cli.frame.command import Command
from sparkcrypt.cli.frame.options import POLICY_VARIABLE, json_option, option, options_from, use
from sparkcrypt.cli.frame.output import show
from sparkcrypt.durable import hidden_file, name_new
from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.load import policy_from_text
from sparkcrypt.policy.model import Policy, named_keys

_NAME = "policy.yaml"
_LOCAL = "local"


@dataclass(frozen=True, slots=True)
class ServiceTemplate:
    """What the first policy says of a type of key service.

    Attributes:
        about: the comment above it, by which a reader knows where the keys are.
        place: the option that says where the service is.
        example: a value of that option.
        more: further options, as comments.
    """

    about: str
    place: str
    example: str
    more: tuple[str, ...] = ()

    def write(self, kind: str, place: str) -> str:
        """Return the section of the policy."""
        options = [f"  type: {kind}", f"  {self.place}: {place}", *(f"  # {line}" for line in self.more)]
        return "\n".join([f"# {self.about}", "key_service:", *options])


SERVICES = {
    _LOCAL: ServiceTemplate(
        "Master keys in a folder beside this file: for a try, or a file system that all executors share.",
        "path",
        "keys/",
    ),
    "vault": ServiceTemplate(
        "Master keys in the transit engine of Vault or OpenBao. A process logs in by VAULT_TOKEN, or as `auth` says.",
        "address",
        "https://vault.example.com:8200",
        ("mount_point: transit", "auth: {method: kubernetes, role: spark-etl}"),
    ),
    "aws": ServiceTemplate(
        "Master keys in AWS KMS: the key id pii is the alias sparkcrypt/pii. Each process finds its own credentials.",
        "region",
        "eu-west-1",
        ("alias_prefix: sparkcrypt/", "role_arn: arn:aws:iam::123456789012:role/spark-etl"),
    ),
    "gcp": ServiceTemplate(
        "Master keys in Google Cloud KMS: the key id pii is the key pii of this key ring.",
        "key_ring",
        "projects/acme-data/locations/europe-west1/keyRings/sparkcrypt",
        ("auth: {method: metadata}    # the service account of this machine or pod",),
    ),
    "azure": ServiceTemplate(
        "Master keys in Azure Key Vault or a Managed HSM.",
        "address",
        "https://acme.vault.azure.net",
        ("auth: {method: workload}    # the identity of this pod; managed: of this machine",),
    ),
    "hadoop": ServiceTemplate(
        "Master keys in a Hadoop KMS. Each process uses its Kerberos ticket, or logs in as `auth` says.",
        "address",
        "https://kms.example.com:9600/kms",
        ("auth: {method: token}",),
    ),
}
"""Type of a built-in key service -> what the first policy says of it."""

_POLICY = """\
# Which master key each tag has. It is read strictly: a word that is not known is an error that names its line.
# It travels to every writer and reader in clear, so no secret may stand here.
version: 1

{service}

# The key of the footers. Every reader of a table needs it, so it protects the schema, and no column.
footer: {{key: footer, mode: encrypted}}

# The key of the audits of runs. Whoever may use it can write an audit that verifies, so no reader may.
audit: {{key: audit}}

# What a column without a tag is: plaintext, footer_key (encrypted, for whoever reads footers), or deny (a write fails).
untagged: plaintext

# Journals, locks and audits of runs. Jobs of several machines need one place for all, such as hdfs://… or s3a://….
run_state: state/

# What each tag means. Where a column has several tags, the first of them in this order counts.
tags:
  pii: {{key: pii}}
  public: plaintext
"""


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """The options of `sparkcrypt init`."""

    folder: str = use(click.argument("folder", default=".", metavar="[FOLDER]"))
    key_service: str | None = option(
        "Where master keys are; without it a terminal is asked, and otherwise it is local: a folder for a try.",
        type=click.Choice(tuple(SERVICES)),
    )
    place: str | None = option(
        "Where the key service is: the address of Vault, Azure or Hadoop, the region of AWS, the key ring of Google.",
        metavar="PLACE",
    )
    as_json: bool = use(json_option)


@click.command(cls=Command)
@options_from(InitOptions)
@click.pass_context
def init(context: click.Context, options: InitOptions) -> None:
    """Write policy.yaml with comments and its state directory into a folder, and show the next commands.

    For a local key service the folder of the master keys is made too; it has no key, since keys are made by
    `sparkcrypt keys create` alone. Nothing that is there is overwritten: it ends with 78 if one of the three exists.

    Examples:
      sparkcrypt init
      sparkcrypt init lake --key-service vault --place https://vault.example.com:8200
      sparkcrypt init lake --key-service aws --place eu-west-1
    """
    kind, place = _choose(context, options)
    folder = Path(options.folder).absolute()
    file = folder / _NAME
    text = _POLICY.format(service=SERVICES[kind].write(kind, place))
    policy = policy_from_text(text, where=str(file), base=str(folder))
    made = [file, folder / "state", *([folder / "keys"] if kind == _LOCAL else [])]
    _write(file, text, made[1:])
    commands = next_commands(file, policy)
    lines = ["made:", *(f"  {path}" for path in made), "next:", *(f"  {command}" for command in commands)]
    show({"made": [str(path) for path in made], "next": commands}, "\n".join(lines), as_json=options.as_json)


def next_commands(file: Path, policy: Policy) -> list[str]:
    """Return the commands that lead from a new policy to a first encrypted table."""
    return [
        f"export {POLICY_VARIABLE}={shlex.quote(str(file))}",
        f"sparkcrypt keys create {' '.join(named_keys(policy))}",
        "sparkcrypt doctor",
        "sparkcrypt tags set DB.TABLE COLUMN pii",
        "sparkcrypt plan --table DB.TABLE",
        "sparkcrypt encrypt --table DB.TABLE",
    ]


def _choose(context: click.Context, options: InitOptions) -> tuple[str, str]:
    """Return the type of the key service, and its place as YAML; what is not given, a terminal is asked.

    Raises:
        click.UsageError: there is a place for the local service, or none for another and nobody to ask.
    """
    asks, kind, place = sys.stdin.isatty(), options.key_service, options.place
    if kind is None and asks and place is None:
        kind = click.prompt("key service", type=click.Choice(tuple(SERVICES)), default=_LOCAL, err=True)
    kind = kind or _LOCAL
    service = SERVICES[kind]
    if kind == _LOCAL:
        if place is not None:
            raise click.UsageError(
                f"--place goes with --key-service, and not with local, whose keys are in {service.example}", context
            )
        return kind, service.example
    if place is None and asks:
        place = click.prompt(f"{service.place}, such as {service.example}", err=True)
    if place is None:
        raise click.UsageError(
            f"--key-service {kind} needs --place, its {service.place}: such as --place {service.example}", context
        )
    return kind, json.dumps(place)  # which is YAML too, whatever the text


def _write(file: Path, text: str, folders: list[Path]) -> None:
    """Make the folders and the policy, or nothing.

    Raises:
        ConfigError: one of them exists, or cannot be made.
    """
    there = [path for path in (file, *folders) if path.exists() or path.is_symlink()]
    if there:
        raise ConfigError(
            f"there already: {', '.join(map(str, there))}; init overwrites nothing: go on with what is there, or name "
            "another folder, `sparkcrypt init FOLDER`"
        )
    with _made(folders), hidden_file(file, text.encode(), mode=None) as temporary:
        name_new(temporary, file)


@contextmanager
def _made(folders: list[Path]) -> Iterator[None]:
    """Make folders that their owner alone can use; they are removed, empty as they are, if the block fails.

    Raises:
        ConfigError: they could not be made, or the block raised an error of files.
    """
    made: list[Path] = []
    try:
        for folder in folders:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
            made.append(folder)
        yield
    except OSError as error:
        for folder in made:
            folder.rmdir()
        raise ConfigError(
            f"{error.filename}: cannot be made ({error.strerror}); name a folder in which you may write"
        ) from error
