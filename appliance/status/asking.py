"""Asks a service that runs on this machine whether it is ready."""

import http.client
import json
import ssl

from appliance import config

_SECONDS = 2.0
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def readiness(listen: str) -> str:
    """Return `ready`, or in a few words what keeps it from that."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    try:
        here = _connection(_ANY.get(host, host), int(port))
        try:
            here.request("GET", "/readyz")
            answer = here.getresponse()
            said = json.loads(answer.read(10_000))
        finally:
            here.close()
        if answer.status == 200:
            return "ready"
        return str(said["message"]).removeprefix("the service is ")
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return f"does not answer on {listen}"


def _connection(host: str, port: int) -> http.client.HTTPConnection:
    if not config.current().tls.certificate:
        return http.client.HTTPConnection(host, port, timeout=_SECONDS)
    # It is asked by its address on this machine, which no certificate names
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=trusting)
