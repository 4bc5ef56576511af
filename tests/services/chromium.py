"""A real headless Chromium: what a page shows, logs and requests.

It is controlled through two named pipes (the DevTools protocol, ``--remote-debugging-pipe``): no port is opened.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.services import ServiceFailedError, ServiceUnavailableError
from tests.services.processes import ServiceProcess, start_process

PROGRAM = "CHROMIUM"
NAMES = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
START_SECONDS = 120.0
ANSWER_SECONDS = 120.0
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
_COLOURS = """
fetch("data:image/png;base64,%s").then(answer => answer.blob()).then(createImageBitmap).then(image => {
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  return new Set(new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer)).size;
})
"""
_EXCEPTIONS, _CONSOLE, _LOG = "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"


def find_chromium() -> Path:
    """Return the browser that CHROMIUM names, else the first on PATH that runs.

    Raises:
        ServiceUnavailableError: there is none.
    """
    for name in filter(None, (os.environ.get(PROGRAM), *NAMES)):
        found = shutil.which(name)
        if found and _runs(found):
            return Path(found)
    raise ServiceUnavailableError(
        f"there is no Chromium, neither by {PROGRAM} nor as {', '.join(NAMES)} on PATH; "
        "tools/ensure_chromium.sh installs one where it can, else says how"
    )


def _runs(program: str) -> bool:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return bool(re.search(r"(Chromium|Chrome) \d", answer.stdout))


def start_chromium(work_dir: Path) -> Chromium:
    """Start a browser with an empty profile below a folder; return when it answers.

    Raises:
        ServiceUnavailableError: there is no browser.
        ServiceFailedError: it did not come up.
    """
    program = find_chromium()
    work_dir.mkdir(parents=True, exist_ok=True)
    for name in ("in", "out"):
        os.mkfifo(work_dir / name)
    # A pipe opened for both directions neither waits for the other side nor ends with it.
    requests, answers = (os.open(work_dir / name, os.O_RDWR | os.O_CLOEXEC) for name in ("in", "out"))
    browser = Chromium(None, requests, answers)
    # The sandbox does not start as root, as in a container; the browser only opens pages of this project.
    flags = [*_FLAGS, f"--user-data-dir={work_dir / 'profile'}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    command: list[str | Path] = ["bash", "-c", 'exec "$@" 3<in 4>out', "bash", program, *flags]
    browser.process = start_process("chromium", command, work_dir)
    try:
        browser.call("Browser.getVersion", {}, seconds=START_SECONDS)
    except BaseException:
        browser.stop()
        raise
    return browser


@dataclass(slots=True)
class Chromium:
    """A running browser."""

    process: ServiceProcess | None
    _to: int
    _from: int
    _buffer: bytes = b""
    _number: int = 0
    _events: list[dict[str, Any]] = field(default_factory=list)

    def stop(self) -> None:
        """End the browser and all of its processes; a second call does nothing."""
        if self.process is not None:
            self.process.stop()
            self.process = None
            os.close(self._to)
            os.close(self._from)

    def open(self, url: str, *, width: int = 1200, height: int = 900, dark: bool = False) -> Page:
        """Load a page in a new tab with a window of this size; return when it and its resources are loaded."""
        target = self.call("Target.createTarget", {"url": "about:blank", "newWindow": True})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, target, session)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        page.call("Emulation.setEmulatedMedia", features=scheme)
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        answer = page.call("Page.navigate", url=url)
        if "errorText" in answer:
            raise ServiceFailedError(f"chromium could not open {url}: {answer['errorText']}")
        self._wait_for("Page.loadEventFired", session)
        return page

    def colours(self, png: bytes) -> int:
        """Return the number of colours in a picture; a blank one has one."""
        page = self.open("about:blank")
        number = int(page.evaluate(_COLOURS % base64.b64encode(png).decode()))
        page.close()
        return number

    def call(
        self, method: str, parameters: Mapping[str, Any], session: str | None = None, seconds: float = ANSWER_SECONDS
    ) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result.

        Raises:
            ServiceFailedError: the browser refused, ended, or did not answer in time.
        """
        self._number += 1
        request = {"id": self._number, "method": method, "params": dict(parameters)}
        text = json.dumps({**request, **({"sessionId": session} if session else {})})
        os.write(self._to, text.encode() + b"\0")
        end = time.monotonic() + seconds
        while (message := self._next(end, method)).get("id") != self._number:
            self._events.append(message)
        if "error" in message:
            raise ServiceFailedError(f"chromium refused {method}: {message['error'].get('message')}")
        result: dict[str, Any] = message["result"]
        return result

    def events(self, session: str) -> list[dict[str, Any]]:
        """Return the events of a tab so far."""
        return [past for past in self._events if past.get("sessionId") == session]

    def _wait_for(self, event: str, session: str) -> None:
        end = time.monotonic() + ANSWER_SECONDS
        while not any(past["method"] == event for past in self.events(session)):
            self._events.append(self._next(end, event))

    def _next(self, end: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if select.select([self._from], [], [], 0.2)[0]:
                self._buffer += os.read(self._from, 1 << 20)
            elif self.process is None or not self.process.alive() or time.monotonic() > end:
                log = self.process.log_tail() if self.process else ""
                raise ServiceFailedError(f"chromium did not answer {what}; the end of its log:\n{log}")
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


@dataclass(frozen=True, slots=True)
class Page:
    """A page in its own tab."""

    browser: Chromium
    target: str
    session: str

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol in this tab."""
        return self.browser.call(method, parameters, self.session)

    def evaluate(self, expression: str) -> Any:
        """Return the JSON value of an expression in the page; the page's own policy does not apply to it.

        Raises:
            ServiceFailedError: the expression threw an exception.
        """
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise ServiceFailedError(f"{expression!r} threw: {json.dumps(answer['exceptionDetails'])[:2000]}")
        return answer["result"].get("value")

    def screenshot(self, selector: str = "html") -> bytes:
        """Return a PNG of an element, including parts outside the window."""
        box = self.evaluate(
            "(({left, top, width, height}) => ({x: left + scrollX, y: top + scrollY, width, height, scale: 1}))"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        answer = self.call("Page.captureScreenshot", format="png", clip=box, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """Return the page as a printed PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def complaints(self) -> list[str]:
        """Return exceptions, console messages and the browser's log entries, including policy violations."""
        self.evaluate("0")  # earlier events have arrived when this is answered
        told = [
            event for event in self.browser.events(self.session) if event["method"] in (_EXCEPTIONS, _CONSOLE, _LOG)
        ]
        return [json.dumps(event["params"]) for event in told]

    def requests(self) -> list[str]:
        """Return the URLs of the page's requests, its own first, without those that a policy blocked."""
        self.evaluate("0")
        events = self.browser.events(self.session)
        failed = [event["params"] for event in events if event["method"] == "Network.loadingFailed"]
        blocked = {event["requestId"] for event in failed if event.get("blockedReason")}
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [event["request"]["url"] for event in sent if event["requestId"] not in blocked]

    def close(self) -> None:
        """Close the tab."""
        self.browser.call("Target.closeTarget", {"targetId": self.target})
