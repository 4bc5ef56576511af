"""Policy files: strict YAML, every key with the line where it stands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.build import policy_from_document
from sparkcrypt.policy.model import Policy
from sparkcrypt.policy.section import KeyPath

MAX_BYTES = 1 << 20


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """Load and check a policy file.

    Args:
        path: a local path or ``file:`` URI.  A policy on another file system is read by the caller and given to
            ``policy_from_text``.

    Raises:
        ConfigError: the file cannot be read or is not a policy; one line for each problem, with file, line and key path.
    """
    text = os.fspath(path)
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    elif "://" in text:
        raise ConfigError(f"policy {text}: this command reads local files only; allowed: a path, or a file: URI")
    try:
        content = Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"policy {text}: cannot be read ({reason}); give the path of a policy file") from error
    return policy_from_text(content, where=text, base=str(Path(text).absolute().parent))


def policy_from_text(text: str, *, where: str, base: str) -> Policy:
    """Check the text of a policy file.

    Args:
        text: YAML.
        where: the file's name, for messages.
        base: folder (path or URI) against which relative paths stand.

    Raises:
        ConfigError: one line for each problem.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{where}: larger than {MAX_BYTES} bytes; that is no policy file")
    reader = _Reader(where)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        document = reader.value(node, ()) if node is not None else {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: not YAML: {getattr(error, 'problem', None) or 'it cannot be parsed'}") from error
    return policy_from_document(document, locate=reader.locate, resolve=lambda relative: _absolute(relative, base))


def _absolute(relative: str, base: str) -> str:
    """Make a path of the policy absolute; URIs stay, and a base that is a URI gives a URI."""
    if "://" in relative or relative.startswith(("file:", "/")):
        return relative
    if "://" in base:
        return f"{base.rstrip('/')}/{relative}"
    return os.path.normpath(Path(base) / relative)


class _Reader:
    """Turns YAML nodes into values and remembers the line of every key path."""

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
            ConfigError: a duplicate key, an alias, or a key that is no text.
        """
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, str(index))) for index, item in enumerate(node.value)]
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node)  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it out
        finally:
            loader.dispose()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it out

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            here = (*path, str(key))
            line = key_node.start_mark.line + 1
            if not isinstance(key, str) or key == "<<":
                raise ConfigError(f"{self._where}:{line}: {'.'.join(path) or 'the document'}: every key is a plain name")
            if key in values:
                raise ConfigError(
                    f"{self._where}:{line}: {'.'.join(here)}: written twice, first on line {self._lines[here]}; keep one"
                )
            self._lines[here] = line
            values[key] = self.value(value_node, here)
        return values
