"""The footers of a target's files, read on the driver with the keys of its own key service."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sparkcrypt.backfill.units import SourceFile
from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import FormatError, KeyServiceError, SparkcryptError
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.service import open_key_service
from sparkcrypt.parquet import FileSummary, KeyRequest, inspect_file
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.spark.files import HadoopFiles

RetrieveKey = Callable[[KeyRequest], bytes]
_READERS = 4


@dataclass(frozen=True, slots=True)
class Footers:
    """What the footers of some files say, and what could not be read."""

    summaries: dict[str, FileSummary]
    errors: dict[str, SparkcryptError]


def own_keys(config: KeyServiceConfig) -> RetrieveKey:
    """Return a key retriever over a key service opened in this process."""
    opener = DataKeyOpener(open_key_service(config))
    return lambda request: opener.open(parse_key_material(request.key_metadata or b""))


@contextmanager
def fresh_keys(config: KeyServiceConfig) -> Iterator[RetrieveKey]:
    """Yield a key retriever over a helper process of its own, which no cache of this process can answer for."""
    with HelperClient(helper_command()) as helper:

        def retrieve(request: KeyRequest) -> bytes:
            answer = helper.call(
                "open_key",
                key_service=config.canonical(),
                key_metadata=base64.b64encode(request.key_metadata or b"").decode(),
            )
            return base64.b64decode(answer["key"])

        yield retrieve


def read_footers(files: HadoopFiles, sources: Iterable[SourceFile], retrieve_key: RetrieveKey) -> Footers:
    """Read the footer of each file; what cannot be read is reported, not raised."""

    def one(source: SourceFile) -> tuple[str, FileSummary | SparkcryptError]:
        try:
            with files.open(source.path) as stream:
                return source.path, replace(inspect_file(stream, retrieve_key=retrieve_key), path=source.path)
        except (FormatError, KeyServiceError) as error:
            return source.path, error

    with ThreadPoolExecutor(_READERS) as pool:
        found = dict(pool.map(one, sources))
    return Footers(
        {path: what for path, what in found.items() if isinstance(what, FileSummary)},
        {path: what for path, what in found.items() if isinstance(what, SparkcryptError)},
    )
