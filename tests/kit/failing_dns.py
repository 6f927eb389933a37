"""A DNS server that fails every query at once, for servers whose test needs no DNS."""

import socketserver
import threading
from functools import cache

_HEADER_BYTES = 12
_MIN_QUERY_BYTES = 17
# A response to a recursive query: QR, RD, RA, and SERVFAIL; one question, no records
_SERVFAIL = b"\x81\x82" + b"\x00\x01" + b"\x00" * 6


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        query, sock = self.request
        if len(query) >= _MIN_QUERY_BYTES:
            sock.sendto(query[:2] + _SERVFAIL + _question(query), self.client_address)


def _question(query: bytes) -> bytes:
    """Return the question of a query: its name, type and class."""
    end = _HEADER_BYTES
    while query[end]:
        end += 1 + query[end]
    return query[_HEADER_BYTES : end + 5]


@cache
def failing_dns_address() -> str:
    """Return `host:port` of the server, which runs as long as this process.

    Its failure is temporary, as that of a server that does not respond, which would take seconds of each look-up.
    """
    server = socketserver.UDPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"127.0.0.1:{server.server_address[1]}"
