"""The key services that the behaviour suite runs over, and the real Vault that the others need."""

from __future__ import annotations

import os
import re
import secrets
import ssl
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.keys.service import KeyService
from sparkcrypt.policy.key_service import KeyServiceConfig
from tests.conftest import or_skip
from tests.services.fake_gcp_kms import FakeGcpKms
from tests.services.fake_key_vault import CLIENT, SECRET, TENANT, FakeKeyVault
from tests.services.hadoop_kms import HadoopKms, start_hadoop_kms
from tests.services.installed import ROOT
from tests.services.meddled_s3 import MeddledS3
from tests.services.vault_server import VaultServer

VAULT_VARIABLES = ("VAULT_ADDR", "VAULT_TOKEN", "VAULT_ROLE_ID", "VAULT_SECRET_ID", "VAULT_NAMESPACE", "VAULT_CACERT")
OpenVault = Callable[..., KeyService]


def opened(**document: Any) -> KeyService:
    """Open the key service of a policy's ``key_service`` document."""
    return open_key_service(KeyServiceConfig.from_dict(document))


@pytest.fixture(autouse=True)
def no_vault_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the credentials of whoever runs the tests out of them."""
    for name in VAULT_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def mount(vault: VaultServer) -> str:
    """A transit mount of the test's own."""
    name = f"team/{secrets.token_hex(6)}"
    vault.api("POST", f"sys/mounts/{name}", {"type": "transit"})
    return name


@pytest.fixture
def open_vault(vault: VaultServer, mount: str, monkeypatch: pytest.MonkeyPatch) -> OpenVault:
    """Opens a key service on that mount with a token, the root token unless another is given."""

    def open_with(token: str | None = None, **options: Any) -> KeyService:
        monkeypatch.setenv("VAULT_TOKEN", token or vault.root_token)
        return opened(type="vault", address=vault.address, mount_point=mount, **options)

    return open_with


@pytest.fixture(scope="session")
def aws_server() -> Iterator[MeddledS3]:
    """Moto's server in this process: it serves KMS, STS and IAM beside S3."""
    from botocore import session as core
    from moto.kms import models
    from moto.kms.utils import generate_private_key

    with pytest.MonkeyPatch.context() as patch:
        # Moto makes a pair of RSA for each symmetric key as well, and each session of botocore reads its data anew.
        patch.setattr(models, "generate_private_key", lru_cache(generate_private_key))
        patch.setattr(core, "create_loader", lru_cache(core.create_loader))
        running = MeddledS3()
        yield running
        running.stop()


OpenAws = Callable[..., KeyService]


@pytest.fixture
def open_aws(aws_server: MeddledS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAws]:
    """Opens a key service over that server, with aliases of the test's own."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    nowhere = {"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}
    credentials = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in {**nowhere, **credentials, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws_server.endpoint)
    prefix = f"test-{secrets.token_hex(6)}/"

    def open_with(**options: Any) -> KeyService:
        document = {"region": "eu-west-1", "endpoint": aws_server.endpoint, "alias_prefix": prefix, **options}
        return opened(type="aws", **{name: value for name, value in document.items() if value is not None})

    yield open_with
    aws_server.meddle = None


@pytest.fixture(scope="session")
def hadoop_kms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HadoopKms]:
    """A real Hadoop KMS."""
    running = or_skip(start_hadoop_kms, tmp_path_factory.mktemp("hadoop-kms"))
    yield running
    running.stop()


OpenHadoop = Callable[..., KeyService]


@pytest.fixture
def open_hadoop(hadoop_kms: HadoopKms) -> OpenHadoop:
    """Opens a key service over that KMS, with key names of the test's own, as a user who may do all."""
    prefix = f"test{secrets.token_hex(6)}-"

    def open_with(**options: Any) -> KeyService:
        usual = {"address": hadoop_kms.address, "auth": {"method": "simple", "user": "etl"}, "name_prefix": prefix}
        return opened(type="hadoop", **{**usual, **options})

    return open_with


