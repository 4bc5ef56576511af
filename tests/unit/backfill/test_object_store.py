"""State on a real S3 server: the behaviours of other stores, and answers that get lost, lie or never come."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkcrypt.cli.setup.doctor import check_state
from sparkcrypt.errors import ConfigError, RunConflictError, StorageError
from sparkcrypt.ledger.state import object_store
from sparkcrypt.ledger.state.lock import acquire
from sparkcrypt.ledger.state.object_store import (
    ObjectStateStore,
    lies_inside,
    object_access,
    object_place,
    open_object_store,
)
from tests.services.installed import ROOT
from tests.services.meddled_s3 import Environ, MeddledS3, Serve
from tests.unit.backfill import lock_behaviour, store_behaviour
from tests.unit.backfill.conftest import Together
from tests.unit.backfill.lock_behaviour import LockBehaviour
from tests.unit.backfill.store_behaviour import StoreBehaviour

pytestmark = pytest.mark.services
_NUMBERS = itertools.count()
KEYS = {"fs.s3a.access.key": "test", "fs.s3a.secret.key": "test", "fs.s3a.endpoint.region": "us-east-1"}

ON_S3 = """
import json, os
from sparkcrypt.ledger.state.object_store import object_access
from sparkcrypt.ledger.state.object_store import open_object_store
def LocalStateStore(path):
    uri, settings = os.environ["STATE"], json.loads(os.environ["SETTINGS"])
    return open_object_store(uri, object_access(uri, settings, allow_http=False))
"""
"""Opens the store of the test in another process, by the name that the scripts of other tests use."""


def on_s3(script: str) -> str:
    """Return a script of another test with its store on S3."""
    return ON_S3 + "\n".join(line for line in script.splitlines() if "import LocalStateStore" not in line)


@pytest.fixture
def settings(s3_server: MeddledS3) -> dict[str, str]:
    """What Hadoop's configuration says of the server."""
    return {**KEYS, "fs.s3a.endpoint": s3_server.endpoint}


Opened = Callable[..., ObjectStateStore]


@pytest.fixture
def opened(settings: dict[str, str]) -> Opened:
    """Opens the same new state directory each time."""
    uri = f"s3a://lake/states/a b%20=\u00e9/{next(_NUMBERS)}"

    def open_again(other: str = uri, **further: str) -> ObjectStateStore:
        return open_object_store(other, object_access(other, {**settings, **further}, allow_http=False))

    return open_again


@pytest.fixture
def store(opened: Opened) -> ObjectStateStore:
    """An empty state directory on S3."""
    return opened()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> str:
    """The URI of a new state directory that scripts open by ``on_s3``."""
    uri = f"s3a://lake/races/{next(_NUMBERS)}"
    monkeypatch.setenv("STATE", uri)
    monkeypatch.setenv("SETTINGS", json.dumps(settings))
    return uri


def puts(environ: Environ, key: str) -> bool:
    """Tell whether a request puts an object whose key ends so."""
    return environ["REQUEST_METHOD"] == "PUT" and str(environ["PATH_INFO"]).endswith(key)


