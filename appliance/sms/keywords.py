"""What somebody means who writes an SMS back: leave, come back, help, or something to read (docs/decisions.md#15).

The keywords count only as the whole message, without case, accents and punctuation. Whoever refuses in other words is
understood where the words leave no doubt (they are all the message says); where they might be a refusal among other
things, a person has to look at them.
"""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from appliance.sms import refusals

Meaning = Literal["stop", "start", "yes", "help", "refusal", "perhaps", "other"]

STOP = (
    "stop", "stop all", "unsubscribe", "cancel", "end", "quit", "revoke", "opt out", "remove", "arret", "td",
)  # fmt: skip
START = ("start", "unstop")
HELP = ("help", "info")
YES = "yes"

# These are words of every day, too: alone they opt out, among others they say nothing
_EVERYDAY = frozenset({"end", "td"})
# Words of whoever may be refusing; also two that follow each other
_SUSPICIOUS = frozenset({
    "stopp", "stops", "stopped", "stopping", "unsubscribed", "unsub", "optout", "spam", "spamming", "scam",
    "harassment", "harassing", "lawyer", "illegal", "abmelden", "abbestellen", "desabonner", "desinscrire", "arretez",
    "arreter", "leave me", "opt me", "wrong number", "do not", "don t", "dont text", "dont contact", "dont message",
    "dont send", "take me", "no more", "not interested", "keine sms", "in ruhe", "de baja", "no mas",
})  # fmt: skip
_MAX_CHARACTERS = 4_000


class Read(NamedTuple):
    """What a message means, and the word or the words by which it does."""

    meaning: Meaning
    keyword: str | None = None


def plain(text: str) -> str:
    """Return a text as keywords are compared: small letters and digits without accents, one space between words."""
    return " ".join(_words(text, " "))


def _words(text: str, punctuation: str) -> list[str]:
    """Split into words; what is no letter, digit or space counts as `punctuation`."""
    found = []
    for one in unicodedata.normalize("NFKD", text[:_MAX_CHARACTERS]).casefold():
        sort = unicodedata.category(one)[0]
        if sort in "LN":
            found.append(one)
        elif one.isspace() or sort == "Z":
            found.append(" ")
        elif sort == "M" or unicodedata.category(one) == "Cf":
            continue  # accents, and what is not seen
        else:
            found.append(punctuation)
    return "".join(found).split()


def read(text: str, stop_words: Sequence[str] = ()) -> Read:
    """Return what a message means; `stop_words` opt out too, beside STOP and its relatives."""
    stops = _stops(tuple(stop_words))
    spaced, squeezed = _words(text, " "), _words(text, "")
    for words in (spaced, squeezed):
        said = "".join(words)
        if said in stops or (words and set(words) == {"stop"}):
            return Read("stop", stops.get(said, "STOP"))
        for meaning, known in _KNOWN.items():
            if said in known:
                return Read(meaning, said.upper())
    bare = refusals.bare(spaced)
    is_polite = len(bare) < len(spaced) and "".join(bare) in stops.keys() - _EVERYDAY
    if is_polite or refusals.are(bare):
        return Read("refusal", " ".join(spaced)[:160])
    return Read("perhaps" if _may_refuse(spaced, stops) else "other")


_KNOWN: dict[Meaning, frozenset[str]] = {
    "start": frozenset(START), "help": frozenset(HELP), "yes": frozenset({YES}),
}  # fmt: skip


@lru_cache(maxsize=16)
def _stops(more: tuple[str, ...]) -> dict[str, str]:
    """Return the words that opt out, each by its letters without spaces: STOPALL is STOP ALL."""
    found = {"".join(_words(word, "")): " ".join(_words(word, " ")).upper() for word in (*STOP, *more)}
    return {letters: word for letters, word in found.items() if letters}


def _may_refuse(words: list[str], stops: dict[str, str]) -> bool:
    pairs = {f"{first} {second}" for first, second in pairwise(words)}
    said = {*words, *pairs}
    return not said.isdisjoint(_SUSPICIOUS) or any(one.replace(" ", "") in stops.keys() - _EVERYDAY for one in said)
