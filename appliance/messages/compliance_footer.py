"""What the law wants in marketing mail: who wrote, from where, and how to hear no more (docs/decisions.md#7)."""

import re

from appliance.designs import places
from appliance.designs.tags import TAG

_END_OF_BODY = re.compile(r"</body\s*>", re.IGNORECASE)
_ADDRESS = "{{ brand.company_name }}{% if brand.physical_address %}, {{ brand.physical_address }}{% endif %}"
# In the column that most letters have; the colour has 4.5:1 on white and on black
_STYLE = "max-width:600px;margin:32px auto 0;padding:0 16px;text-align:center;font:13px/1.5 sans-serif;color:#767676"
_SHOWN_ADDRESS = re.compile(r"\{\{-?\s*brand\.physical_address\s*(?:\||-?\}\})")
_SHOWN_LINK = re.compile(r"\{\{-?\s*unsubscribe_url\s*-?\}\}")
# An address that is asked for before it is shown is still shown to everybody
_ASKED = re.compile(r"\{%-?\s*if\s+brand\.physical_address\s*-?%\}")
_WORD = re.compile(r"\{%-?\s*(\w+)")
_BLOCKS = ("if", "unless", "case", "for", "comment", "raw")


def signed(html: str, text: str) -> tuple[str, str]:
    """Append postal address and unsubscribe link where the author left them out."""
    lines = _missing(html, '<a href="{{ unsubscribe_url }}" style="color:inherit">Unsubscribe</a>')
    if lines:
        block = f'<p style="{_STYLE}">{"<br>".join(lines)}</p>'
        ends = list(_END_OF_BODY.finditer(html))
        html = f"{html[: ends[-1].start()]}{block}{html[ends[-1].start() :]}" if ends else f"{html}\n{block}"
    lines = _missing(text, "Unsubscribe: {{ unsubscribe_url }}")
    if lines:
        text = text.rstrip() + "\n\n-- \n" + "\n".join(lines) + "\n"
    return html, text


def is_signed(html: str) -> bool:
    """Return whether every reader of a template sees the postal address and the unsubscribe link."""
    return not _missing(html, "")


def _missing(source: str, unsubscribe: str) -> list[str]:
    """Return the lines that a template lacks; what only some people see is lacking to the others."""
    lines = ((_SHOWN_ADDRESS, True, _ADDRESS), (_SHOWN_LINK, False, unsubscribe))
    return [line for shown, may_be_asked, line in lines if not _says(source, shown, may_be_asked)]


def _says(source: str, shown: re.Pattern[str], may_be_asked: bool) -> bool:
    """Return whether every reader sees a value: comments do not count, nor what stands within conditions and loops."""
    if not shown.search(source):
        return False
    return shown.search(places.without_comments(_for_everybody(source, may_be_asked))) is not None


def _for_everybody(source: str, may_be_asked: bool) -> str:
    """Return a template without what stands within conditions and loops, and without their tags."""
    kept: list[str] = []
    inside: list[str] = []
    position = 0
    for found in TAG.finditer(source):
        word = _WORD.match(found[0])
        if word is None:
            continue
        if all(one == "asked" for one in inside):
            kept.append(source[position : found.start()])
        position = found.end()
        _step(inside, word[1], found[0], may_be_asked)
    if not inside:
        kept.append(source[position:])
    return "".join(kept)


def _step(inside: list[str], word: str, tag: str, may_be_asked: bool) -> None:
    """Follow one tag into a block or out of it."""
    here = inside[-1] if inside else ""
    if here in ("comment", "raw"):
        if word == f"end{here}":
            inside.pop()
    elif word in _BLOCKS:
        inside.append("asked" if may_be_asked and _ASKED.fullmatch(tag) else word)
    elif word.startswith("end") and inside:
        inside.pop()
    elif here == "asked":
        inside[-1] = "if"  # what stands behind `else` is for the others