def hang_up(environ: Environ) -> None:
    """Break the connection of a request before it is answered."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


class TestLock(LockBehaviour):
    """The behaviours of every lock, on S3."""


class TestStore(StoreBehaviour):
    """The behaviours of every store, on S3."""


def test_of_racing_processes_exactly_one_creates_each_record(
    together: Together, elsewhere: str, opened: Opened
) -> None:
    """Four processes create the same forty names with the same bytes: each name has one winner and whole content."""
    won = Counter(number for output in together(on_s3(store_behaviour.RACE)) for number in output.split())
    assert won == Counter({str(number): 1 for number in range(40)})
    store = opened(elsewhere)
    assert {store.read(name) for name in store.list("runs/t/")} == {b"<stdin>" * 1000}
    assert len(store.list("")) == 40


def test_racing_processes_hold_the_lock_one_after_the_other(together: Together, elsewhere: str, opened: Opened) -> None:
    """Four processes take, renew and release: never two at once, and no token twice."""
    script = on_s3(lock_behaviour.RACE).replace("range(60)", "range(20)")
    tokens = [int(token) for output in together(script) for token in output.split()]
    assert len(tokens) == len(set(tokens)) and len(tokens) >= 4
    assert f"locks/t/{max(tokens):08d}.released.json" in opened(elsewhere).list("locks/t/")


@pytest.mark.parametrize("answer", ["500 Internal Server Error", "503 Slow Down", None])
def test_a_creation_whose_answer_got_lost_counts_as_made(
    s3_server: MeddledS3, store: ObjectStateStore, answer: str | None
) -> None:
    """The repeated request finds the key taken, by an object with the mark of the call itself."""
    lost: list[str] = []

    def lose(environ: Environ, serve: Serve) -> Any:
        said = serve()
        if not puts(environ, "/1.json") or lost:
            return said
        lost.append(said[0])
        if answer is None:
            hang_up(environ)
        return answer, [("Content-Type", "application/xml")], b"<Error><Code>Trouble</Code></Error>"

    with s3_server.meddling(lose):
        assert store.create("runs/t/1.json", b"same bytes")
    assert lost == ["200 OK"]
    assert not store.create("runs/t/1.json", b"same bytes")
    assert store.read("runs/t/1.json") == b"same bytes"


def test_of_two_drivers_with_the_same_bytes_one_wins_though_no_answer_came(
    s3_server: MeddledS3, store: ObjectStateStore, opened: Opened
) -> None:
    """The other driver's record stands there instead, equal byte for byte: it is not this driver's."""
    other = opened()
    went: list[bool] = []

    def overtake(environ: Environ, serve: Serve) -> Any:
        if not puts(environ, "/1.json") or went:
            return serve()
        went.append(True)
        assert other.create("locks/t/1.json", b"same bytes")
        hang_up(environ)
        return "500 Internal Server Error", [], b""

    with s3_server.meddling(overtake):
        assert not store.create("locks/t/1.json", b"same bytes")
    assert went


def test_a_request_that_comes_late_does_not_make_two_winners(
    s3_server: MeddledS3, store: ObjectStateStore, opened: Opened
) -> None:
    """A request that is still under way when its driver tries again has the same mark, whichever comes first."""
    late: list[Serve] = []

    def delay(environ: Environ, serve: Serve) -> Any:
        if not puts(environ, "/1.json") or late:
            return serve()
        late.append(serve)
        while len(s3_server.requests) == seen:  # the driver looks whether it is there
            time.sleep(0.01)
        time.sleep(0.2)
        return serve()

    store.create("runs/t/0.json", b"x")
    impatient = {**object_store.CLIENT, "timeout": "300ms"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_store, "CLIENT", impatient)
        hasty = opened()
    seen = len(s3_server.requests) + 1
    with s3_server.meddling(delay):
        assert hasty.create("runs/t/1.json", b"same bytes")
    assert late and not opened().create("runs/t/1.json", b"same bytes")


def test_a_conflict_with_a_deletion_is_tried_again(s3_server: MeddledS3, store: ObjectStateStore) -> None:
    """S3 answers 409 where a deletion of that key is under way; the key is free, so nobody has won yet."""
    refused: list[bool] = []

    def conflict(environ: Environ, serve: Serve) -> Any:
        if not puts(environ, "/1.json") or refused:
            return serve()
        refused.append(True)
        body = b"<Error><Code>ConditionalRequestConflict</Code></Error>"
        return "409 Conflict", [("Content-Type", "application/xml")], body

    with s3_server.meddling(conflict):
        assert store.create("runs/t/1.json", b"x")
    assert refused


@pytest.mark.parametrize("header", ["HTTP_IF_NONE_MATCH", "HTTP_X_AMZ_META_SPARKCRYPTMARK"])
def test_a_store_that_is_not_good_enough_is_refused_before_anything_is_written(
    s3_server: MeddledS3, opened: Opened, header: str
) -> None:
    """One that puts an object twice, or forgets its metadata, gets no lock, and nothing of the probe stays."""
    store = opened()

    def ignore(environ: Environ, serve: Serve) -> Any:
        environ.pop(header, None)
        return serve()

    with s3_server.meddling(ignore):
        with pytest.raises(ConfigError, match=r"does not honour conditional creation.*policy"):
            acquire(store, "t", run_id="run-1", owner="me")
        with pytest.raises(ConfigError, match="does not honour"):
            opened().create("a", b"1")
    assert store.list("") == ()
    assert opened().create("a", b"1")


def test_doctor_tells_a_store_that_ignores_conditions(s3_server: MeddledS3, opened: Opened) -> None:
    """Its check of the state directory fails, before a run would; on one that is good enough nothing of it stays."""
    workplace: Any = SimpleNamespace(state_directory=opened)

    def ignore(environ: Environ, serve: Serve) -> Any:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return serve()

    uri = f"s3a://lake/examined/{next(_NUMBERS)}"
    with s3_server.meddling(ignore), pytest.raises(ConfigError, match="does not honour conditional creation"):
        check_state(workplace, uri)
    assert check_state(workplace, uri) == f"{uri}: a record is created once"
    assert opened(uri).list("") == ()


def test_a_store_without_conditional_puts_is_a_config_error(s3_server: MeddledS3, store: ObjectStateStore) -> None:
    """501 says that the header is not implemented; it is no storage that failed for a while."""

    def unknown(environ: Environ, serve: Serve) -> Any:
        if environ["REQUEST_METHOD"] == "PUT":
            return "501 Not Implemented", [], b"<Error><Code>NotImplemented</Code></Error>"
        return serve()

    with s3_server.meddling(unknown), pytest.raises(ConfigError, match="does not honour conditional creation"):
        store.create("a", b"1")


def test_the_probe_is_made_once_and_by_writers_alone(s3_server: MeddledS3, opened: Opened) -> None:
    """Whoever only reads puts nothing; of a pass over many tables the first one proves the store."""
    s3_server.requests.clear()
    assert opened().read("a") is None and opened().list("") == ()
    assert {method for method, _ in s3_server.requests} == {"GET"}
    for number in range(3):
        assert opened().create(f"a/{number}", b"1")
    assert len([path for _, path in s3_server.requests if "/probes/" in path]) == 5
    assert opened().list("probes/") == ()


def test_a_driver_that_is_killed_before_it_hears_that_it_won(
    s3_server: MeddledS3, elsewhere: str, opened: Opened
) -> None:
    """Its lock is there whole; the next run takes it over since the process is dead, and has the next token."""
    children: list[subprocess.Popen[bytes]] = []

    def kill(environ: Environ, serve: Serve) -> Any:
        said = serve()
        if puts(environ, "locks/t/00000001.json"):
            children[0].kill()
            children[0].wait()
        return said

    command = [sys.executable, "-c", on_s3(lock_behaviour.KILLED).replace("os.kill(", "print(")]
    with s3_server.meddling(kill):
        children.append(subprocess.Popen([*command, "unused"], cwd=ROOT, stdout=subprocess.DEVNULL))
        assert children[0].wait(timeout=60) == -signal.SIGKILL
    store = opened(elsewhere)
    assert store.list("locks/") == ("locks/t/00000001.json",)
    assert acquire(store, "t", run_id="next", owner="me").token == 2


def test_a_driver_that_is_killed_before_its_request_is_carried_out_leaves_no_record(
    s3_server: MeddledS3, elsewhere: str, opened: Opened
) -> None:
    """Nobody sees a part of a record: its name is free."""
    children: list[subprocess.Popen[bytes]] = []

    def kill(environ: Environ, serve: Serve) -> Any:
        if puts(environ, "locks/t/00000001.json"):
            children[0].kill()
            children[0].wait()
            return "400 Bad Request", [], b""
        return serve()

    command = [sys.executable, "-c", on_s3(lock_behaviour.KILLED).replace("os.kill(", "print(")]
    with s3_server.meddling(kill):
        children.append(subprocess.Popen([*command, "unused"], cwd=ROOT, stdout=subprocess.DEVNULL))
        assert children[0].wait(timeout=60) == -signal.SIGKILL
    assert opened(elsewhere).list("") == ()
    assert acquire(opened(elsewhere), "t", run_id="next", owner="me").token == 1


def test_a_store_that_fails_for_good_is_a_storage_error_within_bounds(
    s3_server: MeddledS3, store: ObjectStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has the answer, and not how the library asked."""
    monkeypatch.setattr(object_store, "CREATE_SECONDS", 1.0)
    store.create("a", b"1")

    def fail(environ: Environ, serve: Serve) -> Any:
        return "503 Slow Down", [], b"<Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>"

    began = time.monotonic()
    with s3_server.meddling(fail):
        for use in (lambda: store.create("b", b"1"), lambda: store.read("a"), lambda: store.list("a")):
            with pytest.raises(StorageError, match=r"503 .*SlowDown: Reduce your rate\.; run again"):
                use()
        with pytest.raises(StorageError):
            store.delete("a")
    assert time.monotonic() - began < 60
    assert store.read("a") == b"1" and store.read("b") is None


