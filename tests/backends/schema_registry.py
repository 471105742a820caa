"""A schema registry for tests: the part of its HTTP contract that clients use to write and to read.

Subjects, versions and ids are kept as a registry keeps them; whether schemas are compatible it does not
judge.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from processes.free_ports import free_port

Answer = tuple[int, dict[str, Any]]
_MISSING: Answer = (404, {"error_code": 40403, "message": "Schema not found"})


class SchemaRegistry:
    """With `login` it asks for that "user:password". `asked` are the paths that were asked for."""

    def __init__(self, login: str = "") -> None:
        self._login = login
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self._port = free_port()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(*registry._get(urlsplit(self.path).path))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(*registry._post(urlsplit(self.path).path, body))

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                registry.asked.append(self.path)
                wanted = base64.b64encode(registry._login.encode()).decode()
                if registry._login and self.headers.get("Authorization") != f"Basic {wanted}":
                    status, body = 401, {"error_code": 401, "message": "Unauthorized"}
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _get(self, path: str) -> Answer:
        if (match := re.fullmatch(r"/schemas/ids/(\d+)", path)) is not None:
            number = int(match[1])
            return (200, self._schemas[number - 1]) if 0 < number <= len(self._schemas) else _MISSING
        if (match := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", path)) is not None:
            ids, version = self._subjects.get(match[1], []), int(match[2])
            return (200, self._told(match[1], ids[version - 1])) if 0 < version <= len(ids) else _MISSING
        return _MISSING

    def _post(self, path: str, body: dict[str, Any]) -> Answer:
        match = re.fullmatch(r"/subjects/([^/]+)(/versions)?", path)
        if match is None:
            return _MISSING
        schema = {name: body[name] for name in ("schema", "schemaType", "references") if body.get(name)}
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        ids = self._subjects.setdefault(match[1], [])
        if number not in ids:
            ids.append(number)
        return 200, self._told(match[1], number)

    def _told(self, subject: str, number: int) -> dict[str, Any]:
        version = self._subjects[subject].index(number) + 1
        return {**self._schemas[number - 1], "subject": subject, "version": version, "id": number}
