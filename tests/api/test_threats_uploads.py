"""T04: uploads that are active, pretend, or are larger inside than outside."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.pictures import SCRIPT, animation, encode_image, hostile_files, photo
from tests.kit.process_metrics import list_process_tree, wait_until_ended
from tests.kit.server import Server
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import upload_image

MAX_MB = 100
CORPUS = sorted(hostile_files())


def resident(server: Server) -> float:
    """Return the megabytes of memory that a server and its child processes have now."""
    return (
        sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in list_process_tree(server.pid))
        * 4096
        / 1e6
    )


def decoder(server: Server) -> int:
    """Return the process that decodes a server's pictures; one picture was uploaded before."""
    (pid,) = [
        one for one in list_process_tree(server.pid) if b"decode-pictures" in Path(f"/proc/{one}/cmdline").read_bytes()
    ]
    return pid


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
        fault = upload_image(api, hostile_files()[name], called).expect(422)
        assert list(fault["validation_errors"]) == ["file"]
        assert fault["validation_errors"]["file"][0].split()[0] in ("is", "has")


def test_an_svg_is_told_apart(api: Client) -> None:
    """Who exports from a drawing program is told what to do instead."""
    fault = upload_image(api, hostile_files()["svg"], "logo.svg").expect(422)
    assert fault["validation_errors"]["file"] == ["is an SVG, which mail programs do not show: export it as a PNG"]


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("image/png", encode_image(photo(), "PNG") + SCRIPT),
        ("image/jpeg", encode_image(photo(), "JPEG", comment=SCRIPT) + SCRIPT),
        ("image/gif", animation(comment=SCRIPT)),
        ("image/jpeg", encode_image(photo(), "WEBP", exif=b"Exif\0\0" + SCRIPT)),
    ],
)
def test_a_picture_that_is_a_script_as_well_is_only_a_picture(api: Client, kind: str, file: bytes) -> None:
    """What stood beside the picture is not served, and its name does not choose its type."""
    assert b"<script>" in file
    made = upload_image(api, file, "evil.html").expect(201)
    answer = api.request("GET", made["url"].removeprefix(api.url), None, {"Accept": "text/html"})

    assert answer.headers["content-type"] == made["content_type"] == kind
    assert b"script" not in answer.body and answer.headers["x-content-type-options"] == "nosniff"


def test_nothing_is_served_as_a_document(api: Client) -> None:
    """Every picture of the corpus that is taken has one of three types; a missing one is plain text."""
    taken = [encode_image(photo(), kind) for kind in ("PNG", "JPEG", "GIF", "WEBP")]
    paths = [upload_image(api, file, "x.svg").expect(201)["url"].removeprefix(api.url) for file in taken]
    kinds = {api.request("GET", path).headers["content-type"] for path in [*paths, "/m/nothing.svg", "/m/x.html"]}
    assert kinds <= {"image/png", "image/jpeg", "image/gif", "text/plain"}


def test_bombs_take_no_memory_and_hold_nobody_up(fresh_server: FreshServer) -> None:
    """All that is hostile, four at a time: memory grows less than 100 MB, and others are answered meanwhile."""
    server = fresh_server()
    client = server.client()
    upload_image(client, encode_image(photo(), "PNG")).expect(201)  # its library is read by then
    files = [hostile_files()[name] for name in CORPUS] * 3

    def attack() -> None:
        with ThreadPoolExecutor(4) as many:
            answers = list(many.map(lambda one: upload_image(client, one), files))
        assert {answer.status for answer in answers} == {422}

    watch = Watch(server, client)
    assert watch.during(attack) < MAX_MB
    assert sorted(watch.waits)[int(len(watch.waits) * 0.99) - 1] < extend_timeout(0.2)


