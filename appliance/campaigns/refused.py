"""Keys that requests about campaigns refuse: to ignore them would change what is sent, to whom, or when."""

from appliance.refused_keys import SEND_TIMES, RefusedKey, RefusedKeys, of_content, unsupported, use, use_within
from appliance.templates.requests import Content

_ONE_SEGMENT = "a campaign goes to one `segment_id`; make a segment of several"
_NO_CONTACTS = "a campaign goes to a list or a segment, which `trigger_attributes` names"
_LISTS = ("list_ids", "lists", "contact_lists")
_EXCLUDED_LISTS = ("exclude_list_ids", "exclude_lists", "exclude_contact_list_id", "excluded_contact_list_ids")
_EXCLUDED_SEGMENTS = ("exclude_segment_id", "exclude_segments", "excluded_segment_ids")
_HOLD = ("hold", "hold_for", "hold_secs", "hold_minutes", "delay", "delay_seconds")

AUDIENCE_KEYS = (
    "contact_list_ids", "exclude_contact_list_ids", "exclude_segment_ids", "audience_type", "confirm_send_to_all",
)  # fmt: skip


def _audience(data: str) -> dict[str, RefusedKey]:
    """Refuse what others call the audience; `data` is the path before the keys of `trigger_attributes.data`."""
    return {
        **use(f"`{data}contact_list_ids`", *_LISTS),
        **use(f"`{data}exclude_contact_list_ids`", *_EXCLUDED_LISTS),
        **use(f"`{data}exclude_segment_ids`", *_EXCLUDED_SEGMENTS),
        **unsupported(_ONE_SEGMENT, "segment_ids", "segments"),
        **unsupported("make a segment with these filters", "filters"),
        **unsupported(_NO_CONTACTS, "contact_id", "contact_ids", "contacts", "emails", "recipients", "to"),
    }


# In `trigger_attributes.data`, which keeps every other key
AUDIENCE_DATA: RefusedKeys = {
    **_audience(""),
    **use_within("trigger_attributes", "contact_list_id", "segment_id"),
    **use("`trigger_attributes.contact_list_id`", "list_id"),
}
TRIGGER: RefusedKeys = {
    **_audience("data."),
    **use_within("data", *AUDIENCE_KEYS),
    **use("`contact_list_id`", "list_id"),
}
CREATE: RefusedKeys = {
    **use("`scheduled_at`", "send_at", *SEND_TIMES),
    **of_content("template_attributes."),
    **use_within("template_attributes", *Content.__struct_fields__),
    **unsupported("put the content of the template into `template_attributes`", "template_id"),
    **_audience("trigger_attributes.data."),
    **use_within("trigger_attributes.data", *AUDIENCE_KEYS[:4]),
    **use_within("trigger_attributes", "contact_list_id", "segment_id"),
    **use("`trigger_attributes.contact_list_id`", "list_id"),
    **unsupported("campaigns are marketing; `POST /messages` sends other mail", "transactional", neutral=False),
    **unsupported("send with a test key", "test", "test_mode", "sandbox", neutral=False),
    **unsupported("use `GET /campaigns/{id}/preflight`", "dry_run", neutral=False),
}
PATCH: RefusedKeys = {**CREATE, **unsupported("give it to `POST /campaigns/{id}/send`", "hold_seconds", *_HOLD)}
SEND: RefusedKeys = {
    **CREATE,
    **use("`hold_seconds`", *_HOLD),
    **unsupported("change it with `PATCH /campaigns/{id}` first", "channel", "tracking"),
}
