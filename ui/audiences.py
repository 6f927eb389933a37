"""For whom a campaign is, in words; and what its audience may be put together from."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from appliance.audience.contacts import lists
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.campaigns import audience
from ui import together
from ui.forms import Form

# Enough to choose from; whoever has more names them over the API
_PAGES, _A_PAGE = 5, 100
_OURS = (
    "audience_type", "confirm_send_to_all", "contact_list_ids", "exclude_contact_list_ids", "exclude_segment_ids",
)  # fmt: skip


class Choices(NamedTuple):
    """The lists and segments of an account, by name."""

    lists: list[Any]
    segments: list[Any]

    @property
    def names(self) -> dict[str, str]:
        """Names by kind and id: `list-3`, `segment-4`."""
        kinds = (("list", self.lists), ("segment", self.segments))
        return {f"{kind}-{row.id}": row.name for kind, found in kinds for row in found}


def choices(account_id: int) -> Choices:
    """Return what an audience may be chosen from."""
    found: tuple[list[Any], list[Any]] = ([], [])
    for into, ask, query in ((found[0], lists.page, lists.ListQuery), (found[1], segments.page, SegmentQuery)):
        for number in range(1, _PAGES + 1):
            some: Any = ask(account_id, query(page=number, limit=_A_PAGE))  # type: ignore[arg-type]  # each way of asking has its own kind of query
            into.extend(some.rows)
            if number >= some.pages:
                break
        into.sort(key=lambda row: row.name.casefold())
    return Choices(*found)


def name(campaign: Any, names: dict[str, str]) -> str:
    """Say for whom a campaign is, in a few words: `Newsletter, VIP, only in Berlin, without Staff`."""
    said = []
    if audience.is_everyone(campaign.trigger.data):
        said.append("Everybody")
    said += [names.get(f"list-{one}", "a deleted list") for one in chosen(campaign)]
    segment = campaign.trigger.segment_id
    if segment:
        said.append(("only in " if said else "") + names.get(f"segment-{segment}", "a deleted segment"))
    if said and (out := left_out(campaign)):
        said.append("without " + " and ".join(names.get(one, "something deleted") for one in out))
    return ", ".join(said)


def chosen(campaign: Any) -> list[int]:
    """Return the lists that an audience unites."""
    both = [campaign.trigger.contact_list_id, *(campaign.trigger.data.get("contact_list_ids") or [])]
    return [one for one in dict.fromkeys(both) if one]


def left_out(campaign: Any) -> list[str]:
    """Return what an audience leaves out, as `list-3` and `segment-4`."""
    data = campaign.trigger.data
    return [
        f"{kind}-{one}"
        for kind, key in (("list", "exclude_contact_list_ids"), ("segment", "exclude_segment_ids"))
        for one in dict.fromkeys(data.get(key) or [])
    ]


class Parts(together.Parts):
    """For whom a campaign is, as two at one draft may each change it."""

    def words(self, form: Form, key: str, known: Mapping[str, str]) -> str:
        """Return who is meant, by names as `list-3` and `segment-4`."""
        if "without" in self.names(key):
            return super().words(form, key, known)
        if form["who"] == "all":
            return "Everybody"
        said = [known.get(f"list-{one}", "a deleted list") for one in self._of(form, "list") if one]
        if form["segment"]:
            said.append(("only in " if said else "") + known.get(f"segment-{form['segment']}", "a deleted segment"))
        return ", ".join(said) or "nobody"


def form(campaign: Any) -> Form:
    """Return the form that says for whom a campaign is."""
    data = campaign.trigger.data
    values = {
        "who": "all" if audience.is_everyone(data) else "some",
        "segment": str(campaign.trigger.segment_id or ""),
        "sure": "yes" if data.get("confirm_send_to_all") is True else "",
    }
    return Form(values, {"list": [str(one) for one in chosen(campaign)], "without": left_out(campaign)})


def read(form: Form, data: dict[str, Any]) -> dict[str, Any]:
    """Read the form as what the middle takes; keys of `data` that are none of the form's stay."""
    kept: dict[str, Any] = {key: value for key, value in data.items() if key not in _OURS}
    everybody = form["who"] == "all"
    found = [] if everybody else form.ids("list")
    segment = None if everybody else _number(form["segment"])
    if len(found) > 1:
        kept["contact_list_ids"] = found[1:]
    if everybody:
        kept["audience_type"] = "all_contacts"
    if form["sure"] == "yes":
        kept["confirm_send_to_all"] = True
    for kind, key in (("list", "exclude_contact_list_ids"), ("segment", "exclude_segment_ids")):
        out = [number for one in form.all("without") if (number := _number(one.removeprefix(f"{kind}-")))]
        if out:
            kept[key] = list(dict.fromkeys(out))
    return {"contact_list_id": found[0] if found else None, "segment_id": segment, "data": kept}


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 19 else None
