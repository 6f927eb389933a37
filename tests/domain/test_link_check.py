"""Preflight's check of a draft's links: only where the operator enables it, each URL once."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from appliance.campaigns import links, preflight
from tests.domain.home import Home


class _Handler(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.respond(405 if self.path == "/no-head" else 404 if self.path.startswith("/gone") else 200)

    def do_GET(self) -> None:
        self.respond(404 if self.path.startswith("/gone") else 200)

    def respond(self, status: int) -> None:
        self.server.requests.append(f"{self.command} {self.path}")  # type: ignore[attr-defined]  # set by the fixture
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Any]:
    """A web server on this machine that records the requests it gets in `requests`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.requests = []  # type: ignore[attr-defined]  # the handler only has access to its server
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def run_preflight(home: Home, campaign: int) -> preflight.Preflight:
    """Run preflight on a draft, check its links, and return the preflight that follows."""
    preflight.run_preflight(home.account_id, campaign)
    links.run_pending_checks(threading.Event())
    return preflight.run_preflight(home.account_id, campaign)


def build_button(key: str, href: str) -> dict[str, Any]:
    """Return a button section that links to `href`."""
    return {"id": key, "type": "button", "props": {"text": "Go", "href": href}}


def test_broken_and_unchecked_links_are_reported(home: Home, web: Any) -> None:
    """Each URL is requested once, with HEAD first and GET if that fails.

    Broken links and those that were not checked are warnings.
    """
    base_url = f"http://localhost:{web.server_port}"
    home.configure(network__check_links=True, network__allow_private_hosts=["localhost"])
    hrefs = ("/fine", "/fine", "/no-head", "/gone?a=1&b=2")
    sections = [build_button(f"b{index}", base_url + href) for index, href in enumerate(hrefs)]
    sections += [build_button("own", "http://10.1.2.3/"), build_button("tag", base_url + "/{{ contact.id }}")]
    group = home.list_of(home.contact("ann@example.org").id)
    campaign = home.campaign(group.id, design={"sections": sections}, body=None)
    result = run_preflight(home, campaign.id)
    assert sorted(web.requests) == [
        "GET /gone?a=1&b=2",
        "GET /no-head",
        "HEAD /fine",
        "HEAD /gone?a=1&b=2",
        "HEAD /no-head",
    ]
    assert result.ok and result.facts["links"]["fine"] == 2
    warnings = {
        warning.code: warning
        for warning in result.warnings
        if warning.code.startswith("link_") and warning.code != "link_not_https"
    }
    assert warnings["link_broken"].message == f"a link is broken (answers 404): {base_url}/gone?a=1&b=2"
    assert warnings["link_broken"].field == "template_attributes.design.sections[3]"
    assert "10.1.2.3" in warnings["link_unchecked"].message and warnings["link_unchecked"].message.startswith("2 ")
    request_count = len(web.requests)
    campaign.template.revision += 1
    campaign.template.save()
    run_preflight(home, campaign.id)
    assert len(web.requests) == request_count


def test_links_are_not_checked_by_default(home: Home, web: Any) -> None:
    """Without `network.check_links` no URL is requested and preflight reports nothing about links."""
    home.configure(network__allow_private_hosts=["localhost"])
    group = home.list_of(home.contact("ann@example.org").id)
    campaign = home.campaign(group.id, body=f'<p><a href="http://localhost:{web.server_port}/gone">Go</a></p>')
    result = run_preflight(home, campaign.id)
    assert web.requests == [] and "links" not in result.facts
