"""A schema registry that a test controls: it keeps schemas, and fails as it is told."""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, Any]


def _missing(code: int, what: str) -> Answer:
    return 404, {"error_code": code, "message": f"{what} not found"}


@dataclass
class RegistryServer:
    """Schemas by id, subjects as lists of ids; what was asked, and what to answer instead."""

    url: str = ""
    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    instead: deque[tuple[int, bytes]] = field(default_factory=deque)
    """Raw answers that come before any other, with their status."""

    def answer(self, method: str, path: str, body: Any) -> Answer:
        match method, [unquote(part) for part in path.split("/")[1:]]:
            case "GET", ["schemas", "ids", number]:
                found = int(number) - 1
                return (
                    (200, self.schemas[found])
                    if 0 <= found < len(self.schemas)
                    else _missing(40403, "Schema")
                )
            case "GET", ["schemas", "guids", guid]:
                known = [each for each in self.schemas if each["guid"] == guid]
                return (200, known[0]) if known else _missing(40403, "Schema")
            case "POST", ["subjects", subject, "versions"]:
                return 200, {"id": self.register(subject, body)}
            case "POST", ["subjects", subject]:
                return self._lookup(subject, body)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "GET", ["subjects"]:
                return 200, list(self.subjects)
            case "GET", ["config", *_]:
                return 200, {"compatibilityLevel": "BACKWARD"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def register(self, subject: str, body: dict[str, Any]) -> int:
        """Keep a schema under a subject, and return its id."""
        known = [{key: value for key, value in each.items() if key != "guid"} for each in self.schemas]
        if body not in known:
            known.append(body)
            self.schemas.append({**body, "guid": str(uuid.uuid4())})
        number = known.index(body) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def _lookup(self, subject: str, body: Any) -> Answer:
        if subject not in self.subjects:
            return _missing(40401, "Subject")
        for version, number in enumerate(self.subjects[subject], 1):
            if self.schemas[number - 1]["schema"] == body["schema"]:
                return self._version(subject, str(version))
        return _missing(40403, "Schema")

    def _version(self, subject: str, version: str) -> Answer:
        if subject not in self.subjects:
            return _missing(40401, "Subject")
        versions = self.subjects[subject]
        number = len(versions) if version == "latest" else int(version)
        schema_id = versions[number - 1]
        found = {"subject": subject, "version": number, "id": schema_id}
        return 200, {**self.schemas[schema_id - 1], **found}


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """A registry at a free port."""
    server = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            server.asked.append((self.command, self.path, self.headers.get("Authorization") or ""))
            if server.instead:
                status, data = server.instead.popleft()
            else:
                status, answer = server.answer(self.command, urlsplit(self.path).path, body)
                data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
