"""The ready-made flows from which a flow can be created, in the order in which they are offered."""

from typing import Any, NamedTuple

from appliance.audience.segments import suggestions
from appliance.content import brand as brands
from appliance.content.designs.theme import Look
from appliance.content.templates import starters as letters
from appliance.core.i18n import gettext, use_language
from appliance.core.recipient_texts import language_of_locale
from appliance.flows.document import walk
from appliance.flows.starters import (
    after_event,
    birthday,
    browse,
    cart,
    event_reminder,
    failed_payment,
    lead_magnet,
    onboarding,
    re_permission,
    replenishment,
    review,
    sunset,
    welcome,
    win_back,
)
from appliance.flows.starters.base import Kit, StarterKind, Step

KINDS: tuple[StarterKind, ...] = (
    welcome.STARTER, onboarding.STARTER, lead_magnet.STARTER, cart.STARTER, browse.STARTER, after_event.STARTER,
    review.STARTER, replenishment.STARTER, failed_payment.STARTER, birthday.STARTER, event_reminder.STARTER,
    win_back.STARTER, re_permission.STARTER, sunset.STARTER,
)  # fmt: skip


class Starter(NamedTuple):
    """A ready-made flow to begin with; `trigger`, `steps` and `data` are as in the request of `POST /flows`.

    `data` contains the simulations that demonstrate it (`scripts`).
    """

    key: str
    label: str
    description: str
    name: str
    trigger: dict[str, Any]
    steps: list[Step]
    data: dict[str, Any]

    def count_emails(self) -> int:
        """Return the number of emails in all branches."""
        return sum("design" in step for _, step in walk(self.steps))

    def count_steps(self) -> int:
        """Return the number of steps in all branches."""
        return sum(1 for _ in walk(self.steps))


def build_starters(look: Look) -> tuple[Starter, ...]:
    """Return the starters with the look of a brand; their buttons lead to the brand's first web address.

    Names, emails and simulations are in the language of the account, labels and descriptions in the current language.
    """
    home = letters.get_home_url(look)
    kit = Kit(look, home, letters.build_flow_emails(home, look.locale))
    return tuple(_build(kind, kit) for kind in KINDS)


def _build(kind: StarterKind, kit: Kit) -> Starter:
    with use_language(language_of_locale(kit.look.locale)):
        name, parts = gettext(kind.label), kind.build(kit)
    data = {"scripts": parts.scripts}
    return Starter(kind.key, gettext(kind.label), gettext(kind.description), name, parts.trigger, parts.steps, data)


def list_starters(account_id: int) -> tuple[Starter, ...]:
    """Return the starters with the look of an account's brand."""
    return build_starters(Look(*brands.build_look(brands.get(account_id))))


def find_starter(account_id: int, key: str) -> Starter | None:
    """Return the starter with this key, in the look of the account's brand, or None.

    The starter `birthday` uses the custom field among `birthday.FIELDS` that most of the account's contacts have.
    """
    starter = next((starter for starter in list_starters(account_id) if starter.key == key), None)
    if starter is not None and key == birthday.STARTER.key:
        paths = (field.path for field in suggestions.suggest_data_keys(account_id) if field.path in birthday.FIELDS)
        path = next(paths, birthday.FIELDS[0])
        starter = starter._replace(
            trigger={**starter.trigger, "data": {**starter.trigger["data"], "path": f"data.{path}"}}
        )
    return starter
