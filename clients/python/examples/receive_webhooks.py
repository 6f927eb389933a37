"""Receive the events of a webhook and print them: `receive_webhooks.py PORT`, with its secret in WEBHOOK_SECRET."""

import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from campanero_client import webhooks
from campanero_client.errors import InvalidSignature


class Receiver(BaseHTTPRequestHandler):
    """Prints each event that is signed with the secret."""

    def do_POST(self) -> None:  # the name that http.server calls
        """Verify a request, and print its event."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            event = webhooks.verify(body, self.headers, os.environ["WEBHOOK_SECRET"])
        except InvalidSignature:
            self.send_response(403)
        else:
            print(event["event"], flush=True)
            self.send_response(204)
        self.end_headers()


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
