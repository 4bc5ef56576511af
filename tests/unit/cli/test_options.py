"""Options of commands: their help, the lines of configuration, and when Spark is needed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner

import sparkcrypt
from sparkcrypt.cli.frame.command_context import Workplace, check_writable
from sparkcrypt.cli.frame.options import POLICY_VARIABLE, SIZE, Launch, option, options_from, spark_options, use
from sparkcrypt.cli.main import cli
from sparkcrypt.cli.runs.backfill import BackfillOptions
from sparkcrypt.cli.runs.rotate import RotateOptions
from sparkcrypt.cli.tables.encrypt import EncryptOptions
from sparkcrypt.errors import ConfigError
from sparkcrypt.paths import is_local
from sparkcrypt.policy.load import load_policy
from sparkcrypt.runs.passes.passes import PassOptions
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.spark.setup import command_session
from sparkcrypt.spark.setup.command_session import require_pyspark, spark_session
from tests.services.installed import ROOT
from tools.write_commands_page import PAGE, render_page

from .conftest import run

OWN = {"as_json", "launch", "policy", "report"}


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of several commands."""

    size: int | None = option("How much.", type=SIZE)
    launch: Launch = use(spark_options)


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    """Options of one."""

    source: str = use(click.argument("source"))
    dry_run: bool = option("Do nothing.")
    names: tuple[str, ...] = option("Whose.", "--name", default=("a",), show_default=True)


def call(*arguments: str) -> tuple[list[Options], str]:
    """Return what a command with these options got, and its output."""
    got: list[Options] = []

    @click.command()
    @options_from(Options)
    def command(options: Options) -> None:
        got.append(options)

    return got, CliRunner().invoke(command, arguments).output


def test_fields_give_the_options_of_a_command() -> None:
    """Names and types of fields give the options, and the command gets one value; defaults are those of the options."""
    assert call("x")[0] == [Options(source="x", dry_run=False, names=("a",), size=None, launch=Launch())]
    given = call("x", "--dry-run", "--name", "b", "--name", "c", "--size", "2kb", "--conf", "k=v")[0]
    expected = Options(source="x", dry_run=True, names=("b", "c"), size=2000, launch=Launch(conf=(("k", "v"),)))
    assert given == [expected]
    assert "--names" in call("x", "--names", "b")[1]


def test_help_shows_the_options_of_a_command_before_common_ones() -> None:
    """Who reads the help is there for this command."""
    shown = call("--help")[1]
    assert [shown.index(name) for name in ("--dry-run", "--name", "--size", "--master")] == sorted(
        shown.index(name) for name in ("--dry-run", "--name", "--size", "--master")
    )


@pytest.mark.parametrize(
    ("options", "own", "further"),
    [
        (EncryptOptions, {"table", "path", "avro_schema", "plan_file"}, (RunOptions,)),
        (BackfillOptions, {"tables", "databases", "path", "html"}, (RunOptions, PassOptions)),
        (
            RotateOptions,
            {"tables", "databases", "key_id", "successor", "keep_version", "compromised"},
            (RunOptions, PassOptions),
        ),
    ],
)
def test_every_option_of_a_command_is_one_of_its_run(options: Any, own: set[str], further: tuple[Any, ...]) -> None:
    """No option is lost on the way for having another name: what the command itself does not read, a run does."""
    of_runs = {known.name for kind in further for known in fields(kind)}
    assert {known.name for known in fields(options)} - of_runs == OWN | own


def test_the_lines_hold_the_whole_policy(policy: Path) -> None:
    """Each line is a name and a value, and the policy survives being read as a Java properties file."""
    done = run("conf", "--policy", policy, "--jar", "/lib/s.jar", "--python", "/usr/bin/python3")
    assert "people who may read these columns read spark.eventLog.dir" in done.errors
    lines = done.output.splitlines()
    found = dict(line.split(" ", 1) for line in lines)
    assert found["spark.jars"] == found["spark.driver.extraClassPath"] == "/lib/s.jar"
    assert found["spark.sparkcrypt.python"] == "/usr/bin/python3"
    canonical = found["spark.hadoop.parquet.sparkcrypt.policy"].replace("\\\\", "\\")
    assert canonical == load_policy(policy).canonical()
    assert all(name.startswith("spark.") for name in found)


def test_json_holds_the_same(policy: Path) -> None:
    """As JSON the values stand as they are, without a properties file's escapes."""
    found = run("conf", "--policy", policy, "--jar", "/lib/s.jar", "--json").document
    assert json.loads(found["spark.hadoop.parquet.sparkcrypt.policy"])["version"] == 1
    assert "spark.sparkcrypt.python" not in found


