"""`/readyz`: 200 while requests and messages are processed, else 503 with a one-word reason and no personal data."""

import contextlib
import os
import signal
import threading
import time
from http.client import HTTPException

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.disk import unwritable
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

READY = {"status": "ready"}


def wait_for_status(api: Client, status: int) -> Response:
    """Return the response of `/readyz` once it has this status."""
    end = time.monotonic() + 60
    while (response := api.get("/readyz")).status != status:
        assert time.monotonic() < end, response.text
        time.sleep(0.05)
    return response


def test_readyz_needs_no_credential(server: Server) -> None:
    """GET and HEAD work without a credential; a stop file does not make the service unready."""
    stranger = Client(server.url)
    assert stranger.get("/readyz").expect(200) == READY
    assert stranger.request("HEAD", "/readyz").status == 200
    assert stranger.request("POST", "/readyz").status == 405
    (server.data / "STOP").touch()
    assert stranger.get("/readyz").expect(200) == READY
    (server.data / "STOP").unlink()


def test_readyz_during_a_start(fresh_server: FreshServer) -> None:
    """Before the queue is loaded the response is a 503 with the reason `starting`."""
    server, over, heard = fresh_server(start=False), threading.Event(), []

    def ask() -> None:
        while not over.wait(0.002):
            with contextlib.suppress(OSError, HTTPException):
                heard.append(Client(server.url).get("/readyz"))

    asking = threading.Thread(target=ask)
    asking.start()
    server.start()
    over.set()
    asking.join()
    assert Client(server.url).get("/readyz").expect(200) == READY
    early = [response for response in heard if response.status != 200]
    assert {(response.status, response.json["message"]) for response in early} <= {
        (503, "The service is not ready: starting.")
    }


def test_readyz_on_a_full_disk(fresh_server: FreshServer) -> None:
    """With less free space than sending needs it is a 503 with the reason `storage`, while `/healthz` is a 200."""
    room = {"CAMPANERO_STORAGE__LEAST_FREE_MB": "1000000000", "CAMPANERO_STORAGE__LEAST_FREE_PERCENT": "100"}
    stranger = Client(fresh_server(env=room).url)
    response = stranger.get("/readyz")
    result = response.expect(503)
    assert (result["code"], result["message"]) == ("unavailable", "The service is not ready: storage.")
    assert response.headers["Retry-After"] == "5"
    assert stranger.get("/healthz").status == 200


def test_readyz_on_a_read_only_disk(fresh_server: FreshServer) -> None:
    """While writes fail it is a 503, and afterwards a 200 again."""
    server = fresh_server()
    api = server.client(validate=False)
    with unwritable(server.pid):
        # The service notices with the first failed write
        assert api.post("/contacts", {"email": "reader@example.org"}).status == 503
        assert wait_for_status(api, 503).json["message"].endswith(": storage.")
        assert api.get("/healthz").status == 503
    assert wait_for_status(api, 200).json == READY


def test_readyz_during_a_stop(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """After SIGTERM it is a 503 on an open connection until the last SMTP session has ended."""
    gate = smtp_server.rules.hold("body")
    server = fresh_server(relay=smtp_server.port)
    api = server.client(keep_alive=True)
    api.patch("/account", {"email_from_email": "news@bakery.example"}).expect(200)
    api.post("/contacts", {"email": "reader@example.org"}).expect(201)
    api.post("/messages", {"to": "reader@example.org", "subject": "s", "body": "<p>x</p>"}).expect(201)
    gate.wait_reached()
    assert api.get("/readyz").expect(200) == READY
    os.kill(server.pid, signal.SIGTERM)
    assert wait_for_status(api, 503).json["code"] == "unavailable"
    gate.release()
    server.stop()


@pytest.mark.parametrize("times", [2])
def test_readyz_never_goes_back_during_a_start(fresh_server: FreshServer, times: int) -> None:
    """Polled during a start, it is first 503 or refused, and then only 200."""
    server = fresh_server(start=False)
    for _ in range(times):
        seen: list[int] = []
        ended = threading.Event()

        def ask(seen: list[int] = seen, ended: threading.Event = ended) -> None:
            stranger = Client(server.url)
            while not ended.is_set():
                try:
                    seen.append(stranger.get("/readyz").status)
                except OSError:
                    time.sleep(0.002)

        asking = threading.Thread(target=ask)
        asking.start()
        server.start()
        wait_for_status(Client(server.url), 200)
        ended.set()
        asking.join()
        assert set(seen) <= {200, 503} and seen == sorted(seen, reverse=True)
        server.stop()
