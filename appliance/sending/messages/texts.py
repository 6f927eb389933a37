"""The text of an SMS: filled in for one person, with how to opt out behind it, its parts counted; for preview and send.

What it says is one text in the merge language, where values are said as they are. Its links are numbered as those of
mail are, and lead through us where they are counted: that keeps long addresses short.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct

from appliance.content.designs import links as designs_links
from appliance.content.designs import links as numbered
from appliance.content.designs import merge
from appliance.content.designs.links import Link
from appliance.core import clock
from appliance.sending.messages import links as own
from appliance.sending.messages.ledger import Claim
from appliance.sending.sms import gsm
from appliance.sending.sms.gsm import MAX_CHARACTERS, MAX_PARTS, Counted
from appliance.settings import config
from appliance.storage.open import scalar

if TYPE_CHECKING:
    from appliance.content.designs.compiled import Compiled


class Worded(NamedTuple):
    """An SMS as one person gets it; `hinted` says that it tells how to opt out, as the account says it."""

    body: str
    counted: Counted
    hinted: bool

    def problem(self) -> str | None:
        """Return why nobody would carry it, or None."""
        if not self.body.strip():
            return "it says nothing"
        if self.counted.characters > MAX_CHARACTERS:
            return f"it is too long (maximum is {MAX_CHARACTERS} characters)"
        if self.counted.parts > MAX_PARTS:
            return f"it takes {self.counted.parts} parts (maximum is {MAX_PARTS})"
        return None


class Forcing(Struct):
    """The first character that GSM-7 lacks, and its name."""

    character: str
    name: str


class Shown(Struct):
    """An SMS as somebody would get it: what it costs, in which alphabet, and which character forces UCS-2.

    `left` so many more units fit into the last part; `problem` says why it could not be sent.
    """

    body: str
    segments: int
    alphabet: Literal["GSM-7", "UCS-2"]
    characters: int
    units: int
    left: int
    forcing: Forcing | None
    problem: str | None


def compiled(body: str | None, addresses: Sequence[str] | None = None) -> "Compiled":
    """Compile what an SMS says; raises MergeError. Of `addresses`, by their numbers, each leads through us."""
    source = body or ""
    if addresses:
        merge.scan(source)
        source = designs_links.rewritten("", source, addresses, config.base_url(config.current()))[1]
    return merge.compile_template(source, "text")


def links(body: str | None) -> tuple[Link, ...]:
    """Return the links of an SMS, each address once; raises MergeError."""
    merge.scan(body or "")
    return numbered.of("", body or "")


def fill(body: "Compiled", values: Mapping[str, Any], hint: str | None = None, is_due: bool = True) -> Worded:
    """Fill an SMS for one person; raises MergeError.

    The hint, words in the merge language too, is appended where it is due, and never said twice.
    """
    until = merge.deadline()
    said, hinted = body.render(values, until), False
    words = merge.compile_template(hint, "text").render(values, until).strip() if hint else ""
    if words and said.strip():
        hinted = _folded(words) in _folded(said)
        if is_due and not hinted:
            between = "\n" if "\n" in said.strip() else " "
            said, hinted = f"{said.rstrip()}{between}{words}", True
    if config.current().sms.plain_quotes:
        said = gsm.plain(said)
    return Worded(said, gsm.count(said), hinted)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def shown(worded: Worded) -> Shown:
    """Return what previews tell of an SMS."""
    counted = worded.counted
    forcing = None if counted.forcing is None else Forcing(counted.forcing, gsm.named(counted.forcing))
    return Shown(
        worded.body, counted.parts, counted.alphabet, counted.characters, counted.units, counted.left, forcing,
        worded.problem(),
    )  # fmt: skip


def page(body: str) -> str:
    """Return an SMS as a page, for who looks at it in a browser."""
    return (
        '<!doctype html>\n<html><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head>\n'
        f'<body style="margin:16px;font:16px/1.5 sans-serif">'
        f'<p dir="auto" style="white-space:pre-wrap;overflow-wrap:anywhere">{escape(body)}</p></body>'
        "</html>\n"
    )


def tokens(message_id: int = 0) -> dict[str, Any]:
    """Return the values by which the links of a message lead through us; of none, links as long that lead nowhere."""
    return {designs_links.ROOT: {"click": own.click(message_id)}}


# When a marketing SMS says how to opt out: each time, or the first time and then once in thirty days.

_EVERY_MS = 30 * 86_400_000


def hint_is_due(claim: Claim, sent_at: int | None = None) -> bool:
    """Return whether a message has to tell its recipient; of one that left, at `sent_at`, whether it had to then."""
    if config.current().sms.opt_out_hint == "always":
        return True
    last = scalar(
        "SELECT hinted_at FROM channel WHERE account_id = ? AND kind = 'phone' AND key = ?",
        (claim.account_id, claim.recipient_key),
    )
    if last is None or (sent_at is not None and last == sent_at):
        return True
    # As of its first attempt: made again, it says the same
    return is_over(last, claim.dated_at or clock.now_ms())


def is_over(hinted_at: int | None, now: int) -> bool:
    """Return whether it is long enough since a number was told to be told again, now that it is so late (ms)."""
    return config.current().sms.opt_out_hint == "always" or hinted_at is None or int(hinted_at) <= now - _EVERY_MS
