"""People and machines who get mail: what is in it for them to load and to follow, and how they ask."""

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
    """A mail as somebody got it: to whom it is, the links of its HTML in order, and its picture if it has one."""

    to: str
    links: list[str]
    picture: str | None

    @property
    def doors(self) -> list[str]:
        """Return the paths of the links that lead through the service."""
        return [urlsplit(one).path for one in self.links if urlsplit(one).path.startswith("/c/")]


def read(message: Message) -> Mail:
    """Open a mail."""
    part = message.parsed.get_body(("html",))
    assert isinstance(part, EmailMessage)
    said = part.get_content()
    picture = re.search(r'<img src="(http[^"]*/o/[^"]*)"', said)
    return Mail(
        message.to, [html.unescape(one) for one in re.findall(r'<a\b[^>]*\bhref="([^"]*)"', said)],
        urlsplit(picture[1]).path if picture else None,
    )  # fmt: skip


class Reader:
    """Somebody with a program of their own, who asks the doors of recipients."""

    def __init__(self, server: Server, agent: str = READER) -> None:
        self._client: Client = server.client("", validate=False, keep_alive=True)
        self._agent = agent

    def get(self, path: str, method: str = "GET", **headers: str) -> Response:
        """Ask for a path; redirects are not followed."""
        return self._client.request(method, path, None, {"User-Agent": self._agent, **headers})

    def opens(self, mail: Mail) -> None:
        """Load the picture of a mail."""
        assert mail.picture is not None
        answer = self.get(mail.picture)
        assert (answer.status, answer.headers["Content-Type"], len(answer.body)) == (200, "image/gif", 43)

    def follows(self, path: str) -> str:
        """Follow a link, and return where it leads."""
        answer = self.get(path)
        assert answer.status == 302, answer.text
        return str(answer.headers["Location"])
