"""Everything that is judged of a write before its files: one question for each moment at which Spark plans it.

`resolve_write` judges each file again, and trusts no answer of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkcrypt.decide.inherited_tags import check_inherited, check_lost
from sparkcrypt.decide.planned_writes import check_format, check_partitioning, check_sink
from sparkcrypt.decide.request import require_mapping
from sparkcrypt.decide.values_in_clear import check_bucketing, check_written, refuse_naming
from sparkcrypt.errors import BridgeError

_JUDGES = {
    "sink": check_sink,
    "lost": check_lost,
    "inherited": check_inherited,
    "partitioning": check_partitioning,
    "bucketing": check_bucketing,
    "written": check_written,
    "format": check_format,
    "naming": refuse_naming,
}


def judge_write(request: Mapping[str, Any]) -> dict[str, Any]:
    """Judge the aspects of a write that a request names, in its order, and return aspect -> answer.

    Args:
        request: ``aspects``: aspect -> the fields that its function has for itself.  All others are of every aspect:
            ``policy``, ``path``, ``properties``, ``schema``, ``table_schema``, ``sources``.

    Raises:
        PlanError, ConfigError: the first aspect that is refused; the message names what is refused, and why.
        BridgeError: there is no aspect, or one that is not known, by which nothing would be judged.
    """
    aspects = require_mapping(request, "aspects")
    if not aspects or not aspects.keys() <= _JUDGES.keys():
        raise BridgeError(f"the request's aspects are {', '.join(aspects) or 'none'}; allowed: {', '.join(_JUDGES)}")
    return {name: _JUDGES[name]({**request, **require_mapping(aspects, name)}) for name in aspects}
