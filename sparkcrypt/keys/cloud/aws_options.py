"""Options of an AWS KMS key service, and AWS's names for key ids."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparkcrypt.keys.ids import NameRule, check_key_id
from sparkcrypt.keys.provider_options import OptionSource, address, certificates, number, option, text

_LONGEST_ALIAS = 256
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWN_NAME = re.compile(
    rf"(?:arn:aws[a-z-]*:kms:(?P<region>[a-z0-9-]+):\d{{12}}:)?"
    rf"(?:alias/[A-Za-z0-9/_-]+|(?(region)key/){_UUID}|(?(region)key/)(?P<multi>mrk-[0-9a-f-]{{32,36}}))",
    re.ASCII,
)


def _read_context(source: OptionSource, name: str) -> tuple[tuple[str, str], ...]:
    value = source.options.get(name, {})
    if not isinstance(value, Mapping) or not all(isinstance(entry, str) for pair in value.items() for entry in pair):
        raise source.error(name, "is not a mapping of names to texts; allowed: such as {department: sales}")
    return tuple(sorted(value.items()))


@dataclass(frozen=True, slots=True)
class AwsOptions:
    """The checked options."""

    region: str | None = text()
    endpoint: str | None = address()
    profile: str | None = text()
    role_arn: str | None = text()
    alias_prefix: str = text(
        "sparkcrypt/",
        pattern="(?!aws/)[A-Za-z0-9/_-]{1,100}",
        allowed="1 to 100 letters, digits, '/', '_' and '-', not beginning with aws/",
    )
    encryption_context: tuple[tuple[str, str], ...] = option(_read_context)
    ca_bundle: str | None = certificates()
    timeout_seconds: float = number(10.0, 0.1, 600.0)


@dataclass(frozen=True, slots=True)
class KeyNames:
    """AWS's names for key ids in one account and region.

    A key id that is AWS's own name (a key's id, an ARN, ``alias/…``) is used unchanged; any other is the alias
    ``alias/<prefix><encoded id>``.
    """

    prefix: str
    region: str

    def of(self, key_id: str) -> str:
        """Return AWS's name of a key; the ARN of a multi-Region key is changed to this region's replica.

        Raises:
            ConfigError: the key id is empty or is not Unicode.
        """
        check_key_id(key_id)
        own = _OWN_NAME.fullmatch(key_id)
        if own is None:
            return f"alias/{self.prefix}{self._rule.encode(key_id)}"
        if own["region"] and own["multi"]:
            return key_id.replace(f":kms:{own['region']}:", f":kms:{self.region}:", 1)
        return key_id

    def is_own(self, key_id: str) -> bool:
        """Return whether AWS or its users gave this name, so that it has no alias with our prefix."""
        return _OWN_NAME.fullmatch(key_id) is not None

    def key_id(self, alias: str) -> str | None:
        """Return the key id that an alias stands for, or None if it stands for none."""
        if not alias.startswith(f"alias/{self.prefix}"):
            return None
        found = self._rule.decode(alias.removeprefix(f"alias/{self.prefix}"))
        return found if found is not None and not self.is_own(found) else None

    @property
    def _rule(self) -> NameRule:
        return NameRule("A-Za-z0-9-", "_", _LONGEST_ALIAS - len("alias/") - len(self.prefix), "AWS KMS")
