"""ORC's own Java code, from pyspark's jars: writes the files that tests read, and reads what was rewritten."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.services.installed import java_home, spark_home

SCHEMA = (
    "struct<id:bigint,b:boolean,t:tinyint,s:smallint,i:int,l:bigint,f:float,d:double,name:string,other:string,bin:binary,"
    "ts:timestamp,tz:timestamp with local time zone,dec:decimal(30,3),small:decimal(10,2),day:date,vc:varchar(20),"
    "ch:char(5),st:struct<x:int,y:string,deep:struct<z:string>>,li:array<struct<num:string,n:int>>,kv:map<string,int>,"
    "un:uniontype<int,string>>"
)
CODECS = ("NONE", "ZLIB", "SNAPPY", "ZSTD", "LZ4")


@dataclass(frozen=True)
class WriteOrder:
    """One file to write; ``encrypt``, ``masks``, ``version`` as ORC's options, ``keys`` a file of `key_lines`."""

    path: Path
    schema: str = SCHEMA
    rows: int = 5200
    stripe_rows: int = 2500
    stride: int = 1000
    codec: str = "ZLIB"
    encrypt: str = ""
    masks: str = ""
    blooms: str = ""
    keys: Path | None = None
    version: str = "V_0_12"

    def line(self) -> str:
        """Return the order as the program takes it."""
        numbers = map(str, (self.rows, self.stripe_rows, self.stride))
        rest = (self.codec, self.encrypt, self.masks, self.blooms, str(self.keys or "-"), self.version)
        return "\t".join(("write", str(self.path), self.schema, *numbers, *rest))


@dataclass(frozen=True)
class ReadColumn:
    """What Java read of a top-level column: a digest of its values, how many are null, and its file statistics."""

    digest: str
    nulls: int
    statistics: str


class JavaOrc(AbstractContextManager["JavaOrc"]):
    """The program, compiled once; one JVM carries out all commands, until the block ends."""

    def __init__(self, folder: Path) -> None:
        jars = spark_home() / "jars"
        names = ("orc-*.jar", "hive-storage-api-*.jar", "hadoop-client-*.jar", "slf4j-api-*.jar", "aircompressor-*.jar")
        more = (
            "zstd-jni-*.jar",
            "commons-lang3-*.jar",
            "threeten-extra-*.jar",
            "snappy-java-*.jar",
            "*lz4*.jar",
            "jts-core-*.jar",
        )
        found = [jar for name in (*names, *more) for jar in jars.glob(name)]
        self._classpath = ":".join(map(str, [folder, *found]))
        self._errors = folder / "errors"
        self._zone: str | None = None
        self._running: subprocess.Popen[str] | None = None
        source = Path(__file__).with_name("OrcFiles.java")
        javac, options = java_home() / "bin" / "javac", ["-nowarn", "-cp", self._classpath]
        subprocess.run([javac, *options, "-d", folder, source], check=True, capture_output=True)

    def __exit__(self, *_: object) -> None:
        """End the JVM."""
        if self._running is not None:
            self._running.communicate()
            self._running = None

    def run(self, lines: Iterable[str]) -> list[str]:
        """Carry out commands; returns the lines that it printed."""
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("".join(f"{line}\n" for line in (*lines, "")))
        process.stdin.flush()
        printed: list[str] = []
        for line in process.stdout:
            if line == "\n":
                return printed
            printed.append(line.removesuffix("\n"))
        self.__exit__()
        raise AssertionError(self._errors.read_text()[-3000:])

    def _start(self) -> subprocess.Popen[str]:
        """Return the JVM that runs, or a new one where the environment names another time zone than its own."""
        if self._running is None or self._zone != os.environ.get("TZ"):
            self.__exit__()
            self._zone = os.environ.get("TZ")
            options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", self._classpath]
            with self._errors.open("w") as errors:
                self._running = subprocess.Popen(
                    [java_home() / "bin" / "java", *options, "OrcFiles"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
        return self._running

    def write(self, orders: Sequence[WriteOrder]) -> None:
        """Write files."""
        self.run(order.line() for order in orders)

    def read(self, paths: Sequence[Path], keys: Path | None) -> list[dict[str, ReadColumn]]:
        """Read files, with keys or without; returns of each what stands in its columns."""
        return self.read_each([(path, keys) for path in paths])

    def read_each(self, files_and_keys: Iterable[tuple[Path, Path | None]]) -> list[dict[str, ReadColumn]]:
        """Read files, each with its own keys or without; returns of each what stands in its columns."""
        files: list[dict[str, ReadColumn]] = []
        columns: dict[str, ReadColumn] = {}
        for line in self.run(f"read\t{path}\t{keys or '-'}" for path, keys in files_and_keys):
            name, *rest = line.split("\t")
            if name == "done":
                files.append(columns)
                columns = {}
            else:
                columns[name] = ReadColumn(rest[0], int(rest[1]), rest[2])
        return files


def key_lines(keys: Iterable[tuple[str, bytes, bytes]]) -> str:
    """Return (name, wrapped key, key) as the program takes them."""
    return "".join(f"{name} {wrapped.hex()} {key.hex()}\n" for name, wrapped, key in keys)