def test_the_site_file_holds_the_policy(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM without Spark gets the policy and the helper's interpreter, in Hadoop's form; it needs no jar here."""
    monkeypatch.setenv("SPARKCRYPT_JAR", "nosuch.jar")
    policy.write_text(policy.read_text() + "ask_for_access: a <b> & c\n")
    done = run("conf", "--policy", policy, "--python", "/usr/bin/python3", "--site")
    written = ElementTree.fromstring(done.output)
    expected = {"parquet.sparkcrypt.policy": load_policy(policy).canonical(), "sparkcrypt.python": "/usr/bin/python3"}
    assert {entry.findtext("name"): entry.findtext("value") for entry in written} == expected
    assert run("conf", "--policy", policy, "--python", "/usr/bin/python3", "--site", "--json").document == expected


def test_a_site_file_has_one_credential_and_no_jar(policy: Path) -> None:
    """What would mean nothing there is refused."""
    assert run("conf", "--policy", policy, "--site", "--jar", "/lib/s.jar").code == 64
    policy.write_text(
        re.sub(r"key_service: .*", "key_service: {type: local, path: 'of/{principal}'}", policy.read_text())
    )
    done = run("conf", "--policy", policy, "--site")
    assert done.code == 78
    assert "one credential for all" in done.errors


def test_a_jar_that_was_not_built_is_70(policy: Path, monkeypatch: object, tmp_path: Path) -> None:
    """Without a jar there is nothing to configure, and the message says how to get one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARKCRYPT_JAR", str(tmp_path / "nosuch.jar"))
        done = run("conf", "--policy", policy)
    assert done.code == 70
    assert "make jar" in done.errors


def test_a_credential_of_a_server_of_many_users_is_named(policy: Path) -> None:
    """The lines stay as they are; stderr says what the server's environment must not have."""
    text = policy.read_text()
    service = "key_service: {type: vault, address: 'https://vault:8200', namespace: 'of/{principal}'}"
    policy.write_text(re.sub(r"key_service: .*", service, text))
    done = run("conf", "--policy", policy, "--jar", "/lib/s.jar")
    assert "without VAULT_TOKEN" in done.errors
    assert "spark.sparkcrypt.helper.environment" in done.errors
    assert all(line.startswith("spark.") for line in done.output.splitlines())
    policy.write_text(text)
    assert "VAULT_TOKEN" not in run("conf", "--policy", policy, "--jar", "/lib/s.jar").errors


def test_jobs_are_where_the_command_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder is the checkout's, or that of an installed wheel, where there are jobs for spark-submit."""
    folder = Path(run("jobs").output.strip())
    assert {"encrypt_table.py", "backfill.py", "rotate_keys.py"} <= {job.name for job in folder.glob("*.py")}
    assert run("jobs", "--json").document == {
        "folder": str(folder),
        "jobs": sorted(p.name for p in folder.glob("*.py")),
    }
    (tmp_path / "sparkcrypt").mkdir()
    monkeypatch.setattr(sparkcrypt, "__file__", str(tmp_path / "sparkcrypt" / "__init__.py"))
    lacking = run("jobs")
    assert (lacking.code, "install anew" in lacking.errors) == (78, True)
    (tmp_path / "sparkcrypt" / "jobs").mkdir()
    (tmp_path / "sparkcrypt" / "jobs" / "encrypt_table.py").touch()
    assert run("jobs").output.strip() == str(tmp_path / "sparkcrypt" / "jobs")


@pytest.fixture
def no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that has no pyspark."""
    monkeypatch.setattr(command_session, "find_spec", lambda name: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)


@pytest.mark.usefixtures("no_pyspark")
@pytest.mark.parametrize(
    "arguments",
    [("plan", "--table", "d.t"), ("encrypt", "--table", "d.t"), ("verify", "--table", "d.t")],
    ids=" ".join,
)
def test_without_pyspark_the_extra_is_named(policy: Path, arguments: tuple[str, ...]) -> None:
    """A command that needs Spark says how to get it, and ends with 78."""
    done = run(*arguments, "--policy", policy)
    assert done.code == 78
    assert "pip install 'sparkcrypt[spark]'" in done.errors


def test_the_pyspark_of_spark_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pyspark: None) -> None:
    """A cluster's own Spark serves, by SPARK_HOME, where pyspark is not installed."""
    (tmp_path / "python" / "pyspark").mkdir(parents=True)
    (tmp_path / "python" / "lib").mkdir()
    bridge = tmp_path / "python" / "lib" / "py4j-0.10.9-src.zip"
    bridge.touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    require_pyspark()
    assert sys.path == [str(tmp_path / "python"), str(bridge), "/elsewhere"]


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Connect client has no catalog of its own, so the environment that asks for it is refused by name."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    with pytest.raises(ConfigError, match="SPARK_REMOTE"), spark_session("test"):
        pass


def test_a_workplace_starts_no_spark_that_is_not_needed(policy: Path, no_pyspark: None) -> None:
    """Local policies, schemas and reports need no session."""
    with Workplace("test", Launch()) as workplace:
        assert workplace.policy(str(policy)).footer_key == "footer"
        assert workplace.policy(policy.as_uri()).footer_key == "footer"
        workplace.write(str(policy.parent / "report.json"), "{}")
        workplace.write((policy.parent / "report.json").as_uri(), "[]")
    assert json.loads((policy.parent / "report.json").read_text()) == []
    assert sorted(path.name for path in policy.parent.iterdir()) == ["policy.yaml", "report.json"]


@pytest.mark.parametrize(
    ("uri", "local"),
    [("a/b", True), ("/a", True), ("file:/a", True), ("file:///a", True), ("hdfs://n/a", False), ("s3a://b/a", False)],
)
def test_which_names_need_spark(uri: str, local: bool) -> None:
    """Only a URI of another file system does."""
    assert is_local(uri) is local


def test_a_report_needs_a_folder(tmp_path: Path) -> None:
    """A local report is checked before the work; a remote one is its file system's affair."""
    check_writable(None)
    check_writable("hdfs://n/report.json")
    check_writable(str(tmp_path / "report.json"))
    with pytest.raises(ConfigError, match="--report"):
        check_writable(str(tmp_path / "nosuch" / "report.json"))


def test_commands_are_told_without_pyspark() -> None:
    """The client, and what prints a configuration for a launch, run where nobody has installed Spark."""
    script = "import sys; sys.modules.update(pyspark=None, py4j=None); from sparkcrypt.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script, "conf", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--policy" in done.stdout


PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
JOBS = {
    "backfill.py": "backfill",
    "encrypt_table.py": "encrypt",
    "index_table.py": "index",
    "rotate_keys.py": "rotate",
    "shred_keys.py": "shred",
    "show_status.py": "status",
    "verify_table.py": "verify",
}
FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"(?:sparkcrypt|spark-submit (?:\S+ )*?\S*jobs/\w+\.py) ")
NO_COMMANDS = ("sparkcrypt log record",)
"""What is written like a command and is none: what a MAC is over."""


