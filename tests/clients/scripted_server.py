"""An HTTP server of tests that responds as a script says, and records the requests."""

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from tests.kit.background_http import BackgroundHttp


class Reply(NamedTuple):
    """A response; with the status 0 the connection is closed without one, and `cut` bytes of the body are left out."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = {}
    cut: int = 0


class Arrival(NamedTuple):
    """A request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class ScriptedServer(BackgroundHttp):
    """Sends the replies of `script` one after the other, and the last of them again and again."""

    def __init__(self, *script: Reply) -> None:
        self.arrivals: list[Arrival] = []
        server, replies = self, [*script]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                server.arrivals.append(Arrival(self.command, self.path, headers, body))
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
                self.close_connection = not reply.status or bool(reply.cut)
                if not reply.status:
                    return
                content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for name, value in {**reply.headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content[: len(content) - reply.cut])

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _respond
            log_message: Callable[..., None] = lambda *_: None  # an attribute of the class

        super().__init__(Handler)