def test_a_listing_that_breaks_off_is_an_error_and_not_a_part(s3_server: MeddledS3, store: ObjectStateStore) -> None:
    """A second page that cannot be had must not look like a table without later records."""
    store.create("locks/t/1", b"1")
    store.create("locks/t/2", b"2")
    pages: list[str] = []

    def break_off(environ: Environ, serve: Serve) -> Any:
        if "list-type=2" not in environ["QUERY_STRING"]:
            return serve()
        pages.append(environ["QUERY_STRING"])
        if len(pages) > 1:
            return "403 Forbidden", [], b"<Error><Code>AccessDenied</Code></Error>"
        environ["QUERY_STRING"] += "&max-keys=1"
        return serve()

    with s3_server.meddling(break_off), pytest.raises((ConfigError, StorageError), match=r"cannot list locks/t/.*403"):
        store.list("locks/t/")
    assert len(pages) == 2


def test_many_records_are_listed_over_pages(store: ObjectStateStore) -> None:
    """S3 tells a thousand keys an answer."""
    names = {f"runs/t/{number:06d}" for number in range(1003)}
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda name: store.create(name, b"1"), names))
    assert store.list("runs/") == tuple(sorted(names))


def test_refused_credentials_are_a_config_error(s3_server: MeddledS3, opened: Opened) -> None:
    """No table looks free of locks to whoever may not list them."""
    store = opened()

    def refuse(environ: Environ, serve: Serve) -> Any:
        return "403 Forbidden", [], b"<Error><Code>AccessDenied</Code><Message>No.</Message></Error>"

    with s3_server.meddling(refuse):
        uses = (
            lambda: store.create("a", b""),
            lambda: store.read("a"),
            lambda: store.list(""),
            lambda: store.delete("a"),
        )
        for use in uses:
            with pytest.raises(ConfigError, match="403 Forbidden: AccessDenied: No"):
                use()


