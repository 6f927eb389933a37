"""Refusals in other words than the keywords, each as all that a message says: by these the sender is taken at it.

Small letters and digits without accents, as `keywords.plain` answers them. What is not here and may be a refusal all
the same is for a person to look at.
"""

import re
from collections.abc import Sequence

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
_MAX_CHARACTERS = 200


def _filled(pattern: str) -> str:
    for name, part in _PARTS.items():
        pattern = pattern.replace(name, part)
    return f"(?:{pattern})"


_REFUSED = re.compile("|".join(_filled(one) for one in (*_ENGLISH, *_GERMAN, *_SPANISH, *_FRENCH)))
_AROUND = re.compile(rf"\b(?:{_POLITE})\b")


def bare(words: Sequence[str]) -> list[str]:
    """Return the words of a message without the courtesy around them."""
    return _AROUND.sub(" ", " ".join(words)).split()


def are(words: Sequence[str]) -> bool:
    """Return whether words are a refusal and nothing else."""
    said = " ".join(words)
    return len(said) <= _MAX_CHARACTERS and _REFUSED.fullmatch(said) is not None
