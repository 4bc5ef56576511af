"""The footers of a target's files, read on the driver with the keys of its own key service."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sparkcrypt.backfill.codec import codecs_of
from sparkcrypt.backfill.units import SourceFile
from sparkcrypt.bridge.client import HelperClient, helper_command
from sparkcrypt.errors import FormatError, KeyServiceError, SparkcryptError
from sparkcrypt.keys.datakeys import DataKeyOpener
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.service import open_key_service
from sparkcrypt.parquet import FileSummary, Footer, KeyRequest, read_footer, summarise
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.spark.files import HadoopFiles

RetrieveKey = Callable[[KeyRequest], bytes]
_READERS = 4


@dataclass(frozen=True, slots=True)
class Footers:
    """What the footers of some files say, the codecs of their column chunks, and what could not be read."""

    summaries: dict[str, FileSummary]
    codecs: dict[str, Mapping[str, int]]
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

    def one(source: SourceFile) -> tuple[str, Footer | SparkcryptError]:
        try:
            with files.open(source.path) as stream:
                return source.path, replace(read_footer(stream, retrieve_key=retrieve_key), file=source.path)
        except (FormatError, KeyServiceError) as error:
            return source.path, error

    with ThreadPoolExecutor(_READERS) as pool:
        found = dict(pool.map(one, sources))
    footers = {path: what for path, what in found.items() if isinstance(what, Footer)}
    return Footers(
        {path: summarise(footer) for path, footer in footers.items()},
        {path: codecs_of(footer) for path, footer in footers.items()},
        {path: what for path, what in found.items() if isinstance(what, SparkcryptError)},
    )
