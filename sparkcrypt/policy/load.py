"""Policy files: strict YAML, with the line of every key for messages."""

from __future__ import annotations

import getpass
import math
import os
import re
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from sparkcrypt.errors import ConfigError
from sparkcrypt.paths import is_local, is_uri, local_path
from sparkcrypt.policy.build import policy_from_document, rules_from_document
from sparkcrypt.policy.key_retention import shows_end
from sparkcrypt.policy.model import Policy, TableRule
from sparkcrypt.policy.section import KeyPath

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"[-+]?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?")


def load_policy(path: str | os.PathLike[str], *, principal: str | None = None) -> Policy:
    """Load and check a policy file.

    Args:
        path: a local path or ``file:`` URI.  A policy on another file system is read by the caller and given to
            ``policy_from_text``.
        principal: the name for ``{principal}`` in the options of the key service; by default the user that this
            process runs as.

    Raises:
        ConfigError: the file cannot be read or is not a policy; one line for each problem, with file, line and key
            path.
    """
    text = os.fspath(path)
    if not is_local(text):
        raise ConfigError(f"policy {text}: this command reads local files only; allowed: a path, or a file: URI")
    text = local_path(text)
    try:
        with Path(text).open("rb") as stream:
            content = stream.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"policy {text}: cannot be read ({reason}); give the path of a policy file") from error
    policy = policy_from_text(content, where=text, base=str(Path(text).absolute().parent))
    return policy.for_principal(principal or find_user())


PolicySource: TypeAlias = Policy | str | os.PathLike[str]
"""What users give as a policy: one that is loaded, or the path of its file."""


def policy_of(given: PolicySource) -> Policy:
    """Return a policy, which is loaded if its path is given.

    Raises:
        ConfigError: as for ``load_policy``, or it is neither.
    """
    if isinstance(given, Policy):
        return given
    if isinstance(given, str | os.PathLike):
        return load_policy(given)
    raise ConfigError(f"{given!r} is no policy; give the path of a policy file, or what sparkcrypt.load_policy returns")


def find_user() -> str:
    """Return the name of the user that this process runs as; empty if the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a numeric user of a container
        return ""


def policy_from_text(text: str, *, where: str, base: str) -> Policy:
    """Check the text of a policy file.

    Args:
        text: YAML.
        where: the file's name, for messages.
        base: folder (path or URI) to which relative paths refer.

    Raises:
        ConfigError: one line for each problem.
    """
    document, reader = _parse_yaml(text, where)
    policy = policy_from_document(
        document, locate=reader.locate, resolve=lambda relative: _make_absolute(relative, base)
    )
    endless = [
        f"{reader.locate(('tags', rule.name, 'retention'))}: tags.{rule.name}.retention: no data are ever past it, "
        f"since key {rule.key.text!r} does not show their date; give the key one date with its year, such as "
        "contact-{day:%Y-%m}, or leave retention out"
        for rule in policy.tags
        if rule.key is not None and rule.retention_seconds is not None and not shows_end(rule.key)
    ]
    if endless:
        raise ConfigError("\n".join(endless))
    return policy


def rules_from_text(text: str, *, where: str, base: str) -> tuple[TableRule, ...]:
    """Check the text of a file in the shape of a policy's ``tables``, or of a policy file, and return its rules.

    Args:
        text: YAML.
        where: the file's name, for messages.
        base: folder (path or URI) to which relative paths refer.

    Raises:
        ConfigError: one line for each problem.
    """
    document, reader = _parse_yaml(text, where)
    return rules_from_document(document, locate=reader.locate, resolve=lambda relative: _make_absolute(relative, base))


def _parse_yaml(text: str, where: str) -> tuple[Any, _Reader]:
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{where}: larger than {MAX_BYTES} bytes; that is no policy file")
    reader = _Reader(where)
    try:
        _refuse_unsafe(text, where)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return reader.value(node, ()) if node is not None else {}, reader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        if mark and mark.buffer and mark.buffer[mark.pointer : mark.pointer + 1] == "\t":
            reason = "a tab; YAML is indented by spaces alone: replace the tabs by spaces"
        raise ConfigError(f"{where}{line}: not YAML: {reason}; see the examples in conf/") from error


def _make_absolute(relative: str, base: str) -> str:
    """Make a path of the policy absolute; URIs are unchanged, and a base that is a URI gives a URI."""
    if is_uri(relative) or relative.startswith("/"):
        return relative
    if is_uri(base):
        return f"{base.rstrip('/')}/{relative}"
    return os.path.normpath(Path(base) / relative)


def _refuse_unsafe(text: str, where: str) -> None:
    """Refuse aliases, tags and deep nesting: they could expand when composed, or be something else than they look.

    PyYAML's parser gives events without recursion, so this also keeps its composer from overflowing the stack.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        place = f"{where}:{event.start_mark.line + 1 if event.start_mark else 1}"
        if getattr(event, "anchor", None) is not None:
            raise ConfigError(f"{place}: anchors and aliases (& and *) are not taken; write each value out")
        if getattr(event, "tag", None) is not None:
            raise ConfigError(f"{place}: YAML tags (!…) are not taken; write plain texts, numbers, lists and mappings")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ConfigError(f"{place}: nested deeper than {MAX_DEPTH} levels; that is no policy file")


class _Reader:
    """A converter of YAML nodes to values that records the line of every key path."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lines: dict[KeyPath, int] = {}

    def locate(self, path: KeyPath) -> str:
        """Return ``file:line`` of a key path, or of the nearest one above it."""
        while path and path not in self._lines:
            path = path[:-1]
        return f"{self._where}:{self._lines.get(path, 1)}"

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        """Return the Python value of a node.

        Raises:
            ConfigError: a duplicate key, or a key that is no text.
        """
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, str(index))) for index, item in enumerate(node.value)]
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key == "<<":
                raise ConfigError(
                    f"{self._where}:{line}: {'.'.join(path) or 'the document'}: every key is a plain name; merge keys "
                    "(<<) and lists or mappings as keys are not taken"
                )
            here = (*path, key)
            if key in values:
                raise ConfigError(
                    f"{self._where}:{line}: {'.'.join(here)}: written twice, first on line {self._lines[here]}; "
                    "keep one"
                )
            self._lines[here] = line
            values[key] = self.value(value_node, here)
        return values


def _scalar(node: yaml.Node) -> Any:
    """Return a scalar's value by YAML 1.2: ``yes``, ``no``, ``0644``, ``1:30`` and dates stay texts."""
    text: str = node.value
    kind = node.tag.rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "int" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "float" and _DECIMAL.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text
