"""What is told before a send: blockers, advice, and a rehearsal of the message for every recipient."""

from typing import Any

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock

BODY = "<p>Hi {{ contact.first_name }}, {{ contact.data.city | default: 'friend' }}: {{ contact.data.sum | money }}</p>"


def draft(api: Client, list_id: int, **template: Any) -> int:
    """Make a draft to a list and return its id."""
    content = {"subject": "Spring", "body": BODY, **template}
    body = {
        "name": "Spring", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content,
    }  # fmt: skip
    return int(api.post("/campaigns", body).expect(201)["id"])


def people(api: Client, **more: dict[str, Any]) -> tuple[int, dict[str, int]]:
    """Make a list with people by first name; return its id and theirs."""
    group = api.post("/lists", {"name": f"News {len(more)} {sorted(more)}"}).expect(201)["id"]
    made = {
        name: api.post("/contacts", {"email": f"{name}@example.org", "list_ids": [group], **fields}).json["id"]
        for name, fields in more.items()
    }
    return group, made


def rehearsed(api: Client, campaign: int) -> Any:
    """Return the preflight of a campaign once its rehearsal is over."""
    path = f"/campaigns/{campaign}/preflight"
    return api.wait(path, lambda one: one["facts"]["rehearsal"]["status"] in ("complete", "failed"), 30)


def codes(preflight: Any) -> set[str]:
    """Return the codes of the warnings."""
    return {one["code"] for one in preflight["warnings"]}


def test_everybody_is_rehearsed(api: Client) -> None:
    """Who lacks a value without a default is named, and who cannot get the message, with the reason."""
    group, ids = people(
        api, ann={"first_name": "Ann", "data": {"sum": 3}}, bo={"data": {"sum": 4, "city": "Rome"}},
        cy={"first_name": "Cy", "data": {"sum": "much"}},
    )  # fmt: skip
    found = rehearsed(api, draft(api, group))
    done = found["facts"]["rehearsal"]

    assert found["ok"] and done["status"] == "complete"
    assert (done["total"], done["done"], done["failed"]) == (3, 3, 1)
    assert done["failures"] == [{"contact_id": ids["cy"], "error": done["failures"][0]["error"]}]
    assert "money" in done["failures"][0]["error"]
    lacking = {one["name"]: (one["count"], one["contact_ids"]) for one in done["lacking"]}
    assert lacking["contact.first_name"] == (1, [ids["bo"]])
    assert "contact.data.city" not in lacking
    assert {"missing_value", "render_error"} <= codes(found)
    assert done["html_bytes"] > found["facts"]["html_bytes"] - 200


def test_a_change_is_rehearsed_anew(api: Client) -> None:
    """What was found belongs to one state of draft and audience: after a change it is looked for again."""
    group, _ = people(api, di={"first_name": "Di", "data": {"sum": "none"}})
    campaign = draft(api, group)
    assert rehearsed(api, campaign)["facts"]["rehearsal"]["failed"] == 1
    api.patch(f"/campaigns/{campaign}", {"template_attributes": {"body": "<p>Plain</p>"}}).expect(200)
    found = rehearsed(api, campaign)

    assert found["facts"]["rehearsal"]["failed"] == 0
    assert not {"missing_value", "render_error"} & codes(found)


def test_what_is_worth_a_second_look(api: Client) -> None:
    """Plain links, no preheader, nobody tested, a crowded day and a repeated subject are told; none refuses."""
    group, _ = people(api, ed={"first_name": "Ed"})
    body = '<p><a href="http://plain.example/x">x</a><a href="https://good.example">y</a> {{ data.nothing }}</p>'
    first = draft(api, group, body=body)
    found = rehearsed(api, first)
    assert found["ok"]
    assert {"link_not_https", "preheader_missing", "not_tested", "postal_address"} <= codes(found)
    assert not {"crowded", "same_subject", "dormant", "too_long"} & codes(found)
    api.post(f"/campaigns/{first}/send", {}).expect(200)
    second = rehearsed(api, draft(api, group, preheader="p", body="<p>Other</p>"))

    assert {"crowded", "same_subject"} <= codes(second)
    assert not {"link_not_https", "preheader_missing"} & codes(second)


def test_an_audience_that_slept(fresh_server: FreshServer, clock: TestClock) -> None:
    """People who got nothing for six months are worth a warm-up."""
    api = fresh_server(clock=clock).client()
    group, _ = people(api, flo={"first_name": "Flo"})
    campaign = draft(api, group, body="<p>Hi</p>")
    assert "dormant" not in codes(rehearsed(api, campaign))
    clock.advance(200 * 86_400)

    assert "dormant" in codes(rehearsed(api, campaign))


def test_a_design_is_told_of(api: Client) -> None:
    """Advice of sections stands at their paths; a section that nobody knows blocks."""
    group, _ = people(api, gil={"first_name": "Gil"})
    sections = [
        {"type": "image", "props": {"src": "https://pictures.example/a.png"}},
        {"type": "button", "props": {"text": "Go"}},
    ]
    campaign = draft(api, group, body=None, design={"sections": sections})
    found = rehearsed(api, campaign)
    fields = {one["code"]: one["field"] for one in found["warnings"]}

    assert found["ok"] and fields["alt_missing"] == "template_attributes.design.sections[0]"
    assert fields["link_missing"] == "template_attributes.design.sections[1]"
    sections.append({"type": "hologram", "props": {}})
    api.patch(f"/campaigns/{campaign}", {"template_attributes": {"design": {"sections": sections}}}).expect(200)
    blocked = api.get(f"/campaigns/{campaign}/preflight").expect(200)
    assert [one["field"] for one in blocked["blockers"]] == ["template_attributes.design.sections[2]"]


def test_what_a_campaign_never_has_everybody_lacks(api: Client) -> None:
    """`data` belongs to single messages: in a campaign its tags are holes for all."""
    group, ids = people(api, hal={"first_name": "Hal"}, ida={"first_name": "Ida"})
    found = rehearsed(api, draft(api, group, body="<p>{{ data.code }} {{ contact.first_name }}</p>"))

    assert [(one["name"], one["count"]) for one in found["facts"]["rehearsal"]["lacking"] if one["count"]] == [
        ("data.code", len(ids))
    ]
    assert "missing_value" in codes(found)


def test_the_size_is_that_of_what_is_sent(api: Client) -> None:
    """Links that lead through us and the way out are counted; from 80 KB there is advice, before Gmail cuts it off."""
    group, _ = people(api, size={"first_name": "Ed", "data": {"sum": 1}})
    campaign = draft(api, group, body=f"<p>{'word ' * 17_500}</p>")
    path = f"/campaigns/{campaign}/preflight"
    said = [one["message"] for one in api.get(path).expect(200)["warnings"] if one["code"] == "nearly_too_long"]
    assert len(said) == 1 and "Gmail cuts off what is over 102 KB" in said[0]
    links = "".join(f'<p><a href="https://example.org/{at}">Go</a></p>' for at in range(300))
    api.patch(f"/campaigns/{campaign}", {"template_attributes": {"body": links}}).expect(200)
    found = api.get(path).expect(200)["facts"]["html_bytes"]
    api.post(f"/campaigns/{campaign}/send").expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["phase"] == "completed")
    html = api.get(f"/capture/{api.get('/capture').expect(200)[0]['id']}").expect(200)["html"]
    assert abs(found - len(html.encode())) < 200