def test_a_bucket_that_is_not_there_is_no_empty_state(opened: Opened) -> None:
    """A run that is told of another bucket by mistake must not find every table without a lock and an audit."""
    store = opened("s3a://no-such-bucket/state")
    uses = (lambda: store.create("a", b""), lambda: store.read("a"), lambda: store.list("a"), lambda: store.delete("a"))
    for use in uses:
        with pytest.raises(ConfigError, match="NoSuchBucket"):
            use()


def test_markers_of_folders_are_no_records(s3_server: MeddledS3, opened: Opened) -> None:
    """Consoles and Hadoop put empty objects whose keys end with a slash."""
    import boto3

    store = opened("s3a://lake/marked")
    store.create("locks/t/1.json", b"1")
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=s3_server.endpoint, **keys)
    for key in ("marked/", "marked/locks/", "marked/locks/t/", "marked/runs/"):
        client.put_object(Bucket="lake", Key=key, Body=b"")
    assert store.list("") == store.list("locks/t/") == ("locks/t/1.json",)
    assert store.read("runs") is None and store.read("locks/t") is None


def test_hidden_objects_are_not_listed(s3_server: MeddledS3, opened: Opened) -> None:
    """As in every other store."""
    shallow, deep = opened("s3a://lake/deep"), opened("s3a://lake/deep/.hidden")
    deep.create("a", b"1")
    assert shallow.list("") == () and deep.list("") == ("a",)