@pytest.fixture(scope="session")
def gcp_server() -> Iterator[FakeGcpKms]:
    """A fake of Google Cloud KMS."""
    running = FakeGcpKms()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def gcp_account(gcp_server: FakeGcpKms, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key file of a service account that may do all."""
    return gcp_server.make_account("etl", tmp_path_factory.mktemp("gcp") / "etl.json")


OpenGcp = Callable[..., KeyService]


@pytest.fixture
def open_gcp(gcp_server: FakeGcpKms, gcp_account: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenGcp]:
    """Opens a key service over that fake, with a key ring of the test's own."""
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "GCE_", "CLOUDSDK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(gcp_account))
    ring = gcp_server.make_ring()

    def open_with(**options: Any) -> KeyService:
        document = {"key_ring": ring, "endpoint": gcp_server.address, **options}
        return opened(type="gcp", **{name: value for name, value in document.items() if value is not None})

    yield open_with
    gcp_server.meddle = None
    gcp_server.denied.clear()


@pytest.fixture(scope="session")
def vault_authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, str]:
    """The TLS settings of the fake of Azure Key Vault, and the file that its clients trust."""
    from tests.unit.keys.vault_proxy import Authority

    folder, authority = tmp_path_factory.mktemp("azure"), Authority("azure")
    return authority.server_context(folder), authority.bundle(folder / "ca.pem")


@pytest.fixture(scope="session")
def key_vault(vault_authority: tuple[ssl.SSLContext, str]) -> Iterator[FakeKeyVault]:
    """A fake of Azure Key Vault, over TLS: Azure's library asks for tokens over nothing else."""
    running = FakeKeyVault(vault_authority[0])
    yield running
    running.stop()


OpenAzure = Callable[..., KeyService]


@pytest.fixture
def open_azure(
    key_vault: FakeKeyVault, vault_authority: tuple[ssl.SSLContext, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenAzure]:
    """Opens a key service over that fake, which is empty, by a client secret in the environment."""
    for name in [name for name in os.environ if name.startswith(("AZURE_", "MSI_", "IDENTITY_"))]:
        monkeypatch.delenv(name)
    credential = {"AZURE_TENANT_ID": TENANT, "AZURE_CLIENT_ID": CLIENT, "AZURE_CLIENT_SECRET": SECRET}
    trust = {"AZURE_AUTHORITY_HOST": key_vault.address, "REQUESTS_CA_BUNDLE": vault_authority[1]}
    for name, value in {**credential, **trust}.items():
        monkeypatch.setenv(name, value)

    def open_with(**options: Any) -> KeyService:
        return opened(type="azure", **{"address": key_vault.address, "ca_bundle": vault_authority[1], **options})

    yield open_with
    key_vault.clear()


STORING = [
    pytest.param("local", id="local"),
    pytest.param("vault", id="vault", marks=pytest.mark.services),
    pytest.param("aws", id="aws"),
    pytest.param("hadoop", id="hadoop", marks=pytest.mark.services),
    pytest.param("gcp", id="gcp"),
    pytest.param("azure", id="azure"),
    pytest.param("passphrase", id="passphrase"),
]


@pytest.fixture(params=STORING)
def storing(request: pytest.FixtureRequest, tmp_path: Path) -> KeyService:
    """A key service that stores its keys: every one that is meant for data, and the one of CONTRIBUTING.md."""
    return _open(request, tmp_path)


@pytest.fixture(params=[*STORING, pytest.param("ephemeral", id="ephemeral")])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> KeyService:
    """Every key service."""
    return _open(request, tmp_path)


def _open(request: pytest.FixtureRequest, tmp_path: Path) -> KeyService:
    folder = str(tmp_path / "keys")
    if request.param == "ephemeral":
        return opened(type="ephemeral", secret=secrets.token_hex(32))
    if request.param == "local":
        return opened(type="local", path=folder)
    if request.param == "passphrase":
        install_contributed(tmp_path / "site", request.getfixturevalue("monkeypatch"))
        return opened(type="passphrase", path=folder)
    return request.getfixturevalue(f"open_{request.param}")()  # type: ignore[no-any-return]


def install_contributed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the key service that CONTRIBUTING.md shows where an installed package would be, with its entry point."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    module = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    declared = re.search(r"^```toml\n\[project\.entry-points\.\"(.+)\"\]\n(\w+) = \"(.+)\"\n```", text, re.MULTILINE)
    assert module is not None
    assert declared is not None
    information = site / "passphrase_keys-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "passphrase_keys.py").write_text(module[1])
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: passphrase-keys\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{declared[1]}]\n{declared[2]} = {declared[3]}\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "passphrase_keys", raising=False)
    monkeypatch.setenv("KEYS_PASSPHRASE", "correct horse battery staple")
