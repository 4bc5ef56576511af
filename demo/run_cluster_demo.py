"""The demo on real services of this machine: a Hive metastore, a standalone cluster of two workers, and Vault."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import hvac
from showcase import HERE, ROOT, DemoError, Showcase, console, fresh

sys.path.insert(0, str(ROOT))

from tests.services import ServiceFailedError, ServiceUnavailableError
from tests.services.cluster import start_cluster
from tests.services.metastore import start_metastore
from tests.services.vault_server import start_vault

WORK = HERE / "work-cluster"
RULES = {
    "engineer": """path "transit/*" { capabilities = ["create", "read", "update", "list"] }""",
    "reader": """
        path "transit/keys/*" { capabilities = ["read"] }
        path "transit/decrypt/footer" { capabilities = ["update"] }
        path "transit/decrypt/commercial" { capabilities = ["update"] }
    """,
}


def main() -> int:
    """Start the services, run the demo, stop the services; return the exit code."""
    work = fresh(WORK)
    try:
        with ExitStack() as stack:
            vault = start_vault()
            stack.callback(vault.stop)
            tokens = grant(vault.address, vault.root_token)
            metastore = start_metastore(work)
            stack.callback(metastore.stop)
            # Executors inherit the worker's environment, and their helper finds its credentials there.
            engineer = {"VAULT_ADDR": vault.address, "VAULT_TOKEN": tokens["engineer"]}
            cluster = start_cluster(work, env={**engineer, "PYSPARK_PYTHON": sys.executable})
            stack.callback(cluster.stop)
            defaults = {**metastore.spark_conf(), **properties(cluster.master_url)}
            demo = Showcase(work, policy(work), defaults, engineer)
            demo.prepare()
            local = {**defaults, "spark.master": "local[1]"}
            reader = Showcase(fresh(work / "reader"), demo.policy, local, {**engineer, "VAULT_TOKEN": tokens["reader"]})
            reader.prepare()
            demo.show(reader)
    except (DemoError, ServiceUnavailableError, ServiceFailedError) as error:
        console.print(f"The demo failed: {error}", style="red", markup=False)
        return 1
    return 0


def grant(address: str, root_token: str) -> dict[str, str]:
    """Write Vault's policies and return a token for each."""
    client = hvac.Client(url=address, token=root_token)
    tokens = {}
    for name, rules in RULES.items():
        client.sys.create_or_update_policy(name, rules)
        tokens[name] = client.auth.token.create(policies=[name], ttl="1h")["auth"]["client_token"]
    return tokens


def policy(work: Path) -> Path:
    """Return the demo's policy with Vault as its key service."""
    text = (
        (HERE / "policy.yaml")
        .read_text()
        .replace("{type: local, path: work/keys}", "{type: vault, mount_point: transit}")
    )
    path = work / "policy.yaml"
    path.write_text(text.replace("work/state", "state"))
    return path


def properties(master: str) -> dict[str, str]:
    """Return Spark's properties besides the metastore's."""
    return {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "768m",
    }


if __name__ == "__main__":
    sys.exit(main())
