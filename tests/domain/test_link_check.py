"""The links of a draft are asked whether they answer where the operator wants it; none is asked twice."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from appliance.campaigns import links, preflight
from tests.domain.home import Home


class _Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.answer(405 if self.path == "/no-head" else 404 if self.path.startswith("/gone") else 200)

    def do_GET(self) -> None:
        self.answer(404 if self.path.startswith("/gone") else 200)

    def answer(self, status: int) -> None:
        self.server.asked.append(f"{self.command} {self.path}")  # type: ignore[attr-defined]  # set where it is made
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Any]:
    """A web server of this machine that remembers what it was asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.asked = []  # type: ignore[attr-defined]  # a handler knows nothing but its server
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def look(home: Home, campaign: int) -> preflight.Preflight:
    """Look at a draft until its links were asked."""
    preflight.run_preflight(home.account_id, campaign)
    links.run_pending_checks(threading.Event())
    return preflight.run_preflight(home.account_id, campaign)


def button(key: str, href: str) -> dict[str, Any]:
    """Return a button that leads somewhere."""
    return {"id": key, "type": "button", "props": {"text": "Go", "href": href}}


def test_what_does_not_answer_is_named(home: Home, web: Any) -> None:
    """Each address is asked once, by its head first; private ones and tags are said to be unchecked; nothing blocks."""
    here = f"http://localhost:{web.server_port}"
    home.configure(network__check_links=True, network__allow_private_hosts=["localhost"])
    hrefs = ("/fine", "/fine", "/no-head", "/gone?a=1&b=2")
    made = [button(f"b{at}", here + href) for at, href in enumerate(hrefs)]
    made += [button("own", "http://10.1.2.3/"), button("tag", here + "/{{ contact.id }}")]
    group = home.list_of(home.contact("ann@example.org").id)
    campaign = home.campaign(group.id, design={"sections": made}, body=None)
    found = look(home, campaign.id)
    assert sorted(web.asked) == [
        "GET /gone?a=1&b=2",
        "GET /no-head",
        "HEAD /fine",
        "HEAD /gone?a=1&b=2",
        "HEAD /no-head",
    ]
    assert found.ok and found.facts["links"]["fine"] == 2
    told = {one.code: one for one in found.warnings if one.code.startswith("link_") and one.code != "link_not_https"}
    assert told["link_broken"].message == f"a link answers 404: {here}/gone?a=1&b=2"
    assert told["link_broken"].field == "template_attributes.design.sections[3]"
    assert "10.1.2.3" in told["link_unchecked"].message and "and 1 more" in told["link_unchecked"].message
    asked = len(web.asked)
    campaign.template.revision += 1
    campaign.template.save()
    look(home, campaign.id)
    assert len(web.asked) == asked


def test_nothing_is_asked_unless_it_is_wanted(home: Home, web: Any) -> None:
    """Without the setting no link is asked and none is told."""
    home.configure(network__allow_private_hosts=["localhost"])
    group = home.list_of(home.contact("ann@example.org").id)
    campaign = home.campaign(group.id, body=f'<p><a href="http://localhost:{web.server_port}/gone">Go</a></p>')
    found = look(home, campaign.id)
    assert web.asked == [] and "links" not in found.facts
