"""A local key service with the keys that tests of stores take."""

from __future__ import annotations

from pathlib import Path

from sparkcrypt.files.parquet import KeyRequest
from sparkcrypt.keys.datakeys import DataKeyMaker, DataKeyOpener
from sparkcrypt.keys.material import parse_key_material
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig
from sparkcrypt.skipping.trusted.sidecar import StoreKeys


class Keys:
    """A local key service, what makes keys by it, and what opens them; some may be denied."""

    def __init__(self, folder: Path) -> None:
        self.service: KeyService = open_key_service(KeyServiceConfig.from_dict({"type": "local", "path": str(folder)}))
        for key_id in ("footer", "pii", "arn:aws:kms:eu:1:key/x", "other"):
            self.service.create(key_id)
        columns = {"ssn": "pii", "e.mail": "arn:aws:kms:eu:1:key/x"}
        self.keys = StoreKeys(DataKeyMaker(self.service, data_key_bits=128), "footer", columns)
        self.opener = DataKeyOpener(self.service)

    def __call__(self, request: KeyRequest) -> bytes:
        """Return a data key."""
        return self.opener.open(parse_key_material(request.key_metadata or b""))
