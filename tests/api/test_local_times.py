"""The local time of a campaign over the API: what it sets, who may set and read it, and what is rejected."""

from tests.api.test_campaigns import create_draft, list_with_contacts
from tests.kit.client import Client
from tests.kit.server import Server

CONTENT = {"subject": "World", "body": "<p>Hi</p>"}


def test_a_local_time_sets_the_first_moment_anywhere(api: Client) -> None:
    """A campaign as it was read is a valid change; a local time may also come with the send."""
    draft = create_draft(api, local_time="2031-12-01T09:00")
    path = f"/campaigns/{draft['id']}"
    assert (draft["local_time"], draft["scheduled_at"]) == ("2031-12-01T09:00", "2031-11-30T19:00:00.000Z")
    same = api.patch(path, {"local_time": draft["local_time"], "scheduled_at": draft["scheduled_at"]}).expect(200)
    assert (same["local_time"], same["scheduled_at"]) == (draft["local_time"], draft["scheduled_at"])
    errors = api.patch(path, {"local_time": "2031-12-01T09:00", "scheduled_at": "2031-12-01T09:00:00Z"}).expect(422)
    assert errors["validation_errors"] == {"local_time": ["give either `scheduled_at` or `local_time`, not both"]}
    copy = api.post(f"{path}/duplicate").expect(201)
    assert (copy["local_time"], copy["scheduled_at"]) == (None, None)


def test_the_times_of_a_draft_are_a_forecast(api: Client) -> None:
    """They count recipients by zone and source; a campaign without a local time has none."""
    list_id = list_with_contacts(api, "World", 3)
    draft = create_draft(api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": list_id})
    path = f"/campaigns/{draft['id']}"
    assert api.get(f"{path}/send_times").expect(200)["local_time"] is None
    api.patch(path, {"local_time": "2031-12-01T09:00"}).expect(200)
    times = api.get(f"{path}/send_times").expect(200)
    assert times["sources"] == {"data": 0, "phone": 0, "country": 0, "account": 3}
    assert (times["is_fixed"], times["first_at"] == times["last_at"], len(times["times"])) == (False, True, 1)
    sent = api.post(f"{path}/send", {"local_time": "2031-12-02T09:00"}).expect(200)
    assert (sent["phase"], sent["scheduled_at"]) == ("scheduled", "2031-12-01T19:00:00.000Z")


def test_a_local_time_shows_where_contacts_are(api: Client, server: Server) -> None:
    """When a message leaves tells the time zone of its recipient, so both need `contacts:read` (T45)."""
    narrow = server.client(server.new_key("narrow", "--scope", "campaigns:write,campaigns:read,campaigns:send"))
    body = {"local_time": "2031-12-01T09:00"}
    assert narrow.post("/campaigns", {"name": "x", **body}).expect(403)["required_scope"] == "contacts:read"
    path = f"/campaigns/{create_draft(api, **body)['id']}"
    narrow.patch(path, {"name": "y", **body}).expect(200)
    later = {"local_time": "2031-12-02T09:00"}
    for response in (narrow.patch(path, later), narrow.post(f"{path}/send", later)):
        assert response.expect(403)["required_scope"] == "contacts:read"
    best = {**body, "best_hour_until": 20}
    for response in (narrow.patch(path, best), narrow.post(f"{path}/send", best)):
        assert response.expect(403)["required_scope"] == "contacts:read"
    assert narrow.get(f"{path}/send_times").expect(403)["required_scope"] == "contacts:read"


def test_the_best_hour_is_a_part_of_the_local_time(api: Client) -> None:
    """It is set together with the local time, forecast by hour, and ends with another time."""
    list_id = list_with_contacts(api, "Best", 2)
    draft = create_draft(api, template_attributes=CONTENT, trigger_attributes={"contact_list_id": list_id})
    path = f"/campaigns/{draft['id']}"
    best = {"local_time": "2031-12-01T08:00", "best_hour_until": 20}
    changed = api.patch(path, best).expect(200)
    assert (changed["best_hour_until"], changed["scheduled_at"]) == (20, "2031-11-30T18:00:00.000Z")
    times = api.get(f"{path}/send_times").expect(200)
    assert times["best_hour_until"] == 20
    assert times["hours"] == [{"hour": 8, "recipients": 2, "waiting": 2, "clicked": 0}]
    codes = {warning["code"] for warning in api.get(f"{path}/preflight").expect(200)["warnings"]}
    assert "best_hour_unknown" in codes
    read = {key: changed[key] for key in ("local_time", "best_hour_until", "scheduled_at")}
    assert api.patch(path, read).expect(200)["best_hour_until"] == 20
    assert api.post(f"{path}/duplicate").expect(201)["best_hour_until"] is None
    assert api.patch(path, {"best_hour_until": None}).expect(200)["local_time"] == best["local_time"]
    api.patch(path, best).expect(200)
    assert api.patch(path, {"scheduled_at": "2031-12-01T09:00:00Z"}).expect(200)["best_hour_until"] is None
    errors = api.patch(path, {"best_hour_until": 20}).expect(422)
    assert errors["validation_errors"] == {"best_hour_until": ["needs a `local_time` in the same request"]}
