"""The browser's launcher reports faults of a page, and leaves no process behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import require_service
from tests.services import ServiceFailedError, ServiceUnavailableError
from tests.services.chromium import Chromium, find_chromium, start_chromium
from tests.services.installed import ROOT
from tests.services.processes import has_ended

ENSURE = ROOT / "tools" / "ensure_chromium.sh"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A real browser."""
    try:
        running = start_chromium(tmp_path_factory.mktemp("chromium"))
    except ServiceUnavailableError as unavailable:
        require_service(str(unavailable))
    yield running
    running.stop()


@pytest.mark.services
@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("<script>console.error('this is told')</script>", "this is told"),
        ("<script>throw new Error('this was thrown')</script>", "this was thrown"),
        ("<img src='no-such-picture.png'>", "no-such-picture.png"),
        ("<p style='color: red'>x</p>", "Content Security Policy"),
    ],
)
def test_what_a_page_does_wrong_is_told(chromium: Chromium, tmp_path: Path, body: str, complaint: str) -> None:
    """Faults are reported; otherwise a test that finds no complaint would prove nothing."""
    policy = "default-src * 'unsafe-inline'; style-src 'none'"
    page = tmp_path / "page.html"
    page.write_text(f'<meta http-equiv="Content-Security-Policy" content="{policy}">{body}')
    opened = chromium.open(page.as_uri())
    assert complaint in " ".join(opened.complaints())
    opened.close()


def test_a_browser_whose_answer_cannot_be_understood_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that speaks another protocol ends the start, and leaves no process behind."""
    program = tmp_path / "browser"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo Chromium 1 && exit\n'
        f"echo $$ > {tmp_path / 'pid'}\nprintf 'nothing\\0' >&4\nexec sleep 600\n"
    )
    program.chmod(0o700)
    monkeypatch.setenv("CHROMIUM", str(program))
    with pytest.raises(ValueError, match="Expecting value"):
        start_chromium(tmp_path / "work")
    assert has_ended(int((tmp_path / "pid").read_text()))


@pytest.mark.services
def test_requests_and_blank_pages_are_told(chromium: Chromium, tmp_path: Path) -> None:
    """Each address that a page requests is in the list, and a blank page has one colour."""
    page = tmp_path / "page.html"
    page.write_text("<link rel=stylesheet href=style.css><body style='background: #123456'>")
    opened = chromium.open(page.as_uri())
    assert opened.requests() == [page.as_uri(), (tmp_path / "style.css").as_uri()]
    assert chromium.colours(opened.screenshot()) == 1
    opened.close()


@pytest.mark.services
def test_an_expression_that_throws_and_a_page_that_is_not_there_are_errors(chromium: Chromium, tmp_path: Path) -> None:
    """Neither is mistaken for an empty answer."""
    opened = chromium.open("about:blank")
    with pytest.raises(ServiceFailedError, match="no_such_name"):
        opened.evaluate("no_such_name")
    with pytest.raises(ServiceFailedError, match="could not open"):
        chromium.open((tmp_path / "absent.html").as_uri())
    opened.close()


@pytest.mark.services
def test_a_stopped_browser_leaves_no_process(chromium: Chromium, tmp_path: Path) -> None:
    """Its helpers end with it, and a second stop does nothing."""
    running = start_chromium(tmp_path)
    assert running.process is not None
    group = running.process.pid
    running.stop()
    running.stop()
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def install(folder: Path, name: str, text: str) -> Path:
    """Write a program into a folder and return its path."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(text)
    program.chmod(0o755)
    return program


def test_a_program_that_is_no_browser_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution's stub that only tells how to install a browser is skipped; the next program is used."""
    install(tmp_path / "bin", "chromium", "#!/bin/sh\necho please install the snap\nexit 1\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CHROMIUM", raising=False)
    with pytest.raises(ServiceUnavailableError, match=r"no Chromium.*tools/ensure_chromium\.sh"):
        find_chromium()
    chrome = install(tmp_path / "bin", "google-chrome", "#!/bin/sh\necho Google Chrome 150.0.1.2\n")
    assert find_chromium() == chrome
    other = install(tmp_path, "other", "#!/bin/sh\necho Chromium 150.0.1.2 built on something\n")
    monkeypatch.setenv("CHROMIUM", str(other))
    assert find_chromium() == other


def ensure(path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the script that installs a browser, with one folder on PATH."""
    tools = ("bash", "grep", "tail", "mktemp", "rm")
    for tool in tools:
        found = subprocess.run(["which", tool], capture_output=True, text=True, check=True).stdout.strip()
        if not (path / tool).exists():
            (path / tool).symlink_to(found)
    return subprocess.run(
        ["bash", ENSURE], env={"PATH": str(path), **env}, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_browser_that_is_there_is_taken(tmp_path: Path) -> None:
    """Nothing is installed, and standard output is only its path."""
    chrome = install(tmp_path / "bin", "google-chrome", "#!/bin/sh\necho noise >&2; echo Google Chrome 150.0.1.2\n")
    result = ensure(tmp_path / "bin")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{chrome}\n", "")


def test_who_may_not_install_is_told_the_command(tmp_path: Path) -> None:
    """A user other than root gets the command, and the exit code of an unavailable service."""
    install(tmp_path / "bin", "id", "#!/bin/sh\necho 1000\n")
    install(tmp_path / "bin", "apt-get", "#!/bin/sh\nexit 3\n")
    result = ensure(tmp_path / "bin")
    assert (result.returncode, result.stdout) == (69, "")
    assert "sudo apt-get update && sudo apt-get install -y --no-install-recommends chromium" in result.stderr


@pytest.mark.parametrize(("code", "said"), [(100, "Unable to locate package"), (0, "does not run; set CHROMIUM")])
def test_an_installation_that_does_not_help_says_so(tmp_path: Path, code: int, said: str) -> None:
    """The end of apt-get's output is shown; an installed browser that does not run is not used."""
    install(tmp_path / "bin", "id", "#!/bin/sh\necho 0\n")
    install(tmp_path / "bin", "apt-get", f"#!/bin/sh\necho E: Unable to locate package chromium\nexit {code}\n")
    result = ensure(tmp_path / "bin")
    assert (result.returncode, result.stdout) == (69, "")
    assert said in result.stderr


def test_an_installation_is_followed_by_the_browser_that_it_brought(tmp_path: Path) -> None:
    """Root on Debian gets a browser by the command that other users are told."""
    folder = tmp_path / "bin"
    browser = folder / "chromium"
    bring = '#!/bin/sh\ncase "$*" in *install*) echo "#!/bin/sh\necho Chromium 150.0" > {0}; /bin/chmod +x {0};; esac\n'
    install(folder, "id", "#!/bin/sh\necho 0\n")
    install(folder, "apt-get", bring.format(browser))
    result = ensure(folder)
    assert (result.returncode, result.stdout) == (0, f"{browser}\n")
