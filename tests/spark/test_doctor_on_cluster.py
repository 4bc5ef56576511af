"""``sparkcrypt doctor`` on a cluster with Vault: well when all is there, and a line with the fix for what is broken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkcrypt import load_policy
from sparkcrypt.cli.setup.doctor import Check, Examination, _examine_keys
from sparkcrypt.keys.open_service import open_key_service
from sparkcrypt.policy.model import named_keys
from tests.conftest import or_skip
from tests.services.cluster import Cluster, start_cluster
from tests.services.installed import ROOT
from tests.services.processes import free_port
from tests.services.quick_java import quick_java

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.services, pytest.mark.slow]
POLICY = """
version: 1
key_service: {type: vault, max_retries: 0, timeout_seconds: 5}
footer: {key: doctor-footer, mode: encrypted}
untagged: plaintext
run_state: state/
tags:
  pii: {key: "doctor:pii"}
"""
NOWHERE = "/nowhere/python3"
Doctor = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture(scope="module")
def workers(java: dict[str, str], vault: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose workers hold Vault's token, as their executors will."""
    credentials = {"VAULT_ADDR": vault.address, "VAULT_TOKEN": vault.root_token}
    running = or_skip(start_cluster, tmp_path_factory.mktemp("doctor-cluster"), env=quick_java(credentials))
    yield running
    running.stop()


@pytest.fixture
def policy(vault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy whose keys are in Vault."""
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    monkeypatch.setenv("VAULT_ADDR", vault.address)
    monkeypatch.setenv("VAULT_TOKEN", vault.root_token)
    loaded = load_policy(file)
    service = open_key_service(loaded.key_service)
    for key_id in named_keys(loaded):
        service.create(key_id)
    return file


@pytest.fixture
def doctor(java: dict[str, str], private_jar: Path, vault: Any, policy: Path, tmp_path: Path) -> Doctor:
    """Runs the doctor and returns its exit code and its checks by name."""

    def run(master: str, *conf: str, **environment: str) -> tuple[int, dict[str, dict[str, Any]]]:
        settings = [
            "spark.ui.enabled=false",
            "spark.driver.host=127.0.0.1",
            "spark.driver.bindAddress=127.0.0.1",
            "spark.executor.memory=600m",
            f"spark.sql.warehouse.dir={(tmp_path / 'warehouse').as_uri()}",
            f"spark.driver.extraJavaOptions=-Dderby.system.home={tmp_path}",
            *conf,
        ]
        program = "from sparkcrypt.cli.main import main; main()"
        command = [sys.executable, "-c", program, "doctor", "--policy", str(policy), "--json", "--master", master]
        for setting in settings:
            command += ["--conf", setting]
        env = {**java, "PYTHONPATH": str(ROOT), "VAULT_ADDR": vault.address, "VAULT_TOKEN": vault.root_token}
        env |= {"SPARKCRYPT_JAR": str(private_jar), **environment}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=280)
        assert done.stdout, done.stderr[-3000:]
        assert vault.root_token not in done.stdout
        return done.returncode, {check["check"]: check for check in json.loads(done.stdout)}

    return run


def failed(checks: dict[str, dict[str, Any]]) -> list[str]:
    """Return the names of checks that failed, in their order."""
    return [name for name, check in checks.items() if not check["ok"]]


def test_all_is_well(doctor: Doctor, workers: Cluster) -> None:
    """Interpreters of driver and executors, Vault, its keys and a write under the policy are all told to be well."""
    code, checks = doctor(workers.master_url)
    assert (code, failed(checks)) == (0, []), checks
    assert workers.master_url in checks["spark"]["detail"]
    assert checks["key service"]["detail"].startswith("vault: answers")
    assert {"key doctor-footer", "key doctor:pii", "helper on the driver", "helper on executors"} <= set(checks)
    assert checks["write under the policy"]["detail"].startswith("2 tasks wrote and read rows")


def test_no_interpreter_on_executors(doctor: Doctor, workers: Cluster) -> None:
    """The driver's helper is well, the executors' is not; the line names what was tried and the setting."""
    code, checks = doctor(workers.master_url, f"spark.executorEnv.PYSPARK_PYTHON={NOWHERE}")
    assert (code, failed(checks)) == (70, ["helper on executors"]), checks
    line = checks["helper on executors"]
    assert NOWHERE in line["detail"]
    assert "spark.sparkcrypt.python=/path/to/python3, on every node" in line["fix"]
    assert "write under the policy" not in checks, "what needs a helper on executors is left out"


def test_executors_without_credentials(doctor: Doctor, workers: Cluster) -> None:
    """The driver may use every key, executors none: the line says whose environment lacks what."""
    code, checks = doctor(workers.master_url, "spark.executorEnv.VAULT_TOKEN=hvs.not-a-token")
    assert (code, failed(checks)) == (77, ["write under the policy"]), checks
    assert "every executor's environment" in checks["write under the policy"]["fix"]
    assert "KeyAccessDenied" in checks["write under the policy"]["detail"] or "denied" in str(checks)


def examined(policy: Path) -> tuple[int, dict[str, Check]]:
    """Return the exit code and the checks of the keys by name, which need no Spark."""
    examination = Examination(lambda _: None)
    assert not _examine_keys(examination, load_policy(policy))
    return examination.exit_code, {check.check: check for check in examination.checks}


def test_unreachable_vault(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the address, and says where to look."""
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("VAULT_ADDR", address)
    code, checks = examined(policy)
    assert (code, list(checks)) == (69, ["key service"]), "no key can be checked"
    assert address in checks["key service"].detail
    assert "address" in str(checks["key service"].fix)


def test_missing_key(policy: Path, vault: Any) -> None:
    """The line names the key, and the command that makes it."""
    names = vault.api("LIST", "transit/keys")["data"]["keys"]
    (name,) = [key for key in names if key.startswith("doctor") and key.endswith("pii")]
    vault.api("POST", f"transit/keys/{name}/config", {"deletion_allowed": True})
    vault.api("DELETE", f"transit/keys/{name}")
    code, checks = examined(policy)
    assert (code, [name for name, check in checks.items() if not check.ok]) == (69, ["key doctor:pii"]), checks
    assert "doctor:pii" in checks["key doctor:pii"].detail
    assert str(checks["key doctor:pii"].fix).startswith("sparkcrypt keys create doctor:pii")