def test_pictures_of_one_account_do_not_hold_up_those_of_another(fresh_server: FreshServer) -> None:
    """A picture is decoded before most of those that another account uploaded earlier."""
    server = fresh_server()
    number = server.cli("account", "add", "Elsewhere").stdout.strip()
    busy, other = server.client(), server.client(server.new_key("theirs", "--account", number))
    picture = encode_image(photo(), "PNG")
    upload_image(other, picture).expect(201)
    ended: list[Client] = []

    def send(client: Client) -> None:
        upload_image(client, picture).expect(201)
        ended.append(client)

    child = decoder(server)
    os.kill(child, signal.SIGSTOP)
    with ThreadPoolExecutor(9) as many:
        uploads = [many.submit(send, busy) for _ in range(8)]
        time.sleep(1)  # the service has received them by then
        uploads.append(many.submit(send, other))
        time.sleep(1)
        os.kill(child, signal.SIGCONT)
    for upload in uploads:
        upload.result()
    assert ended.index(other) <= 3


def test_pictures_are_decoded_in_a_limited_process_of_their_own(fresh_server: FreshServer) -> None:
    """It has a memory limit and is the first to go where memory is short; the service never loads the library."""
    server = fresh_server()
    upload_image(server.client(), encode_image(photo(), "PNG")).expect(201)
    child = decoder(server)

    assert resource.prlimit(child, resource.RLIMIT_AS) == (768 * 1024 * 1024,) * 2
    assert Path(f"/proc/{child}/oom_score_adj").read_text().strip() == "1000"
    assert "_imaging" not in Path(f"/proc/{server.pid}/maps").read_text()
    assert "_imaging" in Path(f"/proc/{child}/maps").read_text()
    server.stop()
    assert wait_until_ended(child)


def test_a_picture_that_needs_more_memory_than_there_is_is_422(fresh_server: FreshServer) -> None:
    """The system refuses the memory to the child; the file is refused in words, and the next picture is decoded."""
    server = fresh_server()
    client = server.client()
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    child = decoder(server)
    now = int(Path(f"/proc/{child}/statm").read_text().split()[0]) * 4096
    resource.prlimit(child, resource.RLIMIT_AS, (now + 20_000_000,) * 2)

    fault = upload_image(client, encode_image(Image.new("RGB", (4_000, 4_000)), "PNG")).expect(422)
    assert fault["validation_errors"] == {"file": ["needs too much memory to decode: save it with fewer pixels"]}
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    assert decoder(server) != child


@pytest.mark.parametrize(("by", "status"), [(signal.SIGSEGV, 422), (signal.SIGKILL, 503)])
def test_a_decoder_that_ends_in_the_middle_is_no_fault_of_ours(
    by: signal.Signals, status: int, fresh_server: FreshServer
) -> None:
    """One that crashed cannot decode this file; one that was killed can be asked again. The next picture is decoded."""
    server = fresh_server()
    client = server.client()
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    child = decoder(server)
    os.kill(child, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as one:
        answer = one.submit(upload_image, client, encode_image(photo(), "PNG"))
        time.sleep(0.3)
        os.kill(child, by)
        os.kill(child, signal.SIGCONT)
        body = answer.result().expect(status)

    if status == 503:
        assert answer.result().headers["retry-after"] and "upload the picture again" in body["message"]
    else:
        assert body["validation_errors"] == {"file": ["cannot be decoded"]}
    upload_image(client, encode_image(photo(), "PNG")).expect(201)


def test_an_idle_decoder_that_was_killed_is_replaced(fresh_server: FreshServer) -> None:
    """Nobody notices: the next picture starts another."""
    server = fresh_server()
    client = server.client()
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    child = decoder(server)
    os.kill(child, signal.SIGKILL)
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    assert decoder(server) != child


def test_large_pictures_are_made_one_at_a_time(fresh_server: FreshServer) -> None:
    """Eight photos of a camera at once need the room of one, and give it back."""
    server = fresh_server()
    client = server.client()
    upload_image(client, encode_image(photo(), "JPEG")).expect(201)
    file = encode_image(photo(5600, 4200), "JPEG", quality=80)
    before = resident(server)

    def send() -> None:
        with ThreadPoolExecutor(8) as many:
            answers = list(many.map(lambda _: upload_image(client, file), range(8)))
        assert [answer.status for answer in answers] == [201] * 8

    assert Watch(server, client).during(send) < MAX_MB
    assert resident(server) - before < MAX_MB / 2
