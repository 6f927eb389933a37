"""Recipients and machines that read mail: they load its tracking pixel and follow its links."""

import html
import re
from email.message import EmailMessage
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.kit.client import Client, Response
from tests.kit.server import Server
from tests.kit.smtp_message import Message

BROWSER_USER_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"


class ReceivedMail(NamedTuple):
    """A received mail: its recipient, the links of its HTML in order, and the path of its tracking pixel or None."""

    to: str
    links: list[str]
    pixel_path: str | None

    @property
    def tracked_paths(self) -> list[str]:
        """Return the paths of the tracked links."""
        return [urlsplit(link).path for link in self.links if urlsplit(link).path.startswith("/c/")]


def parse_mail(message: Message) -> ReceivedMail:
    """Return the recipient, links and tracking pixel of a message."""
    part = message.parsed.get_body(("html",))
    assert isinstance(part, EmailMessage)
    html_ = part.get_content()
    pixel = re.search(r'<img src="(http[^"]*/o/[^"]*)"', html_)
    return ReceivedMail(
        message.to, [html.unescape(link) for link in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', html_)],
        urlsplit(pixel[1]).path if pixel else None,
    )  # fmt: skip


class Reader:
    """A client of the public pages with its own User-Agent."""

    def __init__(self, server: Server, agent: str = BROWSER_USER_AGENT) -> None:
        self._client: Client = server.client("", validate=False, keep_alive=True)
        self._agent = agent

    def get(self, path: str, method: str = "GET", **headers: str) -> Response:
        """Request a path; redirects are not followed."""
        return self._client.request(method, path, None, {"User-Agent": self._agent, **headers})

    def open(self, mail: ReceivedMail) -> None:
        """Load the tracking pixel of a mail."""
        assert mail.pixel_path is not None
        response = self.get(mail.pixel_path)
        assert (response.status, response.headers["Content-Type"], len(response.body)) == (200, "image/gif", 43)

    def follow(self, path: str) -> str:
        """Request a tracked link and return the target of its redirect."""
        response = self.get(path)
        assert response.status == 302, response.text
        return str(response.headers["Location"])
