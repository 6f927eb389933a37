"""One form of what people write with emphasis, links and lists: as it is kept, whoever's browser made it."""

import re

from appliance.content.designs import cleaning, plaintext
from appliance.content.designs.tags import Tokens

_SAME = {"b": "strong", "i": "em"}
_TAG = re.compile(r"<(/?)(b|i)(?=[\s>])")
_EMPTY = re.compile(r"<(strong|em|u|s|span|sub|sup|code)[^<>]*></\1>")
_LAST = re.compile(r"(?:<p>(?:\s|&nbsp;|<br>)*</p>\s*)+\Z")


def rich(html: str) -> str:
    """Return limited HTML in its one form, merge tags as they were; plain text stays as it is. Twice is as once."""
    tokens = Tokens()
    text = tokens.protect(html)
    if not plaintext.is_html(text):
        return html
    made = _TAG.sub(lambda found: f"<{found[1]}{_SAME[found[2]]}", cleaning.text(text))
    before = ""
    while before != made:
        before, made = made, _EMPTY.sub("", made)
    return tokens.restore(_LAST.sub("", made))
