"""Preflight of SMS campaigns: segments, skipped recipients, advice and blockers."""

from typing import Any

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock

HINT = "Reply STOP to leave"


@pytest.fixture(scope="module", autouse=True)
def sms_settings(api: Client) -> None:
    """Set name, sender and opt-out hint of the account."""
    api.patch("/account", {"name": "Acme", "sms_opt_out_hint": HINT, "sms_from": "+15005550006"}).expect(200)


def list_with_contacts(api: Client, name: str, *contacts: dict[str, Any]) -> int:
    """Create a list with contacts and return its id."""
    list_id = int(api.post("/lists", {"name": name}).expect(201)["id"])
    for contact in contacts:
        api.post("/contacts", {**contact, "list_ids": [list_id]}).expect(201)
    return list_id


def create_draft(api: Client, group: int, body: str | None, **more: Any) -> int:
    """Create a draft of an SMS to a list and return its id."""
    asked = {
        "name": "Spring", "channel": "sms", "trigger_attributes": {"contact_list_id": group},
        "template_attributes": {"body": body}, **more,
    }  # fmt: skip
    return int(api.post("/campaigns", asked).expect(201)["id"])


def wait_for_rehearsal(api: Client, campaign: int) -> Any:
    """Return the preflight of a campaign once the rendering for all recipients has ended."""
    path = f"/campaigns/{campaign}/preflight"
    return api.wait(path, lambda row: row["facts"]["rehearsal"]["status"] in ("complete", "failed"), 30)


def warning_codes(preflight: Any) -> set[str]:
    """Return the codes of the warnings."""
    return {warning["code"] for warning in preflight["warnings"]}


def test_segments_are_counted_for_each_recipient(api: Client) -> None:
    """Segments include the hint and depend on the length and alphabet of each rendered text."""
    group = list_with_contacts(
        api, "Parts", {"phone": "+14155550101", "first_name": "Ann"},
        {"phone": "+4915112345678", "first_name": "A" * 100}, {"phone": "+33612345678", "first_name": "François"},
    )  # fmt: skip
    result = wait_for_rehearsal(api, create_draft(api, group, "Acme: hi {{ contact.first_name }}, " + "x" * 60))
    sms = result["facts"]["rehearsal"]["sms"]

    assert result["ok"] and result["facts"]["sendable"] == 3
    # "Acme: hi Ann, " + 60 + " " + 19 = 95 septets; with 100 letters 192; with one foreign letter 99 units of UTF-16
    assert sms["by_parts"] == {"1": 1, "2": 2} and sms["ucs2"] == 1
    assert sms["forcing"] == [{"character": "ç", "name": sms["forcing"][0]["name"], "count": 1}]
    assert "CEDILLA" in sms["forcing"][0]["name"]
    assert result["facts"]["sms"] == {"from": "+15005550006", "opt_out_hint": HINT, "parts": 5, "is_exact": True}
    assert sms["countries"] == {"US": 1, "DE": 1, "FR": 1}
    assert "ucs2" in warning_codes(result) and not {
        "opt_out_hint_missing",
        "unknown_merge_tag",
        "sender_unnamed",
    } & warning_codes(result)
    assert [warning for warning in result["warnings"] if warning["code"] == "ucs2" and "ç" in warning["message"]]


def test_recipients_that_cannot_get_the_sms(api: Client) -> None:
    """Recipients with a too long text or a missing value are reported, and those without a phone are skipped."""
    group = list_with_contacts(
        api, "Long", {"phone": "+14155550111", "first_name": "Bo"},
        {"phone": "+14155550112", "first_name": "Cy", "data": {"note": "é" * 300 + "я" * 400}},
        {"email": "mail@example.org"},
    )  # fmt: skip
    result = wait_for_rehearsal(
        api, create_draft(api, group, "Acme {{ contact.data.note | default: 'news' }} {{ contact.last_name }}")
    )
    done = result["facts"]["rehearsal"]

    assert (done["total"], done["done"], done["failed"]) == (2, 2, 1)
    assert "11 parts" in done["failures"][0]["error"]
    assert result["facts"]["skipped"] == {"no_channel": 1} and done["sms"]["parts"] == 1
    assert {"render_error", "missing_value"} <= warning_codes(result)


def test_advice_about_the_text(api: Client) -> None:
    """A missing sender name, a public link shortener and an unknown tag are warnings."""
    group = list_with_contacts(api, "Wording", {"phone": "+14155550121"})
    campaign = create_draft(api, group, "Sale: https://bit.ly/abc {{ nobody.knows }}")
    result = wait_for_rehearsal(api, campaign)

    assert result["ok"]
    assert {"sender_unnamed", "public_shortener", "unknown_merge_tag", "not_tested"} <= warning_codes(result)
    assert not {"preheader_missing", "dormant", "same_subject", "postal_address"} & warning_codes(result)


