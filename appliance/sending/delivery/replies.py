"""What an SMTP server says, cut into replies and read strictly (RFC 5321, section 4.2), and what each means for us."""

import re
from typing import NamedTuple

from appliance.core.errors import DeliveryError, Ours, Permanent, SenderRefused, Temporary, Unauthenticated, Unreachable
from appliance.sending.delivery import classes

# RFC 5321, 4.5.3.1.5 gives 512 octets; who says more is still understood, who never ends is not
MAX_LINE_BYTES = 4_096
MAX_LINES = 200
_LINE = re.compile(rb"([2-5][0-9]{2})([ -]?)(.*)", re.DOTALL)
_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})\b")


class Garbled(Exception):
    """What was said is no reply."""


class Reply(NamedTuple):
    """A reply: its code, and its lines as one text without the codes."""

    code: int
    text: str

    @property
    def is_good(self) -> bool:
        """Whether it is a 2xx."""
        return 200 <= self.code < 300

    @property
    def enhanced(self) -> str | None:
        """The enhanced status code (RFC 3463) that begins the text, or None."""
        found = _ENHANCED.match(self.text)
        return found[1] if found else None

    def words(self) -> str:
        """Return the reply as it was said."""
        return f"{self.code} {self.text}".strip()


class Replies:
    """Takes bytes as they come and answers the replies that are whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self._code = 0

    def forget(self) -> None:
        """Drop what was said so far: after a change to TLS it counts for nothing (CVE-2011-0411)."""
        self._rest, self._lines, self._code = b"", [], 0

    def feed(self, data: bytes) -> list[Reply]:
        """Take some bytes; raises Garbled."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            raise Garbled("a line of a reply does not end")
        found = []
        for line in lines:
            reply = self._line(line.removesuffix(b"\r"))
            if reply is not None:
                found.append(reply)
        return found

    def _line(self, line: bytes) -> Reply | None:
        parts = _LINE.fullmatch(line)
        if parts is None or len(line) > MAX_LINE_BYTES or (not parts[2] and parts[3]):
            raise Garbled(f"not a reply: {line[:80].decode('utf-8', 'replace')!r}")
        code = int(parts[1])
        if self._lines and code != self._code:
            raise Garbled(f"a reply of two codes: {self._code} and {code}")
        self._code = code
        self._lines.append(parts[3])
        if len(self._lines) > MAX_LINES:
            raise Garbled("a reply of too many lines")
        if parts[2] == b"-":
            return None
        text = b"\n".join(self._lines).decode("utf-8", "replace")
        self._lines = []
        return Reply(code, text)


def before_anybody(reply: Reply) -> DeliveryError:
    """Name a refusal before any recipient was: it is about us, whatever its class."""
    kind = Ours if reply.code >= 500 else Temporary if reply.code == 450 else Unreachable
    return kind(reply.words(), reply.code, reply.enhanced)


def of_sender(reply: Reply) -> DeliveryError:
    """Name a refusal of MAIL: for good it is about whoever sends under that name, 421 about the connection."""
    kind = SenderRefused if reply.code >= 500 else Unreachable if reply.code == 421 else Temporary
    return kind(reply.words(), reply.code, reply.enhanced)


def of_message(reply: Reply) -> DeliveryError:
    """Name a refusal of a recipient or of a message; where the words name our DNS it speaks against neither."""
    kind: type[DeliveryError] = Permanent if reply.code >= 500 else Temporary
    if classes.classify(reply.code, reply.enhanced, reply.text) is classes.AUTHENTICATION:
        kind = Unauthenticated
    return kind(reply.words(), reply.code, reply.enhanced)
