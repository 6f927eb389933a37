"""A web server of this process for the requests of flows: the path of a URL says how it responds."""

import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What the steps of the model ask for, and the status of the response.
STATUSES = {"ok": 200, "no": 400}
# The value that a successful response has.
SEEN = 2


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = b'{"seen": %d}' % SEEN
        self.send_response(STATUSES[self.path.strip("/")])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Ignore clients that were killed."""


@cache
def _start() -> int:
    """Start the server for the rest of the process, and return its port."""
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return int(server.server_address[1])


def get_url(answer: str) -> str:
    """Return the URL that responds with the status of an answer."""
    return f"http://127.0.0.1:{_start()}/{answer}"
