"""`/readyz`: ready while requests are answered and messages can go; else one word why not, and nothing of anybody."""

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


def until(api: Client, status: int) -> Response:
    """Return what `/readyz` answers once it has this status."""
    end = time.monotonic() + 60
    while (answer := api.get("/readyz")).status != status:
        assert time.monotonic() < end, answer.text
        time.sleep(0.05)
    return answer


def test_anybody_may_ask(server: Server) -> None:
    """Without a credential, by GET and HEAD; a stop by a person is no fault of the service."""
    stranger = Client(server.url)
    assert stranger.get("/readyz").expect(200) == READY
    assert stranger.request("HEAD", "/readyz").status == 200
    assert stranger.request("POST", "/readyz").status == 405
    (server.data / "STOP").touch()
    assert stranger.get("/readyz").expect(200) == READY
    (server.data / "STOP").unlink()


def test_until_messages_can_go_it_says_that_it_starts(fresh_server: FreshServer) -> None:
    """Requests are answered before the queue is there: whoever asks then is told so, and nothing fails."""
    server, over, heard = fresh_server(start=False), threading.Event(), []

    def ask() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError, HTTPException):
                heard.append(Client(server.url).get("/readyz"))

    asking = threading.Thread(target=ask)
    asking.start()
    server.start()
    over.set()
    asking.join()
    assert Client(server.url).get("/readyz").expect(200) == READY
    early = [answer for answer in heard if answer.status != 200]
    assert {(answer.status, answer.json["message"]) for answer in early} <= {
        (503, "The service is not ready: starting")
    }


def test_without_room_it_is_not_ready(fresh_server: FreshServer) -> None:
    """Below the room that sending needs it is 503 while what is there can still be read and written."""
    room = {"CAMPANERO_STORAGE__LEAST_FREE_MB": "1000000000", "CAMPANERO_STORAGE__LEAST_FREE_PERCENT": "100"}
    stranger = Client(fresh_server(env=room).url)
    answer = stranger.get("/readyz")
    said = answer.expect(503)
    assert (said["code"], said["message"]) == ("unavailable", "The service is not ready: storage")
    assert answer.headers["Retry-After"] == "5"
    assert stranger.get("/healthz").status == 200


def test_a_disk_that_cannot_be_written_is_told(fresh_server: FreshServer) -> None:
    """While nothing can be written it is 503, and ready again by itself afterwards."""
    server = fresh_server()
    api = server.client(validate=False)
    with unwritable(server.pid):
        # Somebody writes, and so it is known
        assert api.post("/contacts", {"email": "reader@example.org"}).status == 503
        assert until(api, 503).json["message"].endswith(": storage")
        assert api.get("/healthz").status == 503
    assert until(api, 200).json == READY


def test_it_ends_being_ready_when_it_is_told_to_stop(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """From SIGTERM on it is 503 on a connection that was open, until the last conversation has ended."""
    gate = smtp_server.rules.hold("body")
    server = fresh_server(relay=smtp_server.port)
    api = server.client(keep_alive=True)
    api.patch("/account", {"email_from_email": "news@bakery.example"}).expect(200)
    api.post("/contacts", {"email": "reader@example.org"}).expect(201)
    api.post("/messages", {"to": "reader@example.org", "subject": "s", "body": "<p>x</p>"}).expect(201)
    gate.wait_reached()
    assert api.get("/readyz").expect(200) == READY
    os.kill(server.pid, signal.SIGTERM)
    assert until(api, 503).json["code"] == "unavailable"
    gate.release()
    server.stop()


@pytest.mark.parametrize("times", [3])
def test_once_ready_it_stays_so(fresh_server: FreshServer, times: int) -> None:
    """Asked without pause through starts, it refuses the connection or says no until it is ready, and then only yes."""
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
        until(Client(server.url), 200)
        ended.set()
        asking.join()
        assert set(seen) <= {200, 503} and seen == sorted(seen, reverse=True)
        server.stop()
