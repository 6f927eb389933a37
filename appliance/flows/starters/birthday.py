"""Birthday: a greeting on a contact's birthday, from a custom field with the date."""

from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.starters.base import Kit, StarterKind, StarterParts, script

# The names of the custom field with the birthday: those of imported columns in the languages of the interface
FIELDS = (
    "birthday", "birth_date", "birthdate", "date_of_birth", "geburtstag", "geburtsdatum", "anniversaire",
    "date_de_naissance", "cumpleanos", "fecha_de_nacimiento", "compleanno", "data_di_nascita", "aniversario",
    "data_de_nascimento", "verjaardag", "geboortedatum", "urodziny", "data_urodzenia", "誕生日", "生年月日",
)  # fmt: skip


def _build(kit: Kit) -> StarterParts:
    trigger = {"event": "date_reached", "data": {"path": f"data.{FIELDS[0]}", "yearly": True, "at": "09:00"}}
    return StarterParts(trigger, [kit.get_email("birthday")], [script(gettext("On the birthday"), [], {1: "on"})])


STARTER = StarterKind(
    "birthday", gettext_noop("Birthday"),
    gettext_noop("A greeting on a contact’s birthday, from a custom field with the date."), _build,
)  # fmt: skip
