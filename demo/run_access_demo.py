"""The demo of reading: three users of one Thrift server, one policy, and what each of their keys allows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

from rich.table import Table
from showcase import HERE, ROOT, DemoError, check, console, fresh, say, tool

sys.path.insert(0, str(ROOT))

from sparkcrypt import load_policy
from sparkcrypt.arrow import read_table
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.names import ALLOW_ON_SERVER
from sparkcrypt.policy.key_service import PRINCIPAL, KeyServiceConfig
from sparkcrypt.spark.jvm.jar import jar_path
from sparkcrypt.spark.setup.options import launch_conf
from tests.services import ServiceFailedError, ServiceUnavailableError
from tests.services.metastore import start_metastore
from tests.services.thrift import ThriftServer, start_thrift_server

WORK = HERE / "work-access"
POLICY = """\
version: 1
key_service: {type: local, path: 'keys/{principal}'}   # a folder of keys for each user; in production a credential
footer: {key: footer}
untagged: plaintext
run_state: state/
access_log: {location: access/}
tags:
  pii:    {key: pii}
  salary: {key: salary}
"""
USERS = {"auditor": ("footer", "pii", "salary"), "analyst": ("footer", "salary"), "intern": ("footer",)}
ROWS = ("1,ann,010-11,900", "2,bob,020-22,800")
ALLOWED = {
    "auditor": ["1 ann 010-11 900", "2 bob 020-22 800"],
    "analyst": ["1 ann NULL 900", "2 bob NULL 800"],
    "intern": ["1 ann NULL NULL", "2 bob NULL NULL"],
}
TAGS = {"ssn": ["pii"], "pay": ["salary"]}
"""The table has them in its properties, which pyarrow cannot ask for."""
MASK = "SET spark.sparkcrypt.on_denied=mask"


def main() -> int:
    """Start the services, run the demo, stop the services; return the exit code."""
    work, started = fresh(WORK), time.monotonic()
    try:
        with ExitStack() as stack:
            make_keys(work)
            (work / "policy.yaml").write_text(POLICY)
            policy = load_policy(work / "policy.yaml", principal=PRINCIPAL)
            metastore = start_metastore(work)
            stack.callback(metastore.stop)
            conf = {**metastore.spark_conf(), **launch_conf(policy, str(jar_path()), sys.executable)}
            conf[ALLOW_ON_SERVER] = "local_files"  # the lake of this demo is on this machine's disk
            server = start_thrift_server(work / "server", conf)
            stack.callback(server.stop)
            folder = make_table(server, work)
            show_routes(server, work, folder)
            show_writes(server, work, folder)
        show_log(work)
    except (DemoError, ServiceUnavailableError, ServiceFailedError) as error:
        console.print(f"The demo failed: {error}", style="red", markup=False)
        return 1
    console.print(f"The demo passed: every user got what his keys allow, in {time.monotonic() - started:.0f} s.")
    return 0


def make_keys(work: Path) -> None:
    """Make the master keys once, and give each user a folder of those that he may use."""
    say("1", f"one policy, and of its {len(USERS['auditor'])} master keys each user has his own")
    everything = work / "all"
    service = LocalKeyService(KeyServiceConfig.from_dict({"type": "local", "path": str(everything)}))
    for key in USERS["auditor"]:
        service.create(key)
    for user, keys in USERS.items():
        shutil.copytree(everything, work / "keys" / user)
        for key in set(USERS["auditor"]) - set(keys):
            for file in (work / "keys" / user).glob(f"{key}*"):
                file.unlink()
        console.print(f"   {user:<8} {', '.join(keys)}")
    shutil.rmtree(everything)


def make_table(server: ThriftServer, work: Path) -> str:
    """Let the auditor make and fill a tagged table; return its folder."""
    say("2", "a table with two tagged columns, written by the auditor over JDBC")
    values = ", ".join("({}, '{}', '{}', {})".format(*row.split(",")) for row in ROWS)
    folder = (work / "staff").as_uri()
    ask(
        server,
        "auditor",
        f"CREATE TABLE staff (id INT, name STRING, ssn STRING, pay INT) USING parquet "
        f"OPTIONS ('parquet.sparkcrypt.tags.ssn' 'pii', 'parquet.sparkcrypt.tags.pay' 'salary') LOCATION '{folder}'",
        f"INSERT INTO staff VALUES {values}",
        "CREATE VIEW everybody AS SELECT * FROM staff",
        "CACHE TABLE staff",
    )
    show_footer(work, "staff", {"ssn", "pay"})
    return folder


def show_routes(server: ThriftServer, work: Path, folder: str) -> None:
    """Ask for every column by three routes of the server and by pyarrow, for each user."""
    say("3", "SELECT * by each user: from the table, a view and a path in one Thrift server, and by pyarrow")
    table = Table("user", "route", "gets", title_justify="left")
    for user in USERS:
        for route, source in {"table": "staff", "view": "everybody", "path": f"parquet.`{folder}`"}.items():
            found = rows_of(ask(server, user, MASK, f"SELECT concat_ws(' ', 'row', {COLUMNS}) FROM {source}"))
            check(f"{user} by {route}", found, ALLOWED[user])
            table.add_row(user, route, "; ".join(found))
        policy = load_policy(work / "policy.yaml", principal=user)
        read = read_table(folder, policy, table="default.staff", tags=TAGS, on_denied="mask", principal=user)
        rows = [["NULL" if value is None else str(value) for value in row.values()] for row in read.to_pylist()]
        found = sorted(map(" ".join, rows))
        check(f"{user} by pyarrow", found, ALLOWED[user])
        table.add_row(user, "pyarrow", "; ".join(found))
    console.print(table)
    refused = ask(server, "intern", "SELECT ssn FROM staff", fails=True)
    (told,) = {line.strip() for line in refused.stderr.splitlines() if "cannot be read by intern" in line} or {""}
    if "its key 'pii' is not there" not in told:
        raise DemoError(f"the intern was not refused by name: {refused.stderr[-2000:]}")
    console.print("   without nulls asked for: column ssn … cannot be read by intern: its key 'pii' is not there")


COLUMNS = "id, name, coalesce(ssn, 'NULL'), coalesce(CAST(pay AS STRING), 'NULL')"


def show_writes(server: ThriftServer, work: Path, folder: str) -> None:
    """Derive a column from a tagged one: the intern is refused, and the auditor's is encrypted, by its footer."""
    say("4", "CREATE TABLE … AS SELECT upper(ssn): what is derived keeps its tags")
    text = "CREATE TABLE {} USING parquet LOCATION '{}' AS SELECT id, upper(ssn) AS shout FROM staff"
    refused = ask(server, "intern", MASK, text.format("leak", (work / "leak").as_uri()), fails=True)
    if list(work.glob("leak/part-*")) or "masked" not in refused.stderr:
        raise DemoError(f"the intern's table was not refused: {refused.stderr[-2000:]}")
    console.print("   intern:  refused, since what he would write are nulls in place of denied values")
    ask(server, "auditor", text.format("shouts", (work / "shouts").as_uri()))
    show_footer(work, "shouts", {"shout"})


