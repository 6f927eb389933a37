"""Interpret incoming SMS: opt-out, opt-in, request for help, or a message for a person (docs/decisions.md#15).

A keyword counts only if it is the whole message. Case, accents and punctuation are ignored. A refusal in other words
(`stop texting me`) is recognised too if it is the whole message, because then its meaning is clear. If a longer
message may contain a refusal, a person decides.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

# Patterns of refusals in other words than the keywords. Each must match the whole message, as `normalize` returns it:
# in lower-case letters and digits without accents. A person decides about other messages that may be refusals.

# Words around a refusal that do not change its meaning.
_COURTESY_WORDS = (
    "please|pls|plz|kindly|thanks|thank you|thx|hi|hello|hey|ok|okay|now|right now|immediately|today|just|already|"
    "bitte|danke|hallo|sofort|jetzt|por favor|gracias|hola|ya|ahora|s il vous plait|svp|stp|merci|bonjour|maintenant"
)
# Placeholders in the patterns below. For example, {things} matches words for messages, and {list} the list that the
# person wants to leave.
_PLACEHOLDERS = {
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


def _fill_placeholders(pattern: str) -> str:
    for name, replacement in _PLACEHOLDERS.items():
        pattern = pattern.replace(name, replacement)
    return f"(?:{pattern})"


_REFUSAL = re.compile("|".join(_fill_placeholders(text) for text in (*_ENGLISH, *_GERMAN, *_SPANISH, *_FRENCH)))
_COURTESY = re.compile(rf"\b(?:{_COURTESY_WORDS})\b")


def strip_courtesy(words: Sequence[str]) -> list[str]:
    """Return words, which must be normalized already, without courtesy words such as "please" and "thanks"."""
    return _COURTESY.sub(" ", " ".join(words)).split()


def is_refusal(words: Sequence[str]) -> bool:
    """Return whether normalized words are a refusal and nothing else.

    Remove words of courtesy first (`strip_courtesy`).
    """
    text = " ".join(words)
    return len(text) <= _MAX_REFUSAL_CHARACTERS and _REFUSAL.fullmatch(text) is not None


Meaning = Literal["stop", "start", "yes", "help", "refusal", "perhaps", "other"]

STOP = (
    "stop", "stop all", "unsubscribe", "cancel", "end", "quit", "revoke", "opt out", "remove", "arret", "td",
)  # fmt: skip
START = ("start", "unstop")
HELP = ("help", "info")
YES = "yes"

# Opt-out keywords that are everyday words: alone they opt out, among other words they have their usual meaning.
_EVERYDAY = frozenset({"end", "td"})
# Words, and pairs of adjacent words, that may be part of a refusal.
_SUSPICIOUS = frozenset({
    "stopp", "stops", "stopped", "stopping", "unsubscribed", "unsub", "optout", "spam", "spamming", "scam",
    "harassment", "harassing", "lawyer", "illegal", "abmelden", "abbestellen", "desabonner", "desinscrire", "arretez",
    "arreter", "leave me", "opt me", "wrong number", "do not", "don t", "dont text", "dont contact", "dont message",
    "dont send", "take me", "no more", "not interested", "keine sms", "in ruhe", "de baja", "no mas",
})  # fmt: skip
_MAX_CHARACTERS = 4_000


class KeywordMatch(NamedTuple):
    """The meaning of an incoming message, and the keyword or refusal in it, or None.

    The meaning `perhaps` means that the message may contain a refusal, so that a person has to read it.
    """

    meaning: Meaning
    keyword: str | None = None


def normalize(text: str) -> str:
    """Return a text in the form in which keywords are compared: lower-case words without accents and punctuation."""
    return " ".join(_words(text, " "))


def _words(text: str, punctuation: str) -> list[str]:
    """Return the lower-case words of the first `_MAX_CHARACTERS` of a text, without accents.

    Characters other than letters, digits and spaces are replaced with `punctuation`: a space, or an empty string.
    """
    characters = []
    for character in unicodedata.normalize("NFKD", text[:_MAX_CHARACTERS]).casefold():
        character_class = unicodedata.category(character)[0]
        if character_class in "LN":
            characters.append(character)
        elif character.isspace() or character_class == "Z":
            characters.append(" ")
        elif character_class == "M" or unicodedata.category(character) == "Cf":
            continue  # an accent or an invisible character
        else:
            characters.append(punctuation)
    return "".join(characters).split()


def match_keyword(text: str, stop_words: Sequence[str] = ()) -> KeywordMatch:
    """Return the meaning of an incoming message.

    `stop_words` are opt-out keywords in addition to those in `STOP` (setting `sms.stop_words`).
    """
    stops = _stop_words(tuple(stop_words))
    spaced, squeezed = _words(text, " "), _words(text, "")
    for words in (spaced, squeezed):
        letters = "".join(words)
        if letters in stops or (words and set(words) == {"stop"}):
            return KeywordMatch("stop", stops.get(letters, "STOP"))
        for meaning, keywords in _OTHER_KEYWORDS.items():
            if letters in keywords:
                return KeywordMatch(meaning, letters.upper())
    without_courtesy = strip_courtesy(spaced)
    is_polite = len(without_courtesy) < len(spaced) and "".join(without_courtesy) in stops.keys() - _EVERYDAY
    if is_polite or is_refusal(without_courtesy):
        return KeywordMatch("refusal", " ".join(spaced)[:160])
    return KeywordMatch("perhaps" if _may_refuse(spaced, stops) else "other")


_OTHER_KEYWORDS: dict[Meaning, frozenset[str]] = {
    "start": frozenset(START), "help": frozenset(HELP), "yes": frozenset({YES}),
}  # fmt: skip


@lru_cache(maxsize=16)
def _stop_words(extra_words: tuple[str, ...]) -> dict[str, str]:
    """Return the opt-out keywords by the form in which they are compared, without case, spaces and punctuation.

    An example is `{"stopall": "STOP ALL"}`.
    """
    keyword_by_letters = {
        "".join(_words(word, "")): " ".join(_words(word, " ")).upper() for word in (*STOP, *extra_words)
    }
    return {letters: word for letters, word in keyword_by_letters.items() if letters}


def _may_refuse(words: list[str], stops: dict[str, str]) -> bool:
    pairs = {f"{first} {second}" for first, second in pairwise(words)}
    phrases = {*words, *pairs}
    return not phrases.isdisjoint(_SUSPICIOUS) or any(
        phrase.replace(" ", "") in stops.keys() - _EVERYDAY for phrase in phrases
    )
