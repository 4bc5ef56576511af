"""A record of a log: its values, of which long ones are kept packed, and the texts for its place, MAC and digest."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkcrypt.ledger.state.store import other_bytes
from sparkcrypt.policy.key_service import canonical_json

LISTS = ("files", "made")
"""Fields that are long, and needed only while old files exist: packs of a log leave them out."""
_LONG = (*LISTS, "evidence")
"""Fields that grow with the files of a unit."""
_PACKED_FROM = 4_096
"""The length of a field's text from which it is kept packed, in characters: a log of millions of files fits then."""


class Fields(Mapping[str, Any]):
    """JSON values by their names; one that has a long text is kept packed, and decoded whenever it is asked for."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Take values as they are; packed ones are bytes, which no JSON value is."""
        self._values = dict(values)

    @classmethod
    def pack(cls, values: Mapping[str, Any], texts: Mapping[str, str]) -> Fields:
        """Return values of which some are given as texts too, by which long ones are packed."""
        long = {name: text for name, text in texts.items() if name in values and len(text) >= _PACKED_FROM}
        return cls({**values, **{name: zlib.compress(text.encode("ascii"), 1) for name, text in long.items()}})

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        return json.loads(zlib.decompress(value)) if isinstance(value, bytes) else value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Fields({', '.join(self._values)})"

    def updated(self, later: Fields) -> Fields:
        """Return these values with those of a later record over them; nothing is decoded."""
        return Fields({**self._values, **later._values})


class RecordText:
    """The canonical JSON of a record, each part of which is made once.

    Args:
        body: its members, which have strings as keys, such as decoded JSON; a MAC among them is left out.
    """

    __slots__ = ("_after", "_before", "_between", "_full", "_short", "long")

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._before, self._between, self._after = (
            _join({name: body[name] for name in body if start < name < end})
            for start, end in (("", "fields"), ("fields", "mac"), ("mac", "\U0010ffff"))
        )
        self.long: dict[str, str] = {}
        self._full = self._short = ""
        if "fields" in body:
            fields = body["fields"]
            named = fields if isinstance(fields, dict) else {}
            self.long = {name: canonical_json(named[name]) for name in _LONG if name in named}
            left = {name: _shorten(text) for name, text in self.long.items() if name in LISTS}
            left = {name: text for name, text in left.items() if not is_shortened(name, named[name])}
            self._full = f'"fields":{_object(named, self.long) if named else canonical_json(fields)}'
            self._short = f'"fields":{_object(named, {**self.long, **left})}' if left else self._full

    def whole(self, mac: object) -> bytes:
        """Return the bytes of the record with a MAC, as it stands in an object of the log."""
        return _line(self._before, self._full, self._between, _mac(mac), self._after)

    def short(self, mac: object) -> bytes:
        """Return the same with the SHA-256 of each of its lists in the place of that, as it stands in a pack."""
        return _line(self._before, self._short, self._between, _mac(mac), self._after)

    def authenticated(self) -> bytes:
        """Return the short form without a MAC, over which that is made."""
        return _line(self._before, self._short, self._between, self._after)

    def digest(self, mac: object) -> str:
        """Return the SHA-256 of the short form, by which the next record names this one."""
        return hashlib.sha256(self.short(mac)).hexdigest()


def decode_line(name: str, line: bytes) -> tuple[dict[str, Any], RecordText]:
    """Return the members of a record, and its text.

    Args:
        name: the name of its object, for messages.
        line: its bytes.

    Raises:
        VerificationError: the bytes are not exactly those of the record's canonical JSON.
        KeyError: it has no MAC, not even an empty one.
    """
    try:
        body: dict[str, Any] = json.loads(line)
        text = RecordText(body)
        exact = text.whole(body["mac"]) == line
    except (ValueError, TypeError, RecursionError) as error:
        raise other_bytes(name) from error
    if not exact:
        raise other_bytes(name)
    return body, text


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record, of the object ``name``.

    ``digest`` is the SHA-256 by which the next record names it; ``generation`` is the number of the MAC key that made
    its MAC, counted from 1, and 0 if no MAC was checked; ``is_short`` says that lists of files were left out.
    """

    name: str
    number: int
    time: str
    kind: str
    run_id: str
    step: int
    fencing_token: int
    who: str
    fields: Fields
    previous: str
    digest: str
    generation: int
    is_short: bool = False

    @property
    def authenticated(self) -> bool:
        """Whether its MAC was checked and is correct."""
        return self.generation > 0

    @property
    def unit(self) -> str | None:
        """The name of the record's unit; None for a record of the whole run."""
        unit = self.fields.get("unit")
        return unit if isinstance(unit, str) else None

    @property
    def staged(self) -> str | None:
        """The folder where new files are made, if the record names it."""
        return str(self.fields["staged"]) if "staged" in self.fields else None

    def has_types(self) -> bool:
        """Return whether the members are of their types, which anybody may have chosen."""
        texts = (self.time, self.kind, self.run_id, self.who, self.previous)
        numbers = (self.number, self.step, self.fencing_token)
        return all(isinstance(text, str) for text in texts) and all(
            type(number) is int and number >= 0 for number in numbers
        )


def is_shortened(name: str, value: object) -> bool:
    """Return whether a field is a list that was left out, of which the SHA-256 stands in its place."""
    return name in LISTS and isinstance(value, dict) and value.keys() == {"sha256"}


def _shorten(text: str) -> str:
    digest = hashlib.sha256(f'{{"list":{text}}}\n'.encode("ascii")).hexdigest()
    return f'{{"sha256":"{digest}"}}'


def _object(values: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """Return the canonical JSON of an object of which some members are given as texts."""
    parts, some = list[str](), dict[str, Any]()
    for name in sorted(values):
        if name in texts:
            parts += [_join(some), f"{canonical_json(name)}:{texts[name]}"]
            some = {}
        else:
            some[name] = values[name]
    return f"{{{','.join(part for part in (*parts, _join(some)) if part)}}}"


def _join(members: Mapping[str, Any]) -> str:
    return canonical_json(members)[1:-1]


def _mac(mac: object) -> str:
    return f'"mac":{canonical_json(mac)}'


def _line(*parts: str) -> bytes:
    return f"{{{','.join(part for part in parts if part)}}}\n".encode("ascii")