def test_a_missing_opt_out_hint_is_a_warning(api: Client) -> None:
    """Without the account's hint the text itself must say how to opt out."""
    api.patch("/account", {"sms_opt_out_hint": None}).expect(200)
    group = list_with_contacts(api, "Hints", {"phone": "+14155550131"})

    def told(body: str) -> bool:
        preflight = api.get(f"/campaigns/{create_draft(api, group, body)}/preflight").expect(200)
        return "opt_out_hint_missing" in warning_codes(preflight)

    assert told("Acme: sale")
    assert not told("Acme: sale. Stop: answer STOPP")
    assert not told("Acme: sale {{ unsubscribe_url }}")
    api.patch("/account", {"sms_opt_out_hint": HINT}).expect(200)


def test_blockers_of_an_sms_campaign(api: Client) -> None:
    """Missing, unreadable and too long text is rejected at its field."""
    group = list_with_contacts(api, "Blockers", {"phone": "+14155550141"})
    empty = create_draft(api, group, None)
    (blocker,) = api.get(f"/campaigns/{empty}/preflight").expect(200)["blockers"]

    assert (blocker["code"], blocker["field"]) == ("content_required", "template_attributes.body")
    assert api.post(f"/campaigns/{empty}/send").expect(422)["reason"] == "content_required"
    for wrong, words in (("{{ a", ""), ("x" * 1601, "is too long (maximum is 1600 characters)"), ("я" * 671, "parts")):
        error = api.patch(f"/campaigns/{empty}", {"template_attributes": {"body": wrong}}).expect(422)
        assert words in error["validation_errors"]["template_attributes.body"][0]
    # An email may be longer; as an SMS it cannot be sent
    moved = api.post("/campaigns", {"name": "Mail", "template_attributes": {"subject": "s", "body": "x" * 1601},
                                    "trigger_attributes": {"contact_list_id": group}}).expect(201)["id"]  # fmt: skip
    assert api.patch(f"/campaigns/{moved}", {"channel": "sms"}).expect(200)["template"]["channel"] == "sms"
    assert api.post(f"/campaigns/{moved}/send").expect(422)["reason"] == "preflight_failed"


@pytest.mark.full
def test_preflight_of_a_real_transport(fresh_server: FreshServer, clock: TestClock) -> None:
    """Preflight counts rejected numbers, recipients in quiet hours, and the days that the daily limit needs."""
    # No SMS is sent: the provider at this URL does not exist
    env = {
        "CAMPANERO_SMS__TRANSPORT": "twilio", "CAMPANERO_SMS__TWILIO__BASE_URL": "http://127.0.0.1:9",
        "CAMPANERO_SMS__TWILIO__ACCOUNT_SID": "AC1", "CAMPANERO_SMS__TWILIO__AUTH_TOKEN": "t",
        "CAMPANERO_SMS__COUNTRIES": "DE,US,JP", "CAMPANERO_SMS__PARTS_PER_DAY": "2",
    }  # fmt: skip
    api = fresh_server(env=env, clock=clock).client()
    group = list_with_contacts(
        api, "World", {"phone": "+4915112345678"}, {"phone": "+4930123456"}, {"phone": "+819012345678"},
        {"phone": "+33612345678"}, {"phone": "+19005550100"},
        {"phone": "+4915112345679", "data": {"time_zone": "Asia/Tokyo"}},
    )  # fmt: skip
    campaign = create_draft(api, group, "Acme")
    blocked = api.get(f"/campaigns/{campaign}/preflight").expect(200)
    assert [(blocker["code"], blocker["field"]) for blocker in blocked["blockers"]] == [("sender_not_ready", "base")]

    # 20:00 in Tokyo is noon in Berlin
    api.patch("/account", {"sms_from": "Acme", "time_zone": "Europe/Berlin", "sms_opt_out_hint": "Stop: acme.test",
                           "sms_quiet_hours": {"from": "20:00", "to": "08:00"}}).expect(200)  # fmt: skip
    api.patch(f"/campaigns/{campaign}", {"scheduled_at": "2030-06-12T11:30:00Z"}).expect(200)
    result = wait_for_rehearsal(api, campaign)
    sms = result["facts"]["rehearsal"]["sms"]

    assert result["ok"] and result["facts"]["sms"]["from"] == "Acme"
    assert sms["refused"] == {"country_not_allowed": 1, "invalid_address": 1}
    assert sms["countries"] == {"DE": 3, "JP": 1} and sms["fixed_lines"] == 1
    assert sms["resting"] == 2 and sms["parts"] == 4
    warnings = {warning["code"]: warning["message"] for warning in result["warnings"]}
    assert (
        "country_not_allowed (1)" in warnings["numbers_refused"] and "2 contacts" in warnings["recipient_quiet_hours"]
    )
    assert "takes 2 days" in warnings["parts_per_day"] and {"fixed_line", "recipient_quiet_hours"} <= warnings.keys()
    assert "quiet_hours" not in warnings
    (french,) = api.get("/contacts", search="+33612345678").expect(200)
    why = api.get(f"/campaigns/{campaign}/explain", contact_id=french["id"]).expect(200)
    assert (why["in_audience"], why["skip_reason"]) == (True, "country_not_allowed")
    api.patch(f"/campaigns/{campaign}", {"scheduled_at": "2030-06-12T20:30:00Z"}).expect(200)
    assert "quiet_hours" in warning_codes(wait_for_rehearsal(api, campaign))
