"""A real server and a real browser: Debian's chromium, a temporary database, nothing but loopback."""
from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]


@dataclass
class Server:
    """`streamlit run app.py` on a port and folders of its own."""

    folder: Path
    options: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.folder / "server.log"

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "GAPSCOPE_DB": str(self.folder / "results.duckdb"), "GAPSCOPE_RUNS": str(self.runs),
                **self.variables}

    def start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(self.port),
                 "--server.headless", "true", "--server.fileWatcherType", "none", *self.options],
                cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"the server did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End the server by its own pid, and whatever sweep it started by the pid in its runner.json."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        for note in self.runs.glob("*/runner.json"):
            pid = json.loads(note.read_text())["pid"]
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and b"core.measure" in command.read_bytes():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        if os.environ.get("GAPSCOPE_REQUIRE_BROWSER"):
            pytest.fail("no chromium: apt-get install chromium fonts-liberation")
        pytest.skip("no chromium: apt-get install chromium fonts-liberation")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


class Watched:
    """Tabs of one visitor; what the browser complained about and whom it called are kept."""

    def __init__(self, browser: Any, server: Server, **options: Any) -> None:
        self.server = server
        self.context = browser.new_context(viewport={"width": 1440, "height": 900}, **options)
        self.context.set_default_timeout(20_000)
        self.errors: list[str] = []
        self.strangers: list[str] = []

    def tab(self) -> Any:
        page = self.context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._request(request.url))
        page.on("websocket", lambda socket: self._request(socket.url))
        return page

    def _console(self, message: Any) -> None:
        # Streamlit asks for its health below the page's own path first and takes the 404 as an answer.
        probe = "status of 404" in message.text and "_stcore" in message.location.get("url", "")
        if message.type == "error" and not probe:
            self.errors.append(message.text)

    def _request(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        host = rest.split("/")[0].rsplit(":", 1)[0]
        if scheme in ("http", "https", "ws", "wss") and host not in ("localhost", "127.0.0.1"):
            self.strangers.append(url)

    def check(self) -> None:
        assert not self.strangers, f"requests left the machine: {self.strangers}"
        assert not self.errors, f"the browser complained: {self.errors}"


@pytest.fixture
def visitor(browser: Any, server: Server) -> Iterator[Watched]:
    watched = Watched(browser, server)
    yield watched
    watched.context.close()
    watched.check()
