"""What servers say, without what they say to one recipient alone: so that a thousand answers are one problem."""

import re

# Addresses, numbers, the names servers give a message in their queue, and moments; `…` stands for each
_OWN_TO_ONE = re.compile(
    r"<?(?<![^\s<>@:;,()\[\]\"'])[^\s<>@:;,()\[\]\"']+@[\w.-]+\w>?|"  # an address
    r"(?<!\w)\+[1-9]\d{6,14}\b|"  # a phone number
    r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|"  # a moment
    r"(?<![\w./=])(?=[\w.-]*\d)(?=[\w.-]*[a-z])(?![\w.-]*\.[a-z]{2,}\b)[a-zA-Z0-9][\w.-]{11,}(?![\w./])|"
    r"\b(?=[A-Z0-9]*\d)(?=[A-Z0-9]*[A-Z])[A-Z0-9]{9,}\b"
)
_SPACES = re.compile(r"\s+")


def words(text: str | None) -> str | None:
    """Return a server's words as they are the same for everybody."""
    return None if text is None else _SPACES.sub(" ", _OWN_TO_ONE.sub("…", text)).strip()
