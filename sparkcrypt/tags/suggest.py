"""Suggestions of tags for columns that look personal, by their names and by the form of a few values.

A suggestion is for a person to confirm: names lie, and a column without one may be as personal.  The rules are our own:
analysers of text load models of languages that are larger than all of this package, and judge sentences, while names of
columns and short values need words and check digits.  No value leaves this module; suggestions have counts of them.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkcrypt.json_objects import JsonObject
from sparkcrypt.schema import Path, join_dotted

LEAST_VALUES = 5
"""Fewer values of a column say nothing."""
LEAST_SHARE = 0.8
_OF_CONTAINERS = ("element", "key", "value")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NO_VALUE = ("boolean", "void")
"""Types of columns that say something of a value, such as whether there is one."""

_NAMES: Mapping[str, str] = {
    "email": r"e_?mail(?:_addr(?:ess)?)?|mail_addr(?:ess)?",
    "ip_address": r"ip(?:_?addr(?:ess)?)?|ipv[46]|remote_addr",
    "phone": r"(?:tele|cell)?_?phone|mobile(?:_(?:phone|number|no))?|msisdn|fax",
    "birth": r"dob|birth(?:_?(?:date|day|year|place))?|birthday|date_of_birth|born",
    "name": r"(?:first|last|middle|given|family|full|maiden|nick|sur|user)_?name"
    r"|(?:person|customer|patient|employee|contact|holder|owner)_?name",
    "national_id": r"ssn|social_security|national_id|tax_(?:id|number)|passport|driv(?:er|ers|ing)_licen[cs]e|aadhaar",
    "account": r"iban|(?:bank_)?account_(?:number|no)|bank_account",
    "payment_card": r"(?:credit|debit|payment)_card|card_(?:number|no)|pan|cvv|cvc",
    "address": r"(?:street|postal|home|mailing|billing|shipping)_?address|address|street|post_?code|zip(?:_?code)?",
    "location": r"lat|latitude|lon|lng|longitude|geo_?location|gps",
    "health": r"diagnosis|icd|blood_(?:type|group)|disability|medication",
    "special": r"religion|ethnicity|race|gender|sex|sexual_orientation|nationality|marital_status",
    "pay": r"salary|wage|income",
    "secret": r"password|passwd|pwd|secret|api_?key|access_token",
}
"""Kind -> words of a column's name, joined by ``_``; the first kind that fits is taken."""
_BY_NAME = {kind: re.compile(rf"(?:^|_)(?:{words})(?:e?s)?(?:_|$)") for kind, words in _NAMES.items()}


def _is_iban(text: str) -> bool:
    compact = text.replace(" ", "").upper()
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", compact):
        return False
    return int("".join(str(int(sign, 36)) for sign in compact[4:] + compact[:4])) % 97 == 1


def _is_card(text: str) -> bool:
    digits = re.sub(r"[ -]", "", text)
    if not re.fullmatch(r"[3-6]\d{12,18}", digits):
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number // 10 + number % 10 for number in doubled) % 10 == 0


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


_FORMS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "email": ("e-mail addresses", re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}").fullmatch),
    "account": ("IBANs with right check digits", _is_iban),
    "payment_card": ("numbers of payment cards with right check digits", _is_card),
    "national_id": ("social security numbers", re.compile(r"\d{3}-\d{2}-\d{4}").fullmatch),
    "phone": ("international phone numbers", re.compile(r"\+\d[\d ()./-]{6,18}").fullmatch),
    "ip_address": ("IP addresses", _is_ip),
}
"""Kind -> what its values are, and the check of one."""
KINDS = tuple(dict.fromkeys((*_NAMES, *_FORMS)))


@dataclass(frozen=True, slots=True)
class Suggestion(JsonObject):
    """A column that looks personal: its dotted path, the kind of what it may hold, and why."""

    column: str
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A leaf column of a table's Spark schema: its logical path, and the name of its type."""

    path: Path
    kind: str

    @property
    def has_texts(self) -> bool:
        """Whether samples of it are texts that no array or map holds."""
        is_text = self.kind == "string" or self.kind.startswith(("varchar", "char"))
        return is_text and not any(part in _OF_CONTAINERS for part in self.path[1:])


def list_columns(schema_json: str) -> tuple[TypedColumn, ...]:
    """Return the leaf columns of a Spark schema, with partition columns."""
    return tuple(_walk(json.loads(schema_json), ()))


def _walk(kind: Any, path: Path) -> Iterator[TypedColumn]:
    name = kind if isinstance(kind, str) else kind["type"]
    if name == "struct":
        for field in kind["fields"]:
            yield from _walk(field["type"], (*path, str(field["name"])))
    elif name == "array":
        yield from _walk(kind["elementType"], (*path, "element"))
    elif name == "map":
        yield from _walk(kind["keyType"], (*path, "key"))
        yield from _walk(kind["valueType"], (*path, "value"))
    else:
        yield TypedColumn(path, str(name))


def suggest(columns: Iterable[TypedColumn], samples: Mapping[Path, Sequence[str]]) -> Iterator[Suggestion]:
    """Yield what looks personal, in the order of the columns; the form of values counts before names.

    Args:
        columns: the columns that have no tag.
        samples: column -> some of its values, without nulls.
    """
    for column in columns:
        found = _judge_values(samples.get(column.path, ())) or _judge_name(column)
        if found is not None:
            yield Suggestion(join_dotted(column.path), *found)


def _judge_values(values: Sequence[str]) -> tuple[str, str] | None:
    """Return the kind of values, and why; None if they are too few or of no known form."""
    if len(values) < LEAST_VALUES:
        return None
    for kind, (what, fits) in _FORMS.items():
        count = sum(bool(fits(value.strip())) for value in values)
        if count >= LEAST_SHARE * len(values):
            return kind, f"{count:,} of {len(values):,} sampled values have the form of {what}"
    return None


def _judge_name(column: TypedColumn) -> tuple[str, str] | None:
    """Return the kind that the name of a column tells, or the name with that of the column above it, and why."""
    if column.kind in _NO_VALUE:
        return None
    parts = [part for part in column.path if part not in _OF_CONTAINERS] or [column.path[0]]
    for names in (parts[-1:], parts[-2:]):
        words = "_".join(word.lower() for name in names for word in _WORDS.findall(name))
        for kind, pattern in _BY_NAME.items():
            match = pattern.search(words)
            if match is not None:
                return kind, f"its name has {match[0].strip('_')!r}"
    return None
