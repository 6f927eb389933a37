"""The audience form of the composer: build it from a campaign, and read it into the campaign's trigger attributes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from appliance.audience import lists
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.campaigns import audience
from appliance.core.i18n import gettext
from ui import formats
from ui.forms import Form, edit_conflicts, parse_id

# The form offers the first lists and segments only; further ones can be chosen with the API.
_MAX_PAGES, _PAGE_SIZE = 5, 100
_FORM_KEYS = (
    "audience_type", "confirm_send_to_all", "contact_list_ids", "exclude_contact_list_ids", "exclude_segment_ids",
)  # fmt: skip


class AudienceChoices(NamedTuple):
    """The lists and segments that the form offers, sorted by name."""

    lists: list[Any]
    segments: list[Any]

    @property
    def names(self) -> dict[str, str]:
        """Return the names of the lists and segments by keys such as `list-3` and `segment-4`."""
        kinds = (("list", self.lists), ("segment", self.segments))
        return {f"{kind}-{row.id}": row.name for kind, group in kinds for row in group}


def load_choices(account_id: int) -> AudienceChoices:
    """Return the lists and segments that the form offers, at most `_MAX_PAGES` × `_PAGE_SIZE` of each."""
    choices: tuple[list[Any], list[Any]] = ([], [])
    for into, ask, query in (
        (choices[0], lists.fetch_page, lists.ListQuery),
        (choices[1], segments.fetch_page, SegmentQuery),
    ):
        for number in range(1, _MAX_PAGES + 1):
            group: Any = ask(account_id, query(page=number, limit=_PAGE_SIZE))  # type: ignore[arg-type]  # each function takes its own query type
            into.extend(group.rows)
            if number >= group.pages:
                break
        into.sort(key=lambda row: row.name.casefold())
    return AudienceChoices(*choices)


def describe(campaign: Any, names: dict[str, str]) -> str:
    """Return the audience of a campaign in words: `Newsletter, VIP, narrowed to Berlin, excluding Staff`.

    `names` are those of `AudienceChoices.names`.
    """
    included, excluded = describe_included(campaign, names), excluded_keys(campaign)
    if not included or not excluded:
        return included
    excluded_names = formats.join_names([names.get(key) or gettext("a deleted list or segment") for key in excluded])
    return gettext("%(audience)s, excluding %(names)s", audience=included, names=excluded_names)


def describe_included(campaign: Any, names: Mapping[str, str]) -> str:
    """Return the lists and segments of a campaign's audience as text, without the excluded ones: `Newsletter, VIP`.

    An empty text means that no audience is chosen.
    """
    is_everyone = audience.is_everyone(campaign.trigger.data)
    return _describe_choice(is_everyone, selected_list_ids(campaign), campaign.trigger.segment_id, names)


def _describe_choice(is_everyone: bool, list_ids: Sequence[Any], segment_id: Any, names: Mapping[str, str]) -> str:
    """Return chosen lists and a segment in words; an empty text if nothing is chosen."""
    included = [names.get(f"list-{id_}") or gettext("a deleted list") for id_ in list_ids]
    if is_everyone:
        included.insert(0, gettext("All contacts"))
    if not segment_id:
        return ", ".join(included)
    segment = names.get(f"segment-{segment_id}") or gettext("a deleted segment")
    if not included:
        return segment
    return gettext("%(lists)s, narrowed to %(segment)s", lists=", ".join(included), segment=segment)


def selected_list_ids(campaign: Any) -> list[int]:
    """Return the ids of the lists in a campaign's audience, without duplicates."""
    both = [campaign.trigger.contact_list_id, *(campaign.trigger.data.get("contact_list_ids") or [])]
    return [key for key in dict.fromkeys(both) if key]


def excluded_keys(campaign: Any) -> list[str]:
    """Return the lists and segments that a campaign's audience excludes, as keys such as `list-3` and `segment-4`."""
    data = campaign.trigger.data
    return [
        f"{kind}-{item}"
        for kind, key in (("list", "exclude_contact_list_ids"), ("segment", "exclude_segment_ids"))
        for item in dict.fromkeys(data.get(key) or [])
    ]


class AudienceParts(edit_conflicts.FormParts):
    """The parts of the audience form, for edit conflicts, described in words with the names of lists and segments."""

    def describe(self, form: Form, key: str, names: Mapping[str, str]) -> str:
        """Return a part in words; `names` maps keys such as `list-3` and `segment-4` to names."""
        if "without" in self.names(key):
            return super().describe(form, key, names)
        if form["who"] == "all":
            return gettext("All contacts")
        list_ids = [value for value in self._values(form, "list") if value]
        return _describe_choice(False, list_ids, form["segment"], names) or gettext("No contacts")


def build_form(campaign: Any) -> Form:
    """Return the audience form with the stored values of a campaign."""
    data = campaign.trigger.data
    values = {
        "who": "all" if audience.is_everyone(data) else "some",
        "segment": str(campaign.trigger.segment_id or ""),
        "sure": "yes" if data.get("confirm_send_to_all") is True else "",
    }
    return Form(values, {"list": [str(id_) for id_ in selected_list_ids(campaign)], "without": excluded_keys(campaign)})


def read_form(form: Form, data: dict[str, Any]) -> dict[str, Any]:
    """Return the `trigger_attributes` of a campaign from a posted form.

    `data` is the trigger data stored so far; keys that the form does not have are kept.
    """
    stored: dict[str, Any] = {key: value for key, value in data.items() if key not in _FORM_KEYS}
    everybody = form["who"] == "all"
    list_ids = [] if everybody else form.ids("list")
    segment = None if everybody else parse_id(form["segment"]) or None
    if len(list_ids) > 1:
        stored["contact_list_ids"] = list_ids[1:]
    if everybody:
        stored["audience_type"] = "all_contacts"
    if form["sure"] == "yes":
        stored["confirm_send_to_all"] = True
    for kind, key in (("list", "exclude_contact_list_ids"), ("segment", "exclude_segment_ids")):
        out = [number for item in form.getlist("without") if (number := parse_id(item.removeprefix(f"{kind}-")))]
        if out:
            stored[key] = list(dict.fromkeys(out))
    return {"contact_list_id": list_ids[0] if list_ids else None, "segment_id": segment, "data": stored}
