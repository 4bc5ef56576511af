"""What the scripts of these tests share: a classic session with the jar in it, and a look at its helper processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def start(jar: str, **conf: str) -> SparkSession:
    """Start a local session with two task threads; a dot in a name of ``conf`` is written as two underscores."""
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    options = {"spark.master": "local[2]", "spark.sparkcrypt.python": sys.executable}
    options.update({name.replace("__", "."): value for name, value in conf.items()})
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    machine: Any = spark._jvm
    machine.java.lang.Thread.currentThread().getContextClassLoader().addURL(machine.java.io.File(jar).toURI().toURL())
    spark.sparkContext._jsc.addJar(jar)
    return spark


def configure(spark: SparkSession, policy: str) -> None:
    """Put the session under a policy."""
    spark.conf.set("parquet.crypto.factory.class", "io.sparkcrypt.SchemaTagCryptoFactory")
    spark.conf.set("parquet.encryption.kms.client.class", "io.sparkcrypt.BridgeKmsClient")
    spark.conf.set("spark.sql.sources.commitProtocolClass", "io.sparkcrypt.IdentityCommitProtocol")
    spark.conf.set("parquet.sparkcrypt.policy", policy)
    spark.conf.set("parquet.sparkcrypt.session_token", registered(spark, policy))


def registered(spark: SparkSession, policy: str) -> str:
    """Register a policy as ``sparkcrypt.configure`` does, and return its token."""
    machine: Any = spark._jvm
    return str(machine.io.sparkcrypt.PolicyRegister(spark.sparkContext._jsc.sc()).add(policy))


def kms(spark: SparkSession, key_service: str) -> Any:
    """Return a KmsClient of this JVM."""
    machine: Any = spark._jvm
    conf = machine.org.apache.hadoop.conf.Configuration(False)
    conf.set("parquet.sparkcrypt.key_service", key_service)
    conf.set(
        "parquet.sparkcrypt.session_token", registered(spark, json.dumps({"key_service": json.loads(key_service)}))
    )
    client = machine.io.sparkcrypt.BridgeKmsClient()
    client.initialize(conf, "DEFAULT", "DEFAULT", "DEFAULT")
    return client


def failure(call: Any, *arguments: Any) -> str:
    """Return the Java exception that a call ends with and its causes, as text, or ``""``."""
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001  # the test looks at what it is
        java, chain = getattr(error, "java_exception", None), []
        while java is not None:
            chain.append(str(java.toString()))
            java = java.getCause()
        return "\n".join(chain) or str(error)
    return ""


def jvm_pid(spark: SparkSession) -> int:
    """Return the process id of the session's JVM."""
    machine: Any = spark._jvm
    return int(machine.java.lang.ProcessHandle.current().pid())


def children_with(parent: int, text: str) -> list[int]:
    """Return the processes that a process started whose command line holds a text."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split() if folder.name.isdigit() else []
            if fields and int(fields[1]) == parent and fields[0] != "Z" and text in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
    return found


def tell(**result: Any) -> None:
    """Print the script's result: the last line of its output."""
    sys.stdout.write("\n" + json.dumps(result) + "\n")
    sys.stdout.flush()