def show_log(work: Path) -> None:
    """Print who read one column today, and who was refused, as the server recorded it."""
    say("5", "sparkcrypt audit access: who read ssn today")
    today = datetime.now(timezone.utc).date().isoformat()
    command = [tool("sparkcrypt"), "audit", "access", "--column", "default.staff.ssn", "--on", today]
    done = subprocess.run(
        [*command, "--log", str(work / "access"), "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise DemoError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    found = sorted({(entry["principal"], entry["outcome"]) for entry in json.loads(done.stdout)["accesses"]})
    for principal, outcome in found:
        console.print(f"   {principal:<8} {outcome}")
    wanted = {("auditor", "opened"), ("intern", "refused"), ("intern", "masked"), ("analyst", "masked")}
    if not wanted <= set(found) or ("intern", "opened") in found:
        raise DemoError(f"the log tells of {found}, not of {sorted(wanted)}")


def ask(server: ThriftServer, user: str, *statements: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
    """Run statements as a user.

    Raises:
        DemoError: one failed though none should.
    """
    done = server.ask(*statements, user=user)
    if not fails and "Error:" in done.stderr:
        raise DemoError(f"{user}: {done.stderr[-3000:]}")
    return done


def rows_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the rows that a query printed, without the word that marks them."""
    return sorted(line.removeprefix("row ") for line in done.stdout.splitlines() if line.startswith("row "))


def show_footer(work: Path, table: str, encrypted: set[str]) -> None:
    """Print which columns of a table's files are encrypted, by their footers.

    Raises:
        DemoError: others are.
    """
    command = [tool("sparkcrypt"), "inspect", "--json", *map(str, (work / table).glob("part-*.parquet"))]
    policy = work / "auditor.yaml"
    policy.write_text(POLICY.replace(PRINCIPAL, "auditor"))
    done = subprocess.run([*command, "--policy", str(policy)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DemoError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    files = json.loads(done.stdout)
    found = {name for file in files for name, column in file["columns"].items() if column["encrypted"]}
    console.print(f"   {table}: {len(files)} files, encrypted by their footers: {', '.join(sorted(found))}")
    check(f"footers of {table}", sorted(found), sorted(encrypted))


if __name__ == "__main__":
    sys.exit(main())
