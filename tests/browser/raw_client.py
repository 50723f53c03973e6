"""Streamlit's websocket and upload endpoint without a browser: sends what no page would send."""
from __future__ import annotations

import http.client
import socket
import time
import uuid
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.sync.client import ClientConnection, connect

QUIET_S = 0.3
"""So long without a message behind the end of a run: no rerun follows that the run asked for."""


class RawClient:
    """One session: `open` a page, see its widgets, `press` any of them, enabled or not."""

    def __init__(
        self, url: str, *, headers: dict[str, str] | None = None, cookies: str = "", token: str = "", host: str = "",
        origin: str = "",
    ) -> None:
        self.at = urlsplit(url)
        self.widgets: dict[str, Any] = {}
        self.texts: list[str] = []
        self._fragments: dict[str, str] = {}
        self.session = ""
        self._query, self._page = "", ""
        self._pages: dict[str, str] = {}
        wanted = {"Cookie": cookies} if cookies else {}
        self._socket: ClientConnection = connect(
            f"ws://{host or self.at.netloc}/_stcore/stream", sock=socket.create_connection(("127.0.0.1", self.at.port)),
            origin=origin or f"http://{self.at.netloc}",  # type: ignore[arg-type]
            subprotocols=["streamlit", token or "none"],  # type: ignore[list-item]
            additional_headers={**wanted, **(headers or {})}, max_size=None, open_timeout=10,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def open(self, page: str, **query: str) -> None:
        """Open a page by its address; its widgets are then in `widgets`, by id."""
        self._query, self._page = urlencode(query), ""
        self._rerun(page_name=page)

    def press(self, widget_id: str, *states: WidgetState) -> None:
        """Press a button of the page; `states`: what other widgets are said to hold."""
        inside = self._fragments.get(widget_id, "")
        self._rerun([WidgetState(id=widget_id, trigger_value=True), *states], fragment=inside)

    def tell(self, *states: WidgetState) -> None:
        """Say what widgets hold, without a press."""
        self._rerun(states)

    def send(self, **message: Any) -> None:
        self._socket.send(BackMsg(**message).SerializeToString())

    def find(self, name: str, known: dict[str, str] | None = None) -> str:
        """The id of a widget of the page, by its key or the beginning of its label; kept in `known`, and taken from
        there when the page does not make it."""
        for widget_id, part in self.widgets.items():
            if widget_id.endswith(f"-{name}") or getattr(part, "label", "").startswith(name):
                if known is not None:
                    known[name] = widget_id
                return widget_id
        if known is None or name not in known:
            raise AssertionError(f"no {name} among {list(self.widgets)}; the page says {self.texts[1:]}")
        return known[name]

    def _rerun(self, states: Iterable[WidgetState] = (), page_name: str = "", fragment: str = "") -> None:
        message = BackMsg()
        state = message.rerun_script
        state.query_string, state.page_name, state.fragment_id = self._query, page_name, fragment
        state.page_script_hash = self._page
        state.widget_states.widgets.extend(states)
        state.context_info.url = f"http://{self.at.netloc}/{page_name}"
        if not fragment:
            self.widgets.clear()
            self._fragments.clear()
        self.texts.clear()
        self._socket.send(message.SerializeToString())
        self._read()

    def _read(self, limit_s: float = 40.0) -> None:
        deadline, finished = time.monotonic() + limit_s, False
        while time.monotonic() < deadline:
            try:
                raw = self._socket.recv(timeout=QUIET_S if finished else limit_s)
            except TimeoutError:
                return
            message = ForwardMsg()
            message.ParseFromString(raw)
            kind = message.WhichOneof("type")
            if kind == "new_session":
                self._page = message.new_session.page_script_hash
                self.session = message.new_session.initialize.session_id or self.session
                finished = False
            elif kind == "navigation":
                self._page = message.navigation.page_script_hash
            elif kind == "script_finished":
                finished = True
            elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
                self._element(message.delta.new_element, message.delta.fragment_id)
            elif kind == "delta" and message.delta.WhichOneof("type") == "add_block":
                self._element(message.delta.add_block, message.delta.fragment_id)
        raise AssertionError("the page did not come to an end")

    def _element(self, element: Any, fragment: str) -> None:
        kind = element.WhichOneof("type")
        if kind is None:
            return
        part = getattr(element, kind)
        if not hasattr(part, "DESCRIPTOR"):
            return
        if "id" in part.DESCRIPTOR.fields_by_name and part.id:
            self.widgets[part.id] = part
            if fragment:
                self._fragments[part.id] = fragment
        for name in ("body", "label"):
            if name in part.DESCRIPTOR.fields_by_name:
                self.texts.append(str(getattr(part, name)))

    # --- HTTP ---

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection(self.at.netloc, timeout=10)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def put_file(self, name: str, data: bytes) -> tuple[int, str]:
        """Send a file to the upload endpoint of this session; returns the status and the file's id."""
        _, _, headers = self.request("GET", "/_stcore/health")
        cookie = next(v for k, v in headers.items() if k.lower() == "set-cookie").split(";")[0]
        edge, file_id = uuid.uuid4().hex, str(uuid.uuid4())
        body = (f"--{edge}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n"
                "Content-Type: application/octet-stream\r\n\r\n").encode() + data + f"\r\n--{edge}--\r\n".encode()
        status, _, _ = self.request(
            "PUT", f"/_stcore/upload_file/{self.session}/{file_id}", body, Cookie=cookie,
            **{"X-Xsrftoken": cookie.partition("=")[2], "Content-Type": f"multipart/form-data; boundary={edge}"},
        )
        return status, file_id
