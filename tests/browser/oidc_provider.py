"""A small OpenID provider on loopback: discovery, code flow with PKCE, ID tokens signed with RS256.

Whoever is at the door may enter: the form asks for an address only, and whether it counts as verified.
"""
from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "gapscope-test", "a secret of this test"


@dataclass
class Provider:
    """`login` keeps what the person at the door said until the app comes for it, once, with its secret and verifier."""

    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "test", "use": "sig"}))
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    url: str = ""

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token", "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"], "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["openid", "email", "profile"], "grant_types_supported": ["authorization_code"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
        }

    def form(self, asked: dict[str, str]) -> str:
        hidden = "".join(
            f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
            for name, value in asked.items()
        )
        return ('<!doctype html><title>Provider</title><form method="post" action="/login"><label>Address '
                '<input name="email"></label><label>Verified <input type="checkbox" name="verified" checked></label>'
                f"{hidden}<button>Enter</button></form>")

    def login(self, said: dict[str, str]) -> str:
        """Where the browser goes on: back to the app with a code."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = said
        return f"{said['redirect_uri']}?{urlencode({'code': code, 'state': said['state']})}"

    def token(self, asked: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """None: refused, for a wrong secret, code, address or verifier."""
        said = self.codes.pop(asked.get("code", ""), None)
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if said is None or authorization != f"Basic {basic}" or asked.get("redirect_uri") != said["redirect_uri"]:
            return None
        digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).decode().rstrip("=") != said["code_challenge"]:
            return None
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "sub": hashlib.sha256(said["email"].encode()).hexdigest()[:16],
                  "iat": now, "exp": now + 300, "nonce": said["nonce"], "email": said["email"],
                  "email_verified": "verified" in said}
        return {"access_token": secrets.token_urlsafe(16), "token_type": "Bearer", "expires_in": 300,
                "id_token": jwt.encode({"alg": "RS256", "kid": "test"}, claims, self.key)}


@contextmanager
def running_provider() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            at = urlsplit(self.path)
            if at.path == "/.well-known/openid-configuration":
                self._json(provider.discovery())
            elif at.path == "/keys":
                self._json({"keys": [provider.key.as_dict(private=False)]})
            elif at.path == "/authorize":
                self._answer(200, provider.form(_flat(at.query)).encode(), "text/html; charset=utf-8")
            else:
                self._answer(404, b"", "text/plain")

        def do_POST(self) -> None:
            given = _flat(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
            if self.path == "/login":
                self.send_response(302)
                self.send_header("Location", provider.login(given))
                self.end_headers()
            elif self.path == "/token":
                token = provider.token(given, self.headers.get("Authorization", ""))
                self._json(token or {"error": "invalid_grant"}, 200 if token else 400)
            else:
                self._answer(404, b"", "text/plain")

        def _json(self, data: dict[str, Any], status: int = 200) -> None:
            self._answer(status, json.dumps(data).encode(), "application/json")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """The test's output stays its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _flat(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
