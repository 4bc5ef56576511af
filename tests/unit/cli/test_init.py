"""A first policy: written for each key service, never over anything, and read by the loader."""

from __future__ import annotations

import shlex
import stat
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from sparkcrypt.cli.main import cli
from sparkcrypt.cli.setup import init as init_module
from sparkcrypt.cli.setup.init import SERVICES
from sparkcrypt.policy.key_service import KEY_SERVICE_OPTIONS
from sparkcrypt.policy.load import load_policy

from .conftest import run


def answers(folder: Path, *lines: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Run `sparkcrypt init` at a terminal where somebody types lines; return the exit code and what is asked."""
    monkeypatch.setattr(init_module, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    done = CliRunner().invoke(cli, ["init", str(folder)], input="".join(f"{line}\n" for line in lines))
    return done.exit_code, done.stderr


@pytest.mark.parametrize("kind", SERVICES)
def test_the_policy_of_each_key_service_is_read(tmp_path: Path, kind: str) -> None:
    """The loader reads what is written; it names the service, its place, the three keys and the state directory."""
    place = () if kind == "local" else ("--place", SERVICES[kind].example)
    folder = tmp_path / "a lake"
    assert run("init", folder, "--key-service", kind, *place).code == 0
    policy = load_policy(folder / "policy.yaml")
    at = str(folder / "keys") if kind == "local" else SERVICES[kind].example
    assert policy.key_service.to_dict() == {"type": kind, SERVICES[kind].place: at}
    assert (policy.footer_key, policy.audit_key, policy.untagged) == ("footer", "audit", "plaintext")
    assert [(rule.name, rule.key and rule.key.text) for rule in policy.tags] == [("pii", "pii"), ("public", None)]
    assert policy.run_state == str(folder / "state")


@pytest.mark.parametrize("kind", SERVICES)
def test_options_in_comments_are_options(tmp_path: Path, kind: str) -> None:
    """With each comment of the key service's section taken in, the policy is read too."""
    place = () if kind == "local" else ("--place", SERVICES[kind].example)
    run("init", tmp_path, "--key-service", kind, *place)
    file = tmp_path / "policy.yaml"
    file.write_text(file.read_text().replace("\n  # ", "\n  "))
    assert len(load_policy(file).key_service.options) == 1 + len(SERVICES[kind].more)


def test_every_built_in_key_service_has_a_policy() -> None:
    """None is forgotten when one is added."""
    assert set(SERVICES) == set(KEY_SERVICE_OPTIONS)


def test_folders_are_private_and_hold_no_key(tmp_path: Path) -> None:
    """The key directory and the state directory are made for their owner alone, and no key is made."""
    run("init", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys", "policy.yaml", "state"]
    for folder in (tmp_path / "keys", tmp_path / "state"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert list(folder.iterdir()) == []


def test_only_the_local_service_has_a_key_directory(tmp_path: Path) -> None:
    """Where keys are in a service of their own, no folder is made that looks as if they were there."""
    run("init", tmp_path, "--key-service", "aws", "--place", "eu-west-1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.yaml", "state"]


def test_the_next_commands_are_told_and_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed makes the keys that the policy names, and every command of it is one."""
    commands = run("init", tmp_path / "it's", "--json").document["next"]
    name, _, value = shlex.split(commands[0])[1].partition("=")
    monkeypatch.setenv(name, value)
    made = run(*shlex.split(commands[1])[1:])
    assert (made.code, made.output) == (0, "footer: made\npii: made\naudit: made\n")
    for command in commands[2:]:
        words = list(takewhile(lambda word: word.isalpha() and word.islower(), shlex.split(command)[1:]))
        assert run(*words, "--help").code == 0, command


@pytest.mark.parametrize("there", ["policy.yaml", "keys", "state"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    """If one of the three is there, even as a dangling link, nothing is made, and the error names it."""
    (tmp_path / there).symlink_to("nowhere")
    done = run("init", tmp_path)
    assert done.code == 78
    assert f"there already: {tmp_path / there}; init overwrites nothing" in done.errors
    assert [path.name for path in tmp_path.iterdir()] == [there]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """Where a file is in the way, it is told which, and nothing stays."""
    (tmp_path / "file").write_text("")
    done = run("init", tmp_path / "file" / "lake")
    assert done.code == 78
    assert str(tmp_path / "file") in done.errors and "name a folder in which you may write" in done.errors


def test_a_policy_that_appears_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two commands at the same time one makes the policy, and the other removes the folders that it made."""

    def lose(temporary: Path, file: Path) -> None:
        raise FileExistsError(17, "File exists", str(file))

    monkeypatch.setattr(init_module, "name_new", lose)
    assert run("init", tmp_path).code == 78
    assert list(tmp_path.iterdir()) == []


def test_a_service_without_its_place_is_refused(tmp_path: Path) -> None:
    """Outside of a terminal the option that is missing is named with an example; local has no place."""
    done = run("init", tmp_path, "--key-service", "vault")
    assert done.code == 64
    assert "--key-service vault needs --place, its address: such as --place https://vault" in done.errors
    assert run("init", tmp_path, "--place", "eu-west-1").code == 64
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who types nothing gets a local key service, and one who names another is asked where it is."""
    assert answers(tmp_path / "first", "", monkeypatch=monkeypatch)[0] == 0
    assert load_policy(tmp_path / "first" / "policy.yaml").key_service.type == "local"
    code, asked = answers(tmp_path / "second", "aws", "eu-west-1", monkeypatch=monkeypatch)
    assert (code, "region, such as eu-west-1" in asked) == (0, True)
    assert load_policy(tmp_path / "second" / "policy.yaml").key_service.options == {"region": "eu-west-1"}


def test_a_place_is_text_whatever_it_holds(tmp_path: Path) -> None:
    """A place that looks like YAML stays one text, and one with a password is refused before anything is made."""
    odd = 'a: {b}\n# "c"'
    run("init", tmp_path / "odd", "--key-service", "azure", "--place", odd)
    assert load_policy(tmp_path / "odd" / "policy.yaml").key_service.options == {"address": odd}
    refused = run("init", tmp_path / "secret", "--key-service", "vault", "--place", "https://me:word@vault:8200")
    assert refused.code == 78 and "holds a secret" in refused.errors
    assert not (tmp_path / "secret").exists()
