"""What we answer by ourselves, in the language of the account: short, and in letters that every phone has (GSM-7)."""

from collections.abc import Mapping

# {company} is whoever wrote to them, {help} where a person answers
_EN = {
    "stop": "{company}: You are unsubscribed and will get no more messages. Reply START to get them again.",
    "start": "{company}: You are subscribed again. Message frequency varies. Msg & data rates may apply. Reply HELP "
    "for help, STOP to unsubscribe.",
    "help": "{company}: news and offers by SMS, message frequency varies. Msg & data rates may apply.{help} Reply STOP "
    "to unsubscribe.",
    "contact": " Help: {contact}.",
}
_DE = {
    "stop": "{company}: Sie sind abgemeldet und erhalten keine SMS mehr. Mit START melden Sie sich wieder an.",
    "start": "{company}: Sie sind wieder angemeldet. Wie oft wir schreiben, ist verschieden. Es gelten die Preise "
    "Ihres Anbieters. Hilfe mit HELP, abmelden mit STOP.",
    "help": "{company}: Neuigkeiten und Angebote per SMS, unterschiedlich oft. Es gelten die Preise Ihres "
    "Anbieters.{help} Abmelden mit STOP.",
    "contact": " Hilfe: {contact}.",
}
_ES = {
    "stop": "{company}: Ha cancelado los SMS y no le enviaremos nuevos mensajes. Responda START para recibirlos otra "
    "vez.",
    "start": "{company}: Vuelve a recibir nuestros SMS, con frecuencia variable. Pueden aplicarse cargos de su "
    "operador. Responda HELP para ayuda, STOP para cancelar.",
    "help": "{company}: novedades y ofertas por SMS, con frecuencia variable. Pueden aplicarse cargos de su "
    "operador.{help} Responda STOP para cancelar.",
    "contact": " Ayuda: {contact}.",
}
_FR = {
    "stop": "{company} : vous ne recevrez plus nos SMS. Répondez START pour les recevoir à nouveau.",
    "start": "{company} : vous recevez de nouveau nos SMS, à fréquence variable. Prix selon votre opérateur. Répondez "
    "HELP pour de l'aide, STOP pour ne plus les recevoir.",
    "help": "{company} : actualités et offres par SMS, à fréquence variable. Prix selon votre opérateur.{help} "
    "Répondez STOP pour ne plus les recevoir.",
    "contact": " Aide : {contact}.",
}
_LANGUAGES: dict[str, Mapping[str, str]] = {"en": _EN, "de": _DE, "es": _ES, "fr": _FR}


def say(kind: str, locale: str, company: str, contact: str | None) -> str:
    """Return the reply to a keyword (`stop`, `start`, `help`); English where we have no words for a locale."""
    short = locale.replace("_", "-").partition("-")[0].lower()
    words = _LANGUAGES.get(short, _EN)
    where = words["contact"].format(contact=contact) if contact else ""
    return words[kind].format(company=company, help=where)
