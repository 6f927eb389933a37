"""An HTTPS server with the MTA-STS policies of domains (RFC 8461), and its certificate."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from tests.kit.certificates import Certificate, self_signed

_PATH = "/.well-known/mta-sts.txt"


class PolicyServer:
    """Serves a policy for each domain; a process started with `env` trusts its certificate.

    `certificate` is also valid for the given mail servers. `requested_domains` has the domain of each request.
    """

    def __init__(self, directory: Path, domains: tuple[str, ...], mail_servers: tuple[str, ...]) -> None:
        self.certificate: Certificate = self_signed(*(f"mta-sts.{domain}" for domain in domains), *mail_servers)
        self.policies: dict[str, tuple[int, str, str]] = {}
        self.requested_domains: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = self.certificate.context().wrap_socket(self._server.socket, server_side=True)
        (directory / "ca.pem").write_bytes(self.certificate.certificate)
        port = self._server.server_address[1]
        hosts = {f"mta-sts.{domain}": port for domain in domains}
        (directory / "hosts.json").write_text(json.dumps({"ca": str(directory / "ca.pem"), "hosts": hosts}))
        self.env = {"CAMPANERO_TEST_HOSTS": str(directory / "hosts.json"), "SSL_CERT_FILE": str(directory / "ca.pem")}

    def set_raw_policy(self, domain: str, text: str, status: int = 200, kind: str = "text/plain") -> None:
        """Set the response for a domain: text, status and content type."""
        self.policies[domain] = (status, kind, text)

    def set_policy(self, domain: str, mode: str, *hosts: str, max_age: int = 86400) -> None:
        """Set a valid policy of a domain: its mode, and the mail servers it allows."""
        lines = ["version: STSv1", f"mode: {mode}", *(f"mx: {host}" for host in hosts), f"max_age: {max_age}"]
        self.set_raw_policy(domain, "\r\n".join(lines))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                domain = (self.headers["Host"] or "").partition(":")[0].removeprefix("mta-sts.")
                server.requested_domains.append(domain)
                known = server.policies.get(domain) if self.path == _PATH else None
                status, kind, text = known or (404, "text/plain", "")
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Location", "https://elsewhere.example/")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
