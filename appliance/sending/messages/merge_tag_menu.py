"""What a merge tag may say, for those who choose one: in groups, with an example, and how many have none."""

from typing import NamedTuple

import msgspec

from appliance.audience.contacts import store
from appliance.content import brand as brands
from appliance.content.templates import store as templates
from appliance.storage.models import Account, Flow
from appliance.storage.open import rows

_MAX_EVENTS = 200


class Tag(NamedTuple):
    """A merge tag: its name in the language, what people call it, and other names it has.

    `lacking` is the share of people who have none, or None where nobody can lack it. `text` is what a link says, and
    `fallback` what is said to those who have none until somebody chooses other words.
    """

    name: str
    label: str
    example: str = ""
    lacking: float | None = None
    also: str = ""
    text: str = ""
    fallback: str = ""

    @property
    def tag(self) -> str:
        """Return the tag as it is written."""
        return f"{{{{ {self.name} }}}}"

    @property
    def without(self) -> str:
        """Return how many have none, in words that stand by themselves; nothing where everybody has one."""
        if not self.lacking:
            return ""
        if self.lacking == 1:
            return f"Nobody has a {self.label[0].lower()}{self.label[1:]}"
        share = min(99, max(1, round(self.lacking * 100)))
        return f"{share}\N{NARROW NO-BREAK SPACE}% have no {self.label[0].lower()}{self.label[1:]}"


class Group(NamedTuple):
    """Merge tags of one make."""

    label: str
    tags: list[Tag]


def groups(account_id: int, template_id: int | None = None, links: bool = True) -> list[Group]:
    """Return the merge tags for a template, or for any; raises NotFound. An SMS has no links of a mail."""
    template = templates.get(account_id, template_id) if template_id else None
    account, brand = Account.get_by_id(account_id), brands.get(account_id)
    found = [
        Group("Contact", _contact(account_id)),
        Group("Contact data", [
            Tag(f"contact.data{_path(one.name)}", _label(one.name), one.example, one.lacking)
            for one in store.data_keys(account_id)
        ]),
        Group("Event", _event(template.flow) if template is not None and template.flow_id else []),
        Group("Brand", [
            Tag("brand.company_name", "Company", brand.company_name or account.name),
            Tag("brand.physical_address", "Postal address", (brand.physical_address or "")[:40]),
            Tag("campaign.name", "Name of the campaign"),
        ]),
    ]  # fmt: skip
    if links and (template is None or template.channel == "email"):
        found.append(Group("Links", [
            Tag("unsubscribe_url", "Unsubscribe link", text="Unsubscribe"),
            Tag("preferences_url", "Preferences link", text="Preferences"),
            Tag("view_url", "View in browser", text="View in browser"),
        ]))  # fmt: skip
    return [one for one in found if one.tags]


def _contact(account_id: int) -> list[Tag]:
    have = store.columns(account_id)
    first, last = have["first_name"], have["last_name"]
    return [
        Tag("first_name", "First name", first.example, first.lacking, "contact.first_name", fallback="friend"),
        Tag("last_name", "Last name", last.example, last.lacking, "contact.last_name"),
        Tag("email", "Email", also="contact.email"),
        Tag("contact.country_code", "Country", have["country_code"].example, have["country_code"].lacking),
    ]


def _event(flow: Flow) -> list[Tag]:
    """Return what the last events that started a flow held."""
    if flow.hidden:
        return []
    names = rows("SELECT DISTINCT event FROM trigger WHERE flow_id = ?", (flow.id,))
    found = [
        row for (name,) in names for row in rows(
            "SELECT data FROM event WHERE account_id = ? AND event = ? ORDER BY created_at DESC, id DESC LIMIT ?",
            (flow.account_id, name, _MAX_EVENTS),
        )
    ]  # fmt: skip
    objects = [msgspec.json.decode(text) if text else None for (text,) in found]
    return [
        Tag(f"event{_path(one.name)}", _label(one.name), one.example, one.lacking) for one in store.counted(objects)
    ]


def _path(name: str) -> str:
    """Write the way to a value: with dots, or in brackets where a part is no plain word."""
    parts = name.split(".")
    plain = all(one.isidentifier() and one.isascii() and not one.startswith("_") for one in parts)
    return "".join(f".{one}" if plain else f'["{one}"]' for one in parts)


def _label(name: str) -> str:
    words = name.replace(".", " ").replace("_", " ").strip() or name
    return words[:1].upper() + words[1:]
