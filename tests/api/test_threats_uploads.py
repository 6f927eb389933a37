"""Hostile image uploads: active content, other file types, decompression bombs (T04)."""

import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from PIL import Image

from appliance.content.media import UPLOAD_DIR_PREFIX
from tests.api.test_threats_pages import Visitor
from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.pictures import HOSTILE_NAMES, SCRIPT, animation, encode_image, hostile_file, photo
from tests.kit.process_metrics import list_process_tree, wait_until_ended
from tests.kit.sampling import every_nth
from tests.kit.server import EMAIL, Server
from tests.kit.timeouts import extend_timeout
from tests.kit.uploads import upload_image

MAX_MB = 100


def resident_megabytes(server: Server) -> float:
    """Return the resident memory of a server and its child processes in megabytes."""
    return (
        sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in list_process_tree(server.pid))
        * 4096
        / 1e6
    )


def decoder_pid(server: Server) -> int:
    """Return the id of the process that decodes images; an image must have been uploaded before."""
    (pid,) = [
        process_id
        for process_id in list_process_tree(server.pid)
        if b"decode-pictures" in Path(f"/proc/{process_id}/cmdline").read_bytes()
    ]
    return pid


class Watch(threading.Thread):
    """Records the memory of a server and the response times of `/healthz` in a thread."""

    def __init__(self, server: Server, client: Client) -> None:
        super().__init__(daemon=True)
        self.server, self.client = server, client
        self.most, self.waits, self.over = 0.0, [0.0], threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            self.most = max(self.most, resident_megabytes(self.server))
            started_at = time.monotonic()
            self.client.get("/healthz").expect(200)
            self.waits.append(time.monotonic() - started_at)

    def memory_growth_during(self, function: Callable[[], object]) -> float:
        """Return by how many megabytes the server grew at most while a function ran."""
        before = self.most = resident_megabytes(self.server)
        self.start()
        function()
        self.over.set()
        self.join()
        return self.most - before


@pytest.mark.parametrize("name", every_nth(HOSTILE_NAMES, 3))
def test_invalid_images_are_rejected(api: Client, name: str) -> None:
    """The content alone decides, whatever the file name; the error says why."""
    for called in ("logo.png", "logo.svg", "logo.html", "logo.gif;.html"):
        error = upload_image(api, hostile_file(name), called).expect(422)
        assert list(error["validation_errors"]) == ["file"]
        assert error["validation_errors"]["file"][0].split()[0] in ("is", "has")


def test_icons_of_social_links_are_served(api: Client) -> None:
    """The icons that emails show are PNGs that need no login; other names below them are not found."""
    icon = api.request("GET", "/m/icons/facebook-colour.png")
    assert (icon.status, icon.headers["Content-Type"], icon.body[1:4]) == (200, "image/png", b"PNG")
    for name in ("facebook.svg", "..%2Fsocial.py", "none.png"):
        assert api.request("GET", f"/m/icons/{name}").status == 404, name


def test_an_svg_has_its_own_error(api: Client) -> None:
    """The error for an SVG says to export a PNG."""
    error = upload_image(api, hostile_file("svg"), "logo.svg").expect(422)
    assert error["validation_errors"]["file"] == ["is an SVG, which email apps do not show: export it as a PNG"]


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("image/png", encode_image(photo(), "PNG") + SCRIPT),
        ("image/jpeg", encode_image(photo(), "JPEG", comment=SCRIPT) + SCRIPT),
        ("image/gif", animation(comment=SCRIPT)),
        ("image/jpeg", encode_image(photo(), "WEBP", exif=b"Exif\0\0" + SCRIPT)),
    ],
)
def test_scripts_in_images_are_removed(api: Client, kind: str, file: bytes) -> None:
    """Appended and embedded scripts are not served, and the file name does not choose the type."""
    assert b"<script>" in file
    created = upload_image(api, file, "evil.html").expect(201)
    response = api.request("GET", created["url"].removeprefix(api.url), None, {"Accept": "text/html"})

    assert response.headers["content-type"] == created["content_type"] == kind
    assert b"script" not in response.body and response.headers["x-content-type-options"] == "nosniff"


def test_media_types_of_served_images(api: Client) -> None:
    """Images are served as one of three image types, and an unknown name as plain text."""
    taken = [encode_image(photo(), kind) for kind in ("PNG", "JPEG", "GIF", "WEBP")]
    paths = [upload_image(api, file, "x.svg").expect(201)["url"].removeprefix(api.url) for file in taken]
    kinds = {api.request("GET", path).headers["content-type"] for path in [*paths, "/m/nothing.svg", "/m/x.html"]}
    assert kinds <= {"image/png", "image/jpeg", "image/gif", "text/plain"}


def test_image_bombs_are_limited(fresh_server: FreshServer, full: bool) -> None:
    """Many hostile files in parallel need less than 100 MB, and other requests are fast."""
    server = fresh_server()
    client = server.client()
    upload_image(client, encode_image(photo(), "PNG")).expect(201)  # its library is read by then
    files = [hostile_file(name) for name in HOSTILE_NAMES] * (3 if full else 1)

    def attack() -> None:
        with ThreadPoolExecutor(4) as many:
            responses = list(many.map(lambda content: upload_image(client, content), files))
        assert {response.status for response in responses} == {422}

    watch = Watch(server, client)
    assert watch.memory_growth_during(attack) < MAX_MB
    assert sorted(watch.waits)[int(len(watch.waits) * 0.99) - 1] < extend_timeout(0.2)


