"""Image uploads over the API, and the public URLs of images (docs/decisions.md#5 and #14)."""

import re

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client, Response
from tests.kit.pictures import animation, decode_image, encode_image, photo
from tests.kit.server import Server
from tests.kit.uploads import multipart_form, upload_image


def fetch_public(api: Client, url: str, method: str = "GET", **headers: str) -> Response:
    """Request the public URL of an image without credentials."""
    assert url.startswith(api.url)
    return api.request(method, url.removeprefix(api.url), None, headers)


def test_upload_an_image(api: Client) -> None:
    """The response has name, URL, type and size of the image that is served."""
    created = upload_image(api, encode_image(photo(), "JPEG"), "Bäckerei „neu“.jpg").expect(201)
    response = fetch_public(api, created["url"])

    assert set(created) == {"signed_id", "url", "content_type", "bytes", "width", "height", "filename"}
    assert created["filename"] == "Bäckerei „neu“.jpg"
    assert (created["content_type"], created["width"], created["height"]) == ("image/jpeg", 640, 400)
    assert re.fullmatch(r"[0-9A-Za-z]{32}", created["signed_id"])
    assert created["url"] == f"{api.url}/m/{created['signed_id']}"
    assert (response.status, len(response.body)) == (200, created["bytes"])
    assert decode_image(response.body).size == (640, 400)


def test_headers_of_served_images(api: Client) -> None:
    """Images are immutable for caches, with a fixed type, nosniff, a strict policy, and ETags."""
    url = upload_image(api, animation(), "a.gif").expect(201)["url"]
    for response in (fetch_public(api, url), fetch_public(api, url, "HEAD")):
        assert response.status == 200
        assert response.headers["content-type"] == "image/gif"
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["content-security-policy"].startswith("default-src 'none'")
        assert response.headers["cross-origin-resource-policy"] == "cross-origin"
        assert "set-cookie" not in response.headers
    whole, head = fetch_public(api, url), fetch_public(api, url, "HEAD")
    assert head.body == b"" and head.headers["content-length"] == str(len(whole.body))
    for asked in (whole.headers["etag"], f'"other", W/{whole.headers["etag"]}', "*"):
        again = fetch_public(api, url, **{"If-None-Match": asked})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", whole.headers["etag"])
        assert again.headers["cache-control"] == whole.headers["cache-control"]
    assert fetch_public(api, url, **{"If-None-Match": '"other"'}).status == 200
    assert "if-modified-since" not in whole.headers


def test_unknown_image_names_are_404(api: Client) -> None:
    """An unknown or malformed name is a 404 that is not cached; other methods are rejected."""
    created = upload_image(api, encode_image(photo(), "PNG")).expect(201)
    signed_id = created["signed_id"]
    for name in (signed_id[:-1], signed_id.swapcase(), f"{signed_id}0", "x", "..%2f..%2fetc", "%00",
                 "%0d%0aX-Injected:%201"):  # fmt: skip
        for headers in ({}, {"If-None-Match": "*"}):
            response = fetch_public(api, f"{api.url}/m/{name}", **headers)
            assert (response.status, "immutable" in response.headers.get("cache-control", "")) == (404, False), name
            assert "x-injected" not in response.headers
    assert fetch_public(api, created["url"], "POST").status in (404, 405)
    assert fetch_public(api, created["url"], "DELETE").status in (404, 405)


def test_the_same_file_twice_is_two_images(api: Client) -> None:
    """Two uploads of a file get different names."""
    first, second = (upload_image(api, encode_image(photo(), "PNG")).expect(201) for _ in range(2))
    assert first["signed_id"] != second["signed_id"]


def test_wide_images_are_scaled(api: Client) -> None:
    """An image is scaled to 1440 pixels; `full_size` keeps its width."""
    file = encode_image(photo(1800, 900), "JPEG")
    assert upload_image(api, file).expect(201)["width"] == 1440
    assert upload_image(api, file, full_size="true").expect(201)["width"] == 1800
    assert list(upload_image(api, file, full_size="perhaps").expect(422)["validation_errors"]) == ["full_size"]


def test_invalid_uploads_are_rejected(api: Client) -> None:
    """An upload is a multipart form with a file of at most 5 MiB."""
    key = {"Authorization": f"Bearer {api.key}"}
    assert upload_image(api, None).expect(422)["validation_errors"] == {"file": ["can't be blank"]}
    assert upload_image(api, b"").expect(422)["validation_errors"] == {"file": ["is empty"]}
    png = encode_image(photo(), "PNG")
    assert api.request("POST", "/v1/my/uploads", png, key | {"Content-Type": "image/png"}).status == 415
    body, kind = multipart_form(png)
    packed = key | {"Content-Type": kind, "Content-Encoding": "gzip"}
    assert api.request("POST", "/v1/my/uploads", body, packed).status == 415
    assert api.request("POST", "/v1/my/uploads", body[:-200], key | {"Content-Type": kind}).status == 400
    assert upload_image(api, b"x" * (5 * 1_048_576 + 1)).expect(413)["code"] == "payload_too_large"
    assert upload_image(api, b"x" * 20_000_000).expect(413)["code"] == "payload_too_large"
    assert upload_image(api, png + b"\0" * (5 * 1_048_576 - len(png))).expect(201)["bytes"] < 1_000_000
    assert api.request("POST", "/v1/my/uploads", body, {"Content-Type": kind}).status == 401


def test_scopes_of_uploads(server: Server) -> None:
    """Uploads need `templates:write`."""
    file = encode_image(photo(), "PNG")
    assert upload_image(server.client(server.new_key("t", "--scope", "templates:write")), file).status == 201
    for scope in ("templates:read", "account:write", "read"):
        error = upload_image(server.client(server.new_key("n", "--scope", scope)), file)
        assert error.expect(403)["required_scope"] == "templates:write"


def test_images_survive_a_kill(fresh_server: FreshServer) -> None:
    """An uploaded image is stored on disk, and its URL follows a new base URL."""
    server = fresh_server()
    created = upload_image(server.client(), encode_image(photo(), "PNG")).expect(201)
    server.client().put("/brand", {"logo": created["url"]}).expect(200)
    before = fetch_public(server.client(), created["url"]).body
    server.kill()
    server.env["CAMPANERO_BASE_URL"] = "https://news.example.org"
    server.start()

    assert fetch_public(server.client(), created["url"]).body == before
    assert server.client().get("/brand").expect(200)["logo"] == f"https://news.example.org/m/{created['signed_id']}"


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\\b\\c.png", "x" * 400 + ".png", "a\u202eb.png", ""])
def test_file_names_of_uploads(api: Client, name: str) -> None:
    """The stored file name is one printable line without a path."""
    result = upload_image(api, encode_image(photo(), "PNG"), name)
    if name == "":
        assert result.expect(201)["filename"] == "picture"
        return
    kept = result.expect(201)["filename"]
    assert kept and len(kept) <= 255 and kept.isprintable() and "/" not in kept and "\\" not in kept
