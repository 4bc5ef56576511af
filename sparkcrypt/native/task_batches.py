"""What an executor runs: batches of orders in, batches of outcomes out (``DataFrame.mapInArrow``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from sparkcrypt.native.open_places import Settings
from sparkcrypt.native.orders import KeySettings, Order, order_from_dict
from sparkcrypt.native.work import rewrite

if TYPE_CHECKING:
    from pyarrow import RecordBatch

OUTCOME_SCHEMA = "outcome string"


def rewriter(
    orders: tuple[Order, ...], keys: KeySettings, settings: Settings
) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    """Return a function for ``mapInArrow`` over a column ``id``, each value the place of an order in ``orders``."""
    texts = tuple(json.dumps(order.to_dict()) for order in orders)
    return partial(_run, texts, keys.to_json(), dict(settings))


def _run(
    orders: tuple[str, ...], keys: str, settings: Settings, batches: Iterable[RecordBatch]
) -> Iterator[RecordBatch]:
    import pyarrow as pa

    key_settings = KeySettings.from_json(keys)
    for batch in batches:
        for place in batch.column(0).to_pylist():
            outcome = rewrite(order_from_dict(json.loads(orders[place])), key_settings, settings)
            yield pa.RecordBatch.from_pydict({"outcome": [outcome.to_json()]})