def test_a_whole_bucket_can_be_the_state_directory(s3_server: MeddledS3, opened: Opened) -> None:
    """Keys then begin with nothing."""
    s3_server.make_bucket("state-alone")
    store = opened("s3a://state-alone/")
    assert store.create("locks/t/1", b"1")
    assert store.list("") == store.list("locks/t/") == ("locks/t/1",)


def test_a_buckets_own_settings_win(s3_server: MeddledS3, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Hadoop; and what the environment says of endpoints and tokens does not mix in."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-somebody-else")
    told: list[str | None] = []

    def listen(environ: Environ, serve: Serve) -> Any:
        told.append(environ.get("HTTP_X_AMZ_SECURITY_TOKEN"))
        told.append(environ["HTTP_AUTHORIZATION"].partition("Credential=")[2].partition("/")[0])
        return serve()

    uri = f"s3a://lake/own/{next(_NUMBERS)}"
    own = {"fs.s3a.bucket.lake.endpoint": s3_server.endpoint, "fs.s3a.bucket.lake.access.key": "own"}
    with s3_server.meddling(listen):
        assert opened(uri, **{"fs.s3a.endpoint": "http://127.0.0.1:9"}, **own).create("a", b"1")
    assert set(told) == {None, "own"}


def test_s3_goes_by_the_environment_alone(
    s3_server: MeddledS3, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s3: has no part in Hadoop's s3a."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    told: set[str] = set()

    def listen(environ: Environ, serve: Serve) -> Any:
        told.add(environ["HTTP_AUTHORIZATION"].partition("Credential=")[2].partition("/")[0])
        return serve()

    store = opened(f"s3://lake/env/{next(_NUMBERS)}", **{"fs.s3a.endpoint": "http://127.0.0.1:9"})
    with s3_server.meddling(listen):
        assert store.create("a", b"1")
    assert told == {"of-the-environment"}


def test_plain_http_to_another_machine_has_to_be_allowed_at_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by the environment, which every job of a machine may share."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    far = {**KEYS, "fs.s3a.endpoint": "http://storage.example:9000"}
    with pytest.raises(ConfigError, match=r"storage\.example is plain http.*spark\.sparkcrypt\.allow_http=true"):
        object_access("s3a://lake/state", far, allow_http=False)
    assert object_access("s3a://lake/state", far, allow_http=True).plain
    for name, uri in (
        ("AWS_ENDPOINT_URL", "s3://lake/state"),
        ("GOOGLE_BASE_URL", "gs://lake/state"),
        ("AZURE_STORAGE_ENDPOINT", "az://lake/state"),
    ):
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        monkeypatch.setenv(name, "http://storage.example:9000")
        with pytest.raises(ConfigError, match="plain http"):
            object_access(uri, {}, allow_http=False)
        monkeypatch.setenv(name, "http://127.0.0.1:9000")
        assert object_access(uri, {}, allow_http=False).plain
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert not object_access("s3a://lake/state", KEYS, allow_http=False).plain


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("s3.amazonaws.com", None),
        ("s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("https://s3-us-west-2.amazonaws.com", "us-west-2"),
    ],
)
def test_endpoints_of_aws_are_told_by_region(endpoint: str, region: str | None) -> None:
    """Hadoop's configuration often names the region by the endpoint alone."""
    access = object_access("s3a://lake/state", {"fs.s3a.endpoint": endpoint}, allow_http=False)
    assert access.config.get("region") == region and "endpoint" not in access.config


