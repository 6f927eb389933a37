"""Recipients and machines that read mail: its links and images, and how they are requested."""

import html
import re
from email.message import EmailMessage
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.kit.client import Client, Response
from tests.kit.server import Server
from tests.kit.smtp_message import Message

READER = "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0"


class Mail(NamedTuple):
    """A received mail: its recipient, the links of its HTML in order, and its tracking image if any."""

    to: str
    links: list[str]
    picture: str | None

    @property
    def doors(self) -> list[str]:
        """Return the paths of the tracked links."""
        return [urlsplit(link).path for link in self.links if urlsplit(link).path.startswith("/c/")]


def read(message: Message) -> Mail:
    """Parse a message into a Mail."""
    part = message.parsed.get_body(("html",))
    assert isinstance(part, EmailMessage)
    html_ = part.get_content()
    picture = re.search(r'<img src="(http[^"]*/o/[^"]*)"', html_)
    return Mail(
        message.to, [html.unescape(link) for link in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', html_)],
        urlsplit(picture[1]).path if picture else None,
    )  # fmt: skip


class Reader:
    """A reader with its own User-Agent, who requests the public pages."""

    def __init__(self, server: Server, agent: str = READER) -> None:
        self._client: Client = server.client("", validate=False, keep_alive=True)
        self._agent = agent

    def get(self, path: str, method: str = "GET", **headers: str) -> Response:
        """Request a path; redirects are not followed."""
        return self._client.request(method, path, None, {"User-Agent": self._agent, **headers})

    def opens(self, mail: Mail) -> None:
        """Load the image of a mail."""
        assert mail.picture is not None
        answer = self.get(mail.picture)
        assert (answer.status, answer.headers["Content-Type"], len(answer.body)) == (200, "image/gif", 43)

    def follows(self, path: str) -> str:
        """Follow a link and return its target."""
        answer = self.get(path)
        assert answer.status == 302, answer.text
        return str(answer.headers["Location"])
