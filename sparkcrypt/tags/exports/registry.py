"""Tags of fields in subjects of Confluent's Schema Registry: inline ones, and those of ``metadata.tags`` by path.

Source: the registry's REST API, an answer to ``GET /schemas`` or ``GET /subjects/S/versions/V``; its data contracts,
where a path is the full name of a field's record and its name, ``$`` being the root in JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sparkcrypt.errors import PlanError, show
from sparkcrypt.schema import ELEMENT, Path, check_depth, join_dotted, tags_from_metadata
from sparkcrypt.tags.avro import PROPERTY, schema_from_avro
from sparkcrypt.tags.exports.catalogs import ColumnTag, read_json
from sparkcrypt.tags.exports.protobuf import tags_of_protobuf
from sparkcrypt.tags.model import tags_of_avro

TagsOf = Callable[[str], Iterable[str]]
_WILDCARD = re.compile(r"\*\*|\*|\?|\\.", re.DOTALL)
_BY_WILDCARD = {"**": ".*", "*": r"[^.]*", "?": r"[^.]"}


def read_confluent(text: str, where: str, wanted: Callable[[str], bool]) -> Iterator[ColumnTag]:
    """Read the subjects that are wanted; of one in several versions, the newest.

    Raises:
        PlanError: it is no such answer, a schema cannot be read, or one that it refers to is not there.
    """
    document = read_json(text, where)
    subjects: dict[str, Mapping[str, Any]] = {}
    for entry in document if isinstance(document, list) else [document]:
        if not isinstance(entry, Mapping) or not {"subject", "schema"} <= entry.keys():
            raise PlanError(f"{where}: {show(entry)} is no schema of a subject; give an answer to GET /schemas")
        known = subjects.get(entry["subject"])
        if known is None or known.get("version", 0) <= entry.get("version", 0):
            subjects[entry["subject"]] = entry
    for subject, entry in subjects.items():
        if wanted(subject):
            place = f"{where}: subject {subject}"
            tags_of = _tags_by_path((entry.get("metadata") or {}).get("tags") or {}, place)
            references = _references(entry, subjects, place)
            for path, tags in _READERS[_kind(entry, place)](entry["schema"], place, references, tags_of):
                yield from ((subject, path, tag) for tag in dict.fromkeys(tags))


def _kind(entry: Mapping[str, Any], place: str) -> str:
    kind = entry.get("schemaType") or "AVRO"
    if kind not in _READERS:
        raise PlanError(f"{place}: its type is {show(kind)}; allowed: {', '.join(_READERS)}")
    return str(kind)


def _references(entry: Mapping[str, Any], subjects: Mapping[str, Mapping[str, Any]], place: str) -> dict[str, str]:
    """Return the schemas that one refers to, by the name that it has for each, those that they need before them."""
    found: dict[str, str] = {}
    for reference in entry.get("references") or ():
        subject = subjects.get(reference["subject"])
        if subject is None:
            raise PlanError(f"{place}: refers to subject {reference['subject']}, which is not there; export it as well")
        if subject is not entry and reference["name"] not in found:
            found |= _references(subject, subjects, place)
            found[reference["name"]] = subject["schema"]
    return found


def _tags_by_path(listed: Mapping[str, Iterable[str]], place: str) -> TagsOf:
    """Return the tags of a full name: ``?`` is one sign, ``*`` any within a name, ``**`` any across names."""
    patterns = [(_pattern(path), tags_from_metadata(list(tags), f"{place}: {path}")) for path, tags in listed.items()]
    return lambda name: [tag for pattern, tags in patterns if pattern.fullmatch(name) for tag in tags]


def _pattern(path: str) -> re.Pattern[str]:
    parts, at = [], 0
    for match in _WILDCARD.finditer(path):
        parts += [re.escape(path[at : match.start()]), _BY_WILDCARD.get(match[0]) or re.escape(match[0][1:])]
        at = match.end()
    return re.compile("".join([*parts, re.escape(path[at:])]), re.DOTALL)


def _read_avro(
    text: str, place: str, references: Mapping[str, str], tags_of: TagsOf
) -> Iterator[tuple[str, Iterable[str]]]:
    schema = schema_from_avro(text, where=place, references=references.values(), tags_of=tags_of)
    yield from ((join_dotted(column.path), column.tags) for column in tags_of_avro(schema))


def _read_protobuf(
    text: str, place: str, references: Mapping[str, str], tags_of: TagsOf
) -> Iterator[tuple[str, Iterable[str]]]:
    for path, name, tags in tags_of_protobuf(text, place, references.values()):
        yield join_dotted(path), (*tags, *tags_of(name))


def _read_json_schema(
    text: str, place: str, references: Mapping[str, str], tags_of: TagsOf
) -> Iterator[tuple[str, Iterable[str]]]:
    root = read_json(text, place)
    yield from _JsonSchema(root, place, references, tags_of).walk(root, (), "$", root)


class _JsonSchema:
    """A walk through a JSON Schema: all branches of ``allOf``, ``anyOf`` and ``oneOf`` are one field."""

    def __init__(self, root: Any, place: str, references: Mapping[str, str], tags_of: TagsOf) -> None:
        self._place, self._tags_of = place, tags_of
        self._documents = {"": root} | {name: read_json(text, place) for name, text in references.items()}

    def walk(self, part: Any, path: Path, name: str, root: Any) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield the tags of a schema and of what is in it; ``root`` is the document that it is in."""
        try:
            check_depth(path)
        except PlanError as error:
            raise PlanError(f"{self._place}: {name} contains itself; a recursive type has no columns") from error
        if not isinstance(part, Mapping):
            return
        if path:
            yield join_dotted(path), (*tags_from_metadata(part.get(PROPERTY), name), *self._tags_of(name))
        if "$ref" in part:
            target, document = self._resolve(str(part["$ref"]), root)
            if target is part:
                raise PlanError(f"{self._place}: {name} refers to itself; correct the schema")
            yield from self.walk(target, path, name, document)
        for branch in (*part.get("allOf", ()), *part.get("anyOf", ()), *part.get("oneOf", ())):
            yield from self.walk(branch, path, name, root)
        for member, inner in (part.get("properties") or {}).items():
            yield from self.walk(inner, (*path, member), f"{name}.{member}", root)
        if path:
            yield from self.walk(part.get("items"), (*path, ELEMENT), f"{name}[0]", root)

    def _resolve(self, reference: str, root: Any) -> tuple[Any, Any]:
        name, _, pointer = reference.partition("#")
        found = document = self._documents.get(name) if name else root
        for step in pointer.strip("/").split("/") if pointer.strip("/") else ():
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        if found is None:
            raise PlanError(f"{self._place}: refers to {show(reference)}, which is not there; export it as well")
        return found, document


_READERS = {"AVRO": _read_avro, "JSON": _read_json_schema, "PROTOBUF": _read_protobuf}
