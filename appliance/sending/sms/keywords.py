"""What somebody means who writes an SMS back: leave, come back, help, or something to read (docs/decisions.md#15).

The keywords count only as the whole message, without case, accents and punctuation. Whoever refuses in other words is
understood where the words leave no doubt (they are all the message says); where they might be a refusal among other
things, a person has to look at them.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

# Refusals in other words than the keywords, each as all that a message says: by these the sender is taken at it.
#
# Small letters and digits without accents, as `keywords.plain` answers them. What is not here and may be a refusal
# all the same is for a person to look at.

# What may stand around a refusal without changing it
_POLITE = (
    "please|pls|plz|kindly|thanks|thank you|thx|hi|hello|hey|ok|okay|now|right now|immediately|today|just|already|"
    "bitte|danke|hallo|sofort|jetzt|por favor|gracias|hola|ya|ahora|s il vous plait|svp|stp|merci|bonjour|maintenant"
)
# In the patterns below: {things} are messages however they are called, {list} is where somebody wants to be taken from
_PARTS = {
    "{things}": "(?:(?:all|any|more|these|those|the|your|this|of|further|annoying|marketing|promotional|text) )*"
    "(?:texts?|messages?|msgs?|sms|spam|stuff|ads|offers|promotions?|marketing|texting|messaging)",
    "{ever}": "(?: (?:any ?more|again|ever|at all))*",
    "{list}": "(?: (?:from|off|of) (?:(?:your|the|this|all|these|any|mailing|text|sms|marketing) )*"
    "(?:lists?|database|system|texts?|messages?|sms|here|this))?",
    "{me}": "(?:me|us|this number|my number|my phone)",
    "{not}": "(?:do not|don ?t|never)(?: ever)?",
    "{would}": "i (?:want|would like|wish|d like|need) (?:you )?to",
    "{ask}": "(?:(?:can|could|would|will) you )?",
    "{mensajes}": "(?:mensajes|sms|textos|publicidad)",
    "{textos}": "(?:de |des |les |aucun )?(?:sms|messages?|textos?|pub|publicite)",
}
_ENGLISH = (
    "stop (?:sending|with)(?: me| us)?(?: {things})?(?: to {me})?{ever}",
    "stop {things}(?: {me})?{ever}",
    "stop (?:contacting|bothering|spamming|harassing|writing|calling|messaging|texting)(?: to)?(?: {me})?{ever}",
    "stop (?:it|this|these|that|everything)",
    "{ask}(?:remove|take|delete|drop) {me}(?: off| out)?{list}",
    "{ask}(?:unsubscribe|opt ?out|opt)(?: {me})?(?: out)?{list}",
    "{would} (?:unsubscribe|opt ?out|stop|be removed|be taken off|stop (?:getting|receiving) {things}){list}",
    "i want out|unsubscribing",
    "{not} (?:text|message|msg|contact|sms|write|call|spam|bother)(?: to)? {me}{ever}",
    "{not} send(?: me| us)?(?: {things})?(?: to {me})?{ever}",
    "no more(?: {things})?",
    "i (?:do not|don ?t|no longer) (?:want|wish)(?: to (?:get|receive|have))? {things}(?: from you)?{ever}",
    "i (?:revoke|withdraw)(?: my)? (?:consent|permission)",
    "leave me alone|lose my number|(?:delete|erase|forget) my number",
    "cancel (?:my |the )?(?:subscription|texts|messages|sms)",
)
_GERMAN = (
    "(?:ich (?:will|moechte|mochte) )?keine (?:weiteren )?(?:sms|nachrichten|werbung)(?: mehr)?"
    "(?: (?:senden|schicken|schreiben|erhalten|bekommen))?",
    "(?:hoert|hort|hor|hoer|horen sie|hoeren sie) (?:damit )?auf(?: (?:damit|mir zu schreiben))?",
    "(?:ich (?:will|moechte|mochte) )?(?:mich )?(?:abmelden|abbestellen|austragen)",
    "(?:meld|melde|meldet|melden sie|trag|trage|tragt|tragen sie) mich (?:ab|aus)|sms (?:abbestellen|abmelden)",
    "(?:schreib|schreibt|schreiben sie|schick|schickt|schicken sie|sendet|senden sie) mir "
    "(?:nicht mehr|nichts mehr|keine (?:sms|nachrichten|werbung)(?: mehr)?)",
    "(?:nicht|nichts) mehr (?:schreiben|senden|schicken)|(?:lass|lasst|lassen sie) mich in ruhe",
)
_SPANISH = (
    "no (?:quiero )?(?:recibir )?mas {mensajes}",
    "no me (?:escriban?|escribas|manden?|mandes|envien?|envies|molesten?|molestes|contacten?)(?: mas)?"
    "(?: {mensajes})?(?: mas)?",
    "(?:quiero )?(?:darme|denme|dame|dar) de baja",
    "dejen? de (?:escribir(?:me)?|enviar(?:me)?|mandar(?:me)?|molestar(?:me)?)(?: {mensajes})?",
    "(?:cancelar|anular) (?:mi |la )?suscripcion|quiten?me de (?:la|su) lista",
)
_FRENCH = (
    "(?:je ne veux )?plus {textos}",
    "(?:ne )?m ecrivez plus|(?:ne )?m envoyez plus(?: {textos}| rien)?",
    "(?:je (?:veux|souhaite) )?(?:me )?(?:desabonner|desinscrire)",
    "(?:desabonnez|desinscrivez|retirez|supprimez) (?:moi|mon numero)(?: de (?:la|votre) liste)?",
    "arretez(?: (?:tout|(?:de m ecrire|de m envoyer {textos})|{textos}))?|laissez moi tranquille",
)
_MAX_REFUSAL_CHARACTERS = 200


def _filled(pattern: str) -> str:
    for name, part in _PARTS.items():
        pattern = pattern.replace(name, part)
    return f"(?:{pattern})"


_REFUSED = re.compile("|".join(_filled(one) for one in (*_ENGLISH, *_GERMAN, *_SPANISH, *_FRENCH)))
_AROUND = re.compile(rf"\b(?:{_POLITE})\b")


def bare_words(words: Sequence[str]) -> list[str]:
    """Return the words of a message without the courtesy around them."""
    return _AROUND.sub(" ", " ".join(words)).split()


def are_refusal(words: Sequence[str]) -> bool:
    """Return whether words are a refusal and nothing else."""
    said = " ".join(words)
    return len(said) <= _MAX_REFUSAL_CHARACTERS and _REFUSED.fullmatch(said) is not None


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
    bare = bare_words(spaced)
    is_polite = len(bare) < len(spaced) and "".join(bare) in stops.keys() - _EVERYDAY
    if is_polite or are_refusal(bare):
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
