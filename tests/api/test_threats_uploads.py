"""T04: uploads that are active, pretend, or are larger inside than outside."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.patience import soon
from tests.kit.pictures import SCRIPT, animation, hostile, photo, saved
from tests.kit.server import Server
from tests.kit.uploads import upload_picture

MOST_MB = 100
CORPUS = sorted(hostile())


def resident(server: Server) -> float:
    """Return the megabytes of memory that a server has now."""
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


class Watch(threading.Thread):
    """Looks at the memory of a server, and asks whether it is well, while something else is done to it."""

    def __init__(self, server: Server, client: Client) -> None:
        super().__init__(daemon=True)
        self.server, self.client = server, client
        self.most, self.waits, self.over = 0.0, [0.0], threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            self.most = max(self.most, resident(self.server))
            begun = time.monotonic()
            self.client.get("/healthz").expect(200)
            self.waits.append(time.monotonic() - begun)

    def during(self, function: Callable[[], object]) -> float:
        """Return by how many megabytes the server grew at its largest while a function ran."""
        before = self.most = resident(self.server)
        self.start()
        function()
        self.over.set()
        self.join()
        return self.most - before


@pytest.mark.parametrize("name", CORPUS)
def test_what_is_no_picture_is_422_under_any_name(api: Client, name: str) -> None:
    """By its content alone: a picture's name, type and extension change nothing. The words say why."""
    for called in ("logo.png", "logo.svg", "logo.html", "logo.gif;.html"):
        fault = upload_picture(api, hostile()[name], called).expect(422)
        assert list(fault["validation_errors"]) == ["file"]
        assert fault["validation_errors"]["file"][0].split()[0] in ("is", "has")


def test_an_svg_is_told_apart(api: Client) -> None:
    """Who exports from a drawing program is told what to do instead."""
    fault = upload_picture(api, hostile()["svg"], "logo.svg").expect(422)
    assert fault["validation_errors"]["file"] == ["is an SVG, which mail programs do not show: export it as a PNG"]


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("image/png", saved(photo(), "PNG") + SCRIPT),
        ("image/jpeg", saved(photo(), "JPEG", comment=SCRIPT) + SCRIPT),
        ("image/gif", animation(comment=SCRIPT)),
        ("image/jpeg", saved(photo(), "WEBP", exif=b"Exif\0\0" + SCRIPT)),
    ],
)
def test_a_picture_that_is_a_script_as_well_is_only_a_picture(api: Client, kind: str, file: bytes) -> None:
    """What stood beside the picture is not served, and its name does not choose its type."""
    assert b"<script>" in file
    made = upload_picture(api, file, "evil.html").expect(201)
    answer = api.request("GET", made["url"].removeprefix(api.url), None, {"Accept": "text/html"})

    assert answer.headers["content-type"] == made["content_type"] == kind
    assert b"script" not in answer.body and answer.headers["x-content-type-options"] == "nosniff"


def test_nothing_is_served_as_a_document(api: Client) -> None:
    """Every picture of the corpus that is taken has one of three types; a missing one is plain text."""
    taken = [saved(photo(), kind) for kind in ("PNG", "JPEG", "GIF", "WEBP")]
    paths = [upload_picture(api, file, "x.svg").expect(201)["url"].removeprefix(api.url) for file in taken]
    kinds = {api.request("GET", path).headers["content-type"] for path in [*paths, "/m/nothing.svg", "/m/x.html"]}
    assert kinds <= {"image/png", "image/jpeg", "image/gif", "text/plain"}


def test_bombs_take_no_memory_and_hold_nobody_up(fresh_server: FreshServer) -> None:
    """All that is hostile, four at a time: memory grows less than 100 MB, and others are answered meanwhile."""
    server = fresh_server()
    client = server.client()
    upload_picture(client, saved(photo(), "PNG")).expect(201)  # its library is read by then
    files = [hostile()[name] for name in CORPUS] * 3

    def attack() -> None:
        with ThreadPoolExecutor(4) as many:
            answers = list(many.map(lambda one: upload_picture(client, one), files))
        assert {answer.status for answer in answers} == {422}

    watch = Watch(server, client)
    assert watch.during(attack) < MOST_MB
    assert sorted(watch.waits)[int(len(watch.waits) * 0.99) - 1] < soon(0.2)


def test_large_pictures_are_made_one_at_a_time(fresh_server: FreshServer) -> None:
    """Eight photos of a camera at once need the room of one, and give it back."""
    server = fresh_server()
    client = server.client()
    upload_picture(client, saved(photo(), "JPEG")).expect(201)
    file = saved(photo(5600, 4200), "JPEG", quality=80)
    before = resident(server)

    def send() -> None:
        with ThreadPoolExecutor(8) as many:
            answers = list(many.map(lambda _: upload_picture(client, file), range(8)))
        assert [answer.status for answer in answers] == [201] * 8

    assert Watch(server, client).during(send) < MOST_MB
    assert resident(server) - before < MOST_MB / 2
