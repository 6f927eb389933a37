"""Commands against a hostile or broken service whose lists do not end."""

import itertools
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from appliance.remote import cli
from appliance.remote.connection import MAX_ROWS
from tests.kit.background_http import BackgroundHttp

# Returns (objects, number of the next page) of a page.
Pages = Callable[[int], tuple[list[dict[str, Any]], int]]
_ids = itertools.count(1)
# After so many requests even this service ends its lists, so that a command that goes on fails instead of hanging.
_MAX_REQUESTS = 4 * MAX_ROWS // 100


def new_rows(count: int) -> list[dict[str, Any]]:
    """Return objects that no earlier page had."""
    return [{"id": next(_ids), "name": "L"} for _ in range(count)]


ENDLESS: dict[str, tuple[Pages, str]] = {
    "back to itself": (lambda number: (new_rows(1), 2), "the list leads back from page 2 to page 2"),
    "back and forth": (lambda number: (new_rows(1), 3 if number == 2 else 2), "leads back from page 3 to page 2"),
    "page zero": (lambda number: (new_rows(1), 0), "the list leads back from page 1 to page 0"),
    "the same objects": (lambda number: ([{"id": 1, "name": "L"}], number + 1), "the list of lists repeats itself"),
    "no objects": (lambda number: ([], number + 1), "a list without objects goes on"),
    "new objects": (lambda number: (new_rows(100), number + 1), f"more than {MAX_ROWS} objects"),
}  # fmt: skip


class EndlessService(BackgroundHttp):
    """A service whose lists go on as `pages` says."""

    def __init__(self, pages: Pages) -> None:
        requests = itertools.count()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
                body: Any = {"id": 1, "base_url": "http://a.example"} if path.endswith("/account") else {"fields": []}
                headers: dict[str, str] = {}
                if path.endswith("/lists"):
                    body, following = pages(int(query.get("page", ["1"])[0]))
                    headers = {"X-Next-Page": str(following)} if next(requests) < _MAX_REQUESTS else {}
                content = json.dumps(body).encode()
                self.send_response(200)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(Handler)


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_list_without_end_is_an_error_in_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`content export` stops, and so does a search for a name; `api --paginate` prints what is new for ever."""
    pages, message = ENDLESS[kind]
    with EndlessService(pages) as service:
        monkeypatch.setenv("CAMPANERO_URL", service.url)
        monkeypatch.setenv("CAMPANERO_KEY", "key")
        commands = [["content", "export", str(tmp_path / "content")]]
        if kind != "the same objects":
            commands.append(["contacts", "export", "--list", "Readers"])
        if kind not in ("the same objects", "new objects"):
            commands.append(["api", "GET", "/lists", "--paginate"])
        for command in commands:
            assert cli.run(command) not in (0, None)
            [line] = capsys.readouterr().err.splitlines()
            assert message in line, command