def test_azure_by_its_uri_and_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hadoop's URI names account and cloud; az: leaves both to the environment."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    access = object_access("abfss://c@acc.dfs.core.windows.net/state", {}, allow_http=False)
    assert (access.place.bucket, access.place.root) == ("c", "state")
    assert dict(access.config) == {
        "account_name": "acc", "use_emulator": False, "endpoint": "https://acc.blob.core.windows.net"
    }  # fmt: skip
    with pytest.raises(ConfigError, match="names no storage account"):
        object_access("az://c/state", {}, allow_http=False)


@pytest.mark.parametrize("uri", ["s3a://lake/state", "gs://lake/state", "abfss://c@acc.dfs.core.windows.net/state"])
def test_each_provider_is_opened_by_its_client(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option that is given is one that the library knows."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    store = open_object_store(uri, object_access(uri, {}, allow_http=False))
    assert repr(store) == f"ObjectStateStore({uri!r})"


def test_secrets_are_in_no_text(opened: Opened) -> None:
    """Neither of what says how a bucket is reached, nor of the store."""
    settings = {**KEYS, "fs.s3a.secret.key": "canary-secret", "fs.s3a.session.token": "canary-token"}
    access = object_access("s3a://lake/state", settings, allow_http=False)
    assert "canary" not in f"{access!r}{access}{open_object_store('s3a://lake/state', access)!r}"


@pytest.mark.parametrize("uri", ["s3a:///state", "s3a://key:secret@lake/x", "s3a://la ke/x", "gs://", "abfs://@a/x"])
def test_uris_without_a_bucket_are_refused(uri: str) -> None:
    """And the message does not repeat what may be credentials."""
    with pytest.raises(ConfigError, match="no bucket") as caught:
        object_place(uri)
    assert "secret" not in str(caught.value)


def test_dots_do_not_lead_out_of_the_root() -> None:
    """A key may hold them, but no two programs agree on what they mean."""
    with pytest.raises(ConfigError, match="without \\. and"):
        object_place("s3a://lake/t/../state")


@pytest.mark.parametrize(
    ("uri", "folder", "inside"),
    [
        ("s3a://lake/t/state", "s3a://lake/t", True),
        ("s3://lake//t/state/", "s3a://lake/t/", True),
        ("s3a://lake/t2", "s3a://lake/t", False),
        ("s3a://other/t/state", "s3a://lake/t", False),
        ("s3a://lake/state", "s3a://lake", True),
        ("gs://lake/t/state", "s3a://lake/t", False),
        ("abfss://c@acc.dfs.core.windows.net/t/s", "wasbs://c@acc.blob.core.windows.net/t", True),
        ("az://c/t/s", "abfss://c@acc.dfs.core.windows.net/t", True),
        ("abfs://c@other.dfs.core.windows.net/t/s", "abfss://c@acc.dfs.core.windows.net/t", False),
        ("/data/t/state", "file:///data/t", True),
        ("hdfs:///data/t/state", "hdfs://nn:8020/data/t", True),
        ("hdfs://nn/data/t/state", "hdfs://other/data/t", False),
        ("/data/t/state", "hdfs://nn/data/t", False),
        ("s3a://lake/t/state", "file:///lake/t", False),
    ],
)
def test_state_inside_a_table_is_known_by_any_scheme(
    uri: str, folder: str, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An overwrite of the table deletes what lies in its folder, however the policy spells it."""
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert lies_inside(uri, folder) is inside


def test_state_inside_a_table_is_known_behind_a_link(tmp_path: Path) -> None:
    """A link leads into the table's folder as well."""
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    assert lies_inside(f"{tmp_path}/link/state", f"file:{tmp_path}/t")
    assert lies_inside(f"file:{tmp_path}/t/state", f"file:{tmp_path}/link")


def test_without_the_library_the_message_names_the_extra(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is asked for where the driver runs, and only by those who need it."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"needs obstore.*'sparkcrypt\[object-store\]'"):
        opened()


def test_a_second_run_is_refused_by_name(opened: Opened) -> None:
    """The lock's record is read by another client of the same store."""
    with acquire(opened(), "t", run_id="run-1", owner="ann"), pytest.raises(RunConflictError, match="run-1 of ann"):
        acquire(opened(), "t", run_id="run-2", owner="bob")
