"""The parent's end of a worker process: start it, talk to it, notice when it dies or hangs. Standard library only."""
from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.errors import UserError
from core.measure import reasons
from core.process import python_command

START_TIMEOUT_S = 300.0  # a cold file system can take minutes to load torch
WORKER_COMMAND = tuple(python_command("core.measure.worker"))
_LOOK_EVERY_S = 0.1
_NOISE = ("USDT:", "WARNING:", "[W")  # lines of torch's profiler and logger that say nothing about an end


class WorkerDiedError(Exception):
    """The process ended; the text says how."""


class WorkerSilentError(Exception):
    """No message for too long; the text says in which phase."""


class InterruptedSweepError(Exception):
    """Somebody wants the sweep to stop at once."""


class WorkerProcess:
    def __init__(self, command: Sequence[str] = WORKER_COMMAND, variables: Mapping[str, str] | None = None) -> None:
        """`variables`: environment of this worker alone."""
        environment = {**os.environ, **(variables or {}), "GAPSCOPE_PARENT": str(os.getpid())}
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
            text=True, encoding="utf-8", errors="replace",
        )
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._last_words: collections.deque[str] = collections.deque(maxlen=20)
        threading.Thread(target=self._read_messages, daemon=True).start()
        self._error_reader = threading.Thread(target=self._read_errors, daemon=True)
        self._error_reader.start()

    def _read_messages(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # closed meanwhile
            for line in self._process.stdout:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict):
                    self._messages.put(message)
        self._messages.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with contextlib.suppress(ValueError):  # closed meanwhile: nobody asks for the last words any more
            for line in self._process.stderr:
                if line.strip() and not line.startswith(_NOISE):
                    self._last_words.append(line.strip())

    def ask(
        self, order: dict[str, Any], answer: str, silence_s: float, interrupted: Callable[[], bool] = lambda: False,
        on_progress: Callable[[dict[str, Any]], None] = lambda message: None,
    ) -> dict[str, Any]:
        """Send an order and wait for the message of type `answer`; progress on the way resets the patience.

        Raises WorkerDiedError, WorkerSilentError, InterruptedSweepError, or the UserError that the worker reports.
        """
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise WorkerDiedError(self._how_it_ended()) from None
        phase, heard = "start", time.monotonic()
        while True:
            try:
                message = self._messages.get(timeout=_LOOK_EVERY_S)
            except queue.Empty:
                if interrupted():
                    raise InterruptedSweepError from None
                if time.monotonic() - heard > silence_s:
                    raise WorkerSilentError(f"no sign of life for {silence_s:g} s in phase {phase!r}") from None
                continue
            if message is None:
                raise WorkerDiedError(self._how_it_ended())
            heard = time.monotonic()
            kind = message.get("type")
            if kind == "user_error":
                raise UserError(str(message.get("found")), str(message.get("expected")), str(message.get("fix")))
            if kind == answer:
                return message
            phase = str(message.get("phase", phase))
            on_progress(message)

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the worker process closed its output"
        if code < 0:
            name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
            hint = ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
            return f"the worker process was ended by {name}{hint}"
        self._error_reader.join(timeout=1)  # its last words may still be on their way
        words = reasons.clean(self._last_words[-1]) if self._last_words else ""
        return f"the worker process ended with code {code}" + (f" ({words})" if words else "")

    def close(self, at_once: bool = False) -> None:
        """End the process: by asking, or at once."""
        if self._process.poll() is None and not at_once:
            with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
                assert self._process.stdin is not None
                self._process.stdin.write('{"do": "quit"}\n')
                self._process.stdin.close()
                self._process.wait(timeout=10)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()