@pytest.mark.full
def test_accounts_take_turns_in_decoding(fresh_server: FreshServer) -> None:
    """An image is decoded before most of those that another account uploaded earlier."""
    server = fresh_server()
    number = server.cli("account", "add", "Elsewhere").stdout.strip()
    busy, other = server.client(), server.client(server.new_key("theirs", "--account", number))
    picture = encode_image(photo(), "PNG")
    upload_image(other, picture).expect(201)
    ended: list[Client] = []

    def send(client: Client) -> None:
        upload_image(client, picture).expect(201)
        ended.append(client)

    child = decoder_pid(server)
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


def test_images_are_decoded_in_a_limited_process(fresh_server: FreshServer) -> None:
    """The decoder process has a memory limit and the highest OOM score; the service never loads the image library."""
    server = fresh_server()
    upload_image(server.client(), encode_image(photo(), "PNG")).expect(201)
    child = decoder_pid(server)

    assert resource.prlimit(child, resource.RLIMIT_AS) == (768 * 1024 * 1024,) * 2
    assert Path(f"/proc/{child}/oom_score_adj").read_text().strip() == "1000"
    assert "_imaging" not in Path(f"/proc/{server.pid}/maps").read_text()
    assert "_imaging" in Path(f"/proc/{child}/maps").read_text()
    server.stop()
    assert wait_until_ended(child)


def test_an_image_that_needs_too_much_memory_is_422(server: Server) -> None:
    """The error says so, and the next image is decoded by a new process."""
    client = server.client()
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    child = decoder_pid(server)
    now = int(Path(f"/proc/{child}/statm").read_text().split()[0]) * 4096
    resource.prlimit(child, resource.RLIMIT_AS, (now + 20_000_000,) * 2)

    error = upload_image(client, encode_image(Image.new("RGB", (3_000, 3_000)), "PNG")).expect(422)
    assert error["validation_errors"] == {"file": ["needs too much memory to decode: save it with fewer pixels"]}
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    assert decoder_pid(server) != child


@pytest.mark.parametrize(("by", "status"), [(signal.SIGSEGV, 422), (signal.SIGKILL, 503)])
def test_a_decoder_that_ends_while_decoding(by: signal.Signals, status: int, server: Server) -> None:
    """A crash is a 422, a kill a 503 with Retry-After, and the next image is decoded."""
    client = server.client()
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    child = decoder_pid(server)
    os.kill(child, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        response = pool.submit(upload_image, client, encode_image(photo(), "PNG"))
        time.sleep(0.3)
        os.kill(child, by)
        if by != signal.SIGKILL:  # which ends even a stopped process
            os.kill(child, signal.SIGCONT)
        body = response.result().expect(status)

    if status == 503:
        assert response.result().headers["retry-after"] and "upload the image again" in body["message"]
    else:
        assert body["validation_errors"] == {"file": ["cannot be decoded"]}
    upload_image(client, encode_image(photo(), "PNG")).expect(201)


def test_an_idle_decoder_that_was_killed_is_replaced(server: Server) -> None:
    """After the idle decoder was killed, the next image starts another one."""
    client = server.client()
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    child = decoder_pid(server)
    os.kill(child, signal.SIGKILL)
    upload_image(client, encode_image(photo(), "PNG")).expect(201)
    assert decoder_pid(server) != child


def test_uploads_that_a_kill_interrupts_are_found_by_the_sweep(fresh_server: FreshServer, tmp_path: Path) -> None:
    """The directory of an unfinished upload has the name by which the housekeeping removes it later."""
    server = fresh_server(env={"TMPDIR": str(tmp_path)})
    login = Visitor(server, EMAIL).cookie
    head = (
        f"HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\nCookie: {login}\r\n"
        "Sec-Fetch-Site: same-origin\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\nhalf of it'
    )
    paths = ("/v1/my/uploads", "/templates/pictures", "/templates/media")
    before = set(tmp_path.iterdir())
    with ExitStack() as stack:
        for path in paths:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.sendall(f"POST {path} {head}".encode())
        end = time.monotonic() + extend_timeout(10)
        while len(created := set(tmp_path.iterdir()) - before) < len(paths):
            assert time.monotonic() < end, (created, server.output)
            time.sleep(0.02)
        server.kill()
    assert [place.name.startswith(UPLOAD_DIR_PREFIX) for place in created] == [True] * len(paths)


@pytest.mark.full
def test_large_images_are_decoded_one_at_a_time(fresh_server: FreshServer) -> None:
    """Eight large photos in parallel need the memory of one, and release it."""
    server = fresh_server()
    client = server.client()
    upload_image(client, encode_image(photo(), "JPEG")).expect(201)
    file = encode_image(photo(5600, 4200), "JPEG", quality=80)
    before = resident_megabytes(server)

    def send() -> None:
        with ThreadPoolExecutor(8) as many:
            responses = list(many.map(lambda _: upload_image(client, file), range(8)))
        assert [response.status for response in responses] == [201] * 8

    assert Watch(server, client).memory_growth_during(send) < MAX_MB
    assert resident_megabytes(server) - before < MAX_MB / 2
