"""Tags of fields in the text of a Protobuf schema: the option ``(confluent.field_meta).tags``, at any depth.

Source: the Protobuf language specification (proto2, proto3); Confluent's ``confluent/meta.proto``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sparkcrypt.errors import PlanError, show
from sparkcrypt.schema import ELEMENT, VALUE, Path, check_depth

_WORD = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[\w.]+|\S', re.DOTALL)
_SKIPPED = frozenset({"enum", "service", "extend"})
_LABELS = frozenset({"optional", "required", "repeated"})


@dataclass(frozen=True)
class _Field:
    name: str
    kind: str
    inner: Path
    tags: tuple[str, ...]


@dataclass(frozen=True)
class _Message:
    name: str
    fields: list[_Field] = field(default_factory=list)


def tags_of_protobuf(
    text: str, where: str, references: Iterable[str] = ()
) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Yield the fields of a schema's first message and of those in it: path, full name, and own tags.

    Args:
        text: the schema.
        where: where it came from, for messages.
        references: the texts of schemas whose messages it uses.

    Raises:
        PlanError: it is no such schema, or a message contains itself.
    """
    parsed = [_Parser(part, where).messages() for part in (text, *references)]
    if not parsed[0]:
        raise PlanError(f"{where}: defines no message; give the text of a .proto file")
    known = {message.name: message for messages in parsed for message in messages}
    yield from _walk(parsed[0][0], (), known, where)


def _walk(
    message: _Message, above: Path, known: dict[str, _Message], where: str
) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    try:
        check_depth(above)
    except PlanError as error:
        raise PlanError(f"{where}: message {message.name} contains itself; a recursive type has no columns") from error
    for entry in message.fields:
        path = (*above, entry.name)
        yield path, f"{message.name}.{entry.name}", entry.tags
        inner = _resolve(entry.kind, message.name, known)
        if inner is not None:
            yield from _walk(inner, (*path, *entry.inner), known, where)


def _resolve(kind: str, scope: str, known: dict[str, _Message]) -> _Message | None:
    if kind.startswith("."):
        return known.get(kind[1:])
    while scope:
        found = known.get(f"{scope}.{kind}")
        if found is not None:
            return found
        scope = scope.rpartition(".")[0]
    return known.get(kind)


class _Parser:
    """A parser of what messages and fields need; everything else is passed by."""

    def __init__(self, text: str, where: str) -> None:
        self._words: list[str] = [word for word in _WORD.findall(text) if not word.startswith(("//", "/*"))]
        self._where, self._at, self._package = where, 0, ""
        self._found: list[_Message] = []

    def messages(self) -> list[_Message]:
        """Return the messages, each before those that are defined in it."""
        while self._at < len(self._words):
            word = self._next()
            if word == "package":
                self._package = self._next()
            elif word == "message":
                self._message(self._package)
            elif word == "{":
                self._skip("{", "}")
        return self._found

    def _next(self) -> str:
        if self._at >= len(self._words):
            raise PlanError(f"{self._where}: the Protobuf schema ends too early; give the whole text of the schema")
        self._at += 1
        return self._words[self._at - 1]

    def _message(self, scope: str) -> None:
        name = self._next()
        message = _Message(f"{scope}.{name}" if scope else name)
        self._found.append(message)
        self._body(message)

    def _body(self, message: _Message) -> None:
        if self._next() != "{":
            raise PlanError(f"{self._where}: message {message.name} has no body; give the whole text of the schema")
        while (word := self._next()) != "}":
            if word == "message":
                self._message(message.name)
            elif word == "oneof":
                self._next()
                self._body(message)
            elif word in _SKIPPED:
                while self._next() != "{":
                    pass
                self._skip("{", "}")
            elif word in ("option", "reserved", "extensions"):
                self._until_semicolon()
            elif word != ";":
                self._field(message, word)

    def _field(self, message: _Message, word: str) -> None:
        inner: Path = ()
        if word in _LABELS:
            inner = (ELEMENT,) if word == "repeated" else ()
            word = self._next()
        if word == "map":
            parts = [self._next() for _ in range(5)]  # < key , value >
            word, inner = parts[3], (VALUE,)
        name = self._next()
        options = self._until_semicolon()
        if not re.fullmatch(r"\w+", name) or options[:1] != ["="]:
            raise PlanError(f"{self._where}: message {message.name}: {show(f'{word} {name}')} is not a field")
        message.fields.append(_Field(name, word, inner, tuple(_tags_of_options(options))))

    def _until_semicolon(self) -> list[str]:
        found: list[str] = []
        while (word := self._next()) != ";":
            found.append(word)
        return found

    def _skip(self, opening: str, closing: str) -> None:
        depth = 1
        while depth:
            word = self._next()
            depth += (word == opening) - (word == closing)


def _tags_of_options(options: list[str]) -> Iterator[str]:
    """Yield the texts after ``tags``: of ``(confluent.field_meta).tags = "PII"``, or in its braces."""
    names = [place for place, word in enumerate(options) if word in ("tags", ".tags")]
    is_tagged = "confluent.field_meta" in options
    for place in names if is_tagged else ():
        for word in options[place + 1 :]:
            if word[0] in "\"'":
                yield word[1:-1]
            elif word not in ("=", ":", "[", ",") or (word == "," and options[place + 2] != "["):
                break
