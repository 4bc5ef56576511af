"""A policy's rule on the log of access events: where it is, and whether a read may continue without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparkcrypt.errors import ConfigError, show
from sparkcrypt.paths import is_local, local_path
from sparkcrypt.policy.section import Section


@dataclass(frozen=True, slots=True)
class AccessLogRule:
    """The place to which access events are written.

    Attributes:
        location: absolute path of a folder, the same on every machine that reads.
        required: whether a key is handed out only after its event was written.
    """

    location: str
    required: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the rule in the form of a policy file, without defaults."""
        return {"location": self.location, **({"required": True} if self.required else {})}


def access_log_of(root: Section, resolve: Callable[[str], str]) -> AccessLogRule | None:
    """Return a policy's rule on the log of access events; None if it has none.

    Args:
        root: the policy's document.
        resolve: makes a relative path absolute.
    """
    section = root.optional("access_log")
    if section is None:
        return None
    text, required = section.text("location"), section.boolean("required", False)
    section.close()
    if not text:
        return None
    located = resolve(text)
    if not is_local(located):
        section.problem(
            "location",
            f"{show(located)} is on {located.partition(':')[0]}, and each reader appends to files of its own, which "
            "takes a file system of the machine; allowed: a path or a file: URI, on a local disk or one that is "
            "mounted",
        )
        return None
    try:
        path = local_path(located)
    except ConfigError as error:
        section.problem("location", str(error))
        return None
    if not path.startswith("/"):
        section.problem(
            "location", f"{show(located)} is no absolute path here; allowed: a path such as /var/log/access"
        )
    return AccessLogRule(path, required)
