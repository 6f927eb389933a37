"""Comments that only Outlook reads (`<!--[if mso]>`): kept where they are nothing but layout, like all else dropped.

They hold halves of tables, so no parser of HTML can clean them; each piece is looked at by itself instead.
"""

import re

from appliance.designs.tags import Tokens

_COMMENT = re.compile(r"<!--(.*?)(?:-->|\Z)", re.DOTALL)
_ASKS = re.compile(r"\[if [a-zA-Z0-9 .|&()!]{1,60}\]>(.*)<!\[endif\]\Z", re.DOTALL)
# The two halves around what all others read
_HALVES = re.compile(r"\[if !mso[a-zA-Z0-9 .|&()!]{0,40}\]><!(?:-- ?)?|<!\[endif\]", re.DOTALL)
_PIECE = re.compile(
    r"/?((?:[vow]:)?[a-zA-Z][a-zA-Z0-9]*)((?:\s+[a-zA-Z][a-zA-Z:-]*=(?:\"[^\"<>]*\"|'[^'<>]*'))*)\s*/?>[^<>]*"
)
_ATTRIBUTE = re.compile(r"([a-zA-Z][a-zA-Z:-]*)=(?:\"([^\"]*)\"|'([^']*)')")
_NAMES = {
    "table", "tbody", "tr", "td", "center", "div", "p", "br", "span", "a", "b", "i", "strong", "font", "img", "xml",
    "v:rect", "v:roundrect", "v:fill", "v:textbox", "v:image", "v:stroke", "v:shape", "v:oval", "v:background",
    "w:anchorlock", "o:officedocumentsettings", "o:allowpng", "o:pixelsperinch", "o:lock",
}  # fmt: skip
_HARMFUL = re.compile(r"script:|expression\s*\(|url\s*\(|@import|\\|behavior|binding|data:", re.IGNORECASE)
_LEADS = re.compile(r"\s*(?:https?:|mailto:|tel:|#|\Z)", re.IGNORECASE)
_MAX_CHARACTERS = 5_000


class Kept:
    """The comments of one document that stay, each under a word while the rest is cleaned."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._words: set[str] = set()

    def take(self, html: str) -> str:
        """Return HTML where the comments that stay hold only their word, and the others are gone."""
        return _COMMENT.sub(self._word, html)

    def _word(self, found: re.Match[str]) -> str:
        if not self._is_layout(found[1]):
            return ""
        word = self._tokens.keep(found[1])
        self._words.add(word)
        return f"<!--{word}-->"

    def give(self, html: str) -> str:
        """Return cleaned HTML with the comments that stay, and no others."""
        return _COMMENT.sub(lambda found: found[0] if found[1] in self._words else "", html)

    def _is_layout(self, comment: str) -> bool:
        if _HALVES.fullmatch(comment):
            return True
        asks = _ASKS.match(comment)
        if asks is None or len(comment) > _MAX_CHARACTERS or "--" in asks[1]:
            return False
        first, *pieces = asks[1].split("<")
        return ">" not in first and all(self._is_harmless(piece) for piece in pieces)

    def _is_harmless(self, piece: str) -> bool:
        found = _PIECE.fullmatch(piece)
        if found is None or found[1].lower() not in _NAMES:
            return False
        for one in _ATTRIBUTE.finditer(found[2]):
            name, value = one[1].lower(), one[2] if one[2] is not None else one[3]
            if name.startswith("on") or (_HARMFUL.search(value) and not name.startswith("xmlns")):
                return False
            if name in ("href", "src") and not (_LEADS.match(value) or self._tokens.starts(value)):
                return False
        return True
