"""S3 for tests: moto's server on 127.0.0.1, and the jars with which Spark reaches it as ``s3a://``.

Hadoop depends on the whole AWS SDK in one jar of 600 MB; the modules that s3a loads are 12 MB.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.services import ServiceUnavailableError
from tests.services.hdfs import VERSION
from tests.services.installed import spark_home
from tests.services.maven import Jar, fetched_folder
from tests.services.processes import LOCAL, ServiceProcess, answers, free_port, start_process, wait_until

START_SECONDS = 60.0
SDK = "2.35.4"
"""The version in the project file of Hadoop's release."""
_SDK_JARS = {
    "annotations": "6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8",
    "apache-client": "6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740",
    "arns": "c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380",
    "auth": "6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994",
    "aws-core": "fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623",
    "aws-query-protocol": "9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f",
    "aws-xml-protocol": "4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d",
    "checksums": "94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948",
    "checksums-spi": "88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec",
    "endpoints-spi": "ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00",
    "http-auth": "3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491",
    "http-auth-aws": "c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01",
    "http-auth-aws-eventstream": "709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd",
    "http-auth-spi": "4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c",
    "http-client-spi": "728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb",
    "identity-spi": "188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf",
    "json-utils": "80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc",
    "metrics-spi": "c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487",
    "profiles": "0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8",
    "protocol-core": "f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5",
    "regions": "77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca",
    "retries": "f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469",
    "retries-spi": "668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd",
    "s3": "f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc",
    "s3-transfer-manager": "0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476",
    "sdk-core": "fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4",
    "third-party-jackson-core": "32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea",
    "utils": "642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8",
    "utils-lite": "e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be",
}
S3A_JARS = (
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        "analyticsaccelerator-s3",
        "1.3.1",
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
    ),
    Jar(
        "software.amazon.eventstream",
        "eventstream",
        "1.0.1",
        "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822",
    ),
    Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        VERSION,
        "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
    ),
    Jar(
        "org.reactivestreams",
        "reactive-streams",
        "1.0.4",
        "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
    ),
    *(Jar("software.amazon.awssdk", name, SDK, sha256) for name, sha256 in _SDK_JARS.items()),
)


@dataclass(frozen=True, slots=True)
class S3:
    """A running server, which accepts any credentials and is empty at first."""

    endpoint: str
    process: ServiceProcess

    def stop(self) -> None:
        """End the process and lose its contents."""
        self.process.stop()


def start_s3(work_dir: Path) -> S3:
    """Start a server; return when it accepts requests.

    Raises:
        ServiceFailedError: it did not become ready.
    """
    port = free_port()
    command: list[str | Path] = [sys.executable, "-m", "moto.server", "-H", LOCAL, "-p", str(port)]
    process = start_process("s3", command, work_dir, dict(os.environ))
    wait_until(lambda: answers(f"http://{LOCAL}:{port}/"), process, START_SECONDS)
    return S3(f"http://{LOCAL}:{port}", process)


def s3a_jars() -> tuple[Path, ...]:
    """Return the jars of ``s3a://``; fetch them if they are missing.

    Raises:
        ServiceUnavailableError: Spark's Hadoop is another release, or a jar cannot be fetched or is not the known one.
    """
    if not (spark_home() / "jars" / f"hadoop-client-runtime-{VERSION}.jar").exists():
        raise ServiceUnavailableError(f"no s3a: this Spark does not ship the client of Hadoop {VERSION}")
    folder = fetched_folder(f"s3a-{VERSION}", S3A_JARS)
    return tuple(folder / jar.file for jar in S3A_JARS)


if __name__ == "__main__":
    print(*s3a_jars(), sep="\n")