def shown_commands(page: Path) -> Iterator[list[str]]:
    """Yield the commands that a page shows, in words, jobs as the commands that they are."""
    text = page.read_text()
    lines = [line for block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    for shown in [*lines, *INLINE.findall(FENCED.sub("", text))]:
        if COMMAND.match(shown := shown.strip()) and shown not in NO_COMMANDS:
            words = shlex.split(re.split(r" (?:#|\||&&|>(?!=)|2>|…)", shown)[0])
            job = next((word for word in words if "jobs/" in word), None)
            yield words[1:] if job is None else [JOBS[job.rpartition("/")[2]], *words[words.index(job) + 1 :]]


def check_command(words: list[str]) -> None:
    """Find the command that words name, and see that it takes their options.

    Raises:
        click.UsageError: it does not; a snippet may leave out arguments, but not have others.
    """
    command: click.Command = cli
    context = click.Context(cli, info_name="sparkcrypt")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            if words[0] in ("…", "VERB") or not re.fullmatch(r"[a-z-]+", words[0]):
                return
            raise click.UsageError(f"no command {' '.join(words)!r} below {command.name}")
        command, words = found, words[1:]
    try:
        command.make_parser(click.Context(command)).parse_args(list(words))
    except click.BadOptionUsage:
        if not words or not words[-1].startswith("--"):  # a page may name an option without its value
            raise


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    """Every command and option is on the page, in the words of its help."""
    assert PAGE.read_text() == render_page(), "run: python tools/write_commands_page.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_pages_show_are_there(page: Path) -> None:
    """No page shows a command or an option that the command line lacks."""
    wrong = []
    for words in shown_commands(page):
        try:
            check_command(words)
        except click.UsageError as error:
            wrong.append(f"{' '.join(words)}: {error.format_message()}")
    assert wrong == []


def test_the_check_itself_finds_what_is_wrong() -> None:
    """A command or option that is not there is told."""
    for text in ("keys destroy pii", "rotate --kee pii", "plan --table t --apply"):
        with pytest.raises(click.UsageError):
            check_command(text.split())
    assert len([words for page in PAGES for words in shown_commands(page)]) > 100


def every_command(group: click.Group) -> Iterator[click.Command]:
    """Yield each command below a group."""
    for command in group.commands.values():
        yield command
        if isinstance(command, click.Group):
            yield from every_command(command)


def test_the_environment_names_the_policy_of_every_command(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command that takes a policy lacks the default, which an option on the command line overrides."""
    taking = [known for command in every_command(cli) for known in command.params if known.name == "policy"]
    assert len(taking) > 30
    assert {known.envvar for known in taking} == {POLICY_VARIABLE}
    monkeypatch.setenv(POLICY_VARIABLE, str(policy))
    assert run("conf", "--jar", "/lib/s.jar").code == 0
    assert run("conf", "--jar", "/lib/s.jar", "--policy", "nowhere.yaml").code == ConfigError.exit_code
    monkeypatch.setenv(POLICY_VARIABLE, "")
    assert run("conf", "--jar", "/lib/s.jar").code == 64


def test_policy_of_the_environment_is_no_option_of_a_call(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that allow no --policy beside others still run where the environment names one."""
    logs = ("audit", "access", "--column", "d.t.c", "--on", "2026-11-23", "--log", tmp_path)
    monkeypatch.setenv(POLICY_VARIABLE, str(policy))
    assert run("backfill", "list").code == run(*logs).code == 0
    assert "options go after list" in run("backfill", "--policy", policy, "list").errors
    assert "either --policy or --log" in run(*logs, "--policy", policy).errors
