"""`sparkcrypt keys`: the master keys of a policy's key service."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import click

from sparkcrypt.cli.frame.command import Command, Group
from sparkcrypt.cli.frame.options import json_option, policy_option
from sparkcrypt.cli.frame.output import align_table, show
from sparkcrypt.cli.frame.workplace import Workplace
from sparkcrypt.errors import ConfigError, KeyNotFoundError
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyDescription, KeyService


@runtime_checkable
class Rotating(Protocol):
    """A key service that can add a version to a key itself."""

    def rotate(self, key_id: str) -> KeyDescription:
        """Add a version, which wraps from now on."""


@click.group(cls=Group)
def keys() -> None:
    """Make and look at the master keys of a policy's key service.

    Its type is local, vault, aws, gcp or hadoop, or that of an installed package (docs/keys.md).
    """


@keys.command(cls=Command)
@click.argument("key_ids", nargs=-1, required=True, metavar="KEY_ID…")
@policy_option
@json_option
def create(key_ids: tuple[str, ...], policy: str, as_json: bool) -> None:
    """Make master keys; one that is there already is left as it is.

    Examples:
      sparkcrypt keys create footer pii finance --policy policy.yaml
    """
    service = _service(policy)
    known = [_exists(service, key_id) for key_id in key_ids]
    made = [service.create(key_id) for key_id in key_ids]
    rows = [{**key.to_dict(), "made": not before} for key, before in zip(made, known, strict=True)]
    text = "\n".join(f"{row['key_id']}: {'made' if row['made'] else 'is there already'}" for row in rows)
    show(rows, text, as_json=as_json)


@keys.command("list", cls=Command)
@policy_option
@json_option
def list_(policy: str, as_json: bool) -> None:
    """List every master key.

    Examples:
      sparkcrypt keys list --policy policy.yaml
    """
    _show(_service(policy).list_keys(), as_json)


@keys.command("show", cls=Command)
@click.argument("key_id")
@policy_option
@json_option
def show_key(key_id: str, policy: str, as_json: bool) -> None:
    """Show one master key: its versions and when it was made.

    Examples:
      sparkcrypt keys show pii --policy policy.yaml
    """
    found = _service(policy).describe(key_id)
    show(found.to_dict(), _table((found,)), as_json=as_json)


@keys.command(cls=Command)
@click.argument("key_id")
@policy_option
@json_option
def rotate(key_id: str, policy: str, as_json: bool) -> None:
    """Add a version to a master key; files written from now on use it, older ones still open with the older versions.

    Examples:
      sparkcrypt keys rotate pii --policy policy.yaml
    """
    service = _service(policy)
    if not isinstance(service, Rotating):
        raise ConfigError(
            f"this policy's key service ({type(service).__name__}) does not rotate keys here; rotate {key_id!r} "
            "with the service's own tools, new files then use the new version"
        )
    rotated = service.rotate(key_id)
    show(rotated.to_dict(), f"{key_id}: version {rotated.versions} wraps from now on", as_json=as_json)


def _service(policy: str) -> KeyService:
    with Workplace("sparkcrypt keys") as workplace:
        return open_key_service(workplace.policy(policy).key_service)


def _exists(service: KeyService, key_id: str) -> bool:
    try:
        service.describe(key_id)
    except KeyNotFoundError:
        return False
    return True


def _show(found: tuple[KeyDescription, ...], as_json: bool) -> None:
    text = _table(found) if found else "no keys; make one with `sparkcrypt keys create KEY_ID --policy FILE`"
    show([key.to_dict() for key in found], text, as_json=as_json)


def _table(found: tuple[KeyDescription, ...]) -> str:
    return align_table(
        [(entry.key_id, entry.versions, entry.created) for entry in found], head=("key", "versions", "made")
    )
