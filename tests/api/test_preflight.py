"""Preflight of a campaign: blockers, advice, and the rendering of the message for every recipient."""

from typing import Any

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.clock import TestClock

BODY = "<p>Hi {{ contact.first_name }}, {{ contact.data.city | default: 'friend' }}: {{ contact.data.sum | money }}</p>"


def create_draft(api: Client, list_id: int, **template: Any) -> int:
    """Create a draft to a list and return its id."""
    content = {"subject": "Spring", "body": BODY, **template}
    body = {
        "name": "Spring", "trigger_attributes": {"contact_list_id": list_id}, "template_attributes": content,
    }  # fmt: skip
    return int(api.post("/campaigns", body).expect(201)["id"])


def list_with_contacts(api: Client, **more: dict[str, Any]) -> tuple[int, dict[str, int]]:
    """Create a list with contacts by first name; return its id and theirs."""
    list_id = api.post("/lists", {"name": f"News {len(more)} {sorted(more)}"}).expect(201)["id"]
    contact = {
        name: api.post("/contacts", {"email": f"{name}@example.org", "list_ids": [list_id], **fields}).json["id"]
        for name, fields in more.items()
    }
    return list_id, contact


def wait_for_rehearsal(api: Client, campaign: int) -> Any:
    """Return the preflight of a campaign once the rendering for all recipients has ended."""
    path = f"/campaigns/{campaign}/preflight"
    return api.wait(path, lambda row: row["facts"]["rehearsal"]["status"] in ("complete", "failed"), 30)


def warning_codes(preflight: Any) -> set[str]:
    """Return the codes of the warnings."""
    return {warning["code"] for warning in preflight["warnings"]}


def test_the_message_is_rendered_for_all_recipients(api: Client) -> None:
    """Contacts without a value and contacts whose message fails to render are reported."""
    group, ids = list_with_contacts(
        api, ann={"first_name": "Ann", "data": {"sum": 3}}, bo={"data": {"sum": 4, "city": "Rome"}},
        cy={"first_name": "Cy", "data": {"sum": "much"}},
    )  # fmt: skip
    result = wait_for_rehearsal(api, create_draft(api, group))
    done = result["facts"]["rehearsal"]

    assert result["ok"] and done["status"] == "complete"
    assert (done["total"], done["done"], done["failed"]) == (3, 3, 1)
    assert done["failures"] == [{"contact_id": ids["cy"], "error": done["failures"][0]["error"]}]
    assert "money" in done["failures"][0]["error"]
    lacking = {entry["name"]: (entry["count"], entry["contact_ids"]) for entry in done["lacking"]}
    assert lacking["contact.first_name"] == (1, [ids["bo"]])
    assert "contact.data.city" not in lacking
    assert {"missing_value", "render_error"} <= warning_codes(result)
    assert done["html_bytes"] > result["facts"]["html_bytes"] - 200


def test_a_change_starts_a_new_rehearsal(api: Client) -> None:
    """A changed draft is rendered again, and old results are dropped."""
    group, _ = list_with_contacts(api, di={"first_name": "Di", "data": {"sum": "none"}})
    campaign = create_draft(api, group)
    assert wait_for_rehearsal(api, campaign)["facts"]["rehearsal"]["failed"] == 1
    api.patch(f"/campaigns/{campaign}", {"template_attributes": {"body": "<p>Plain</p>"}}).expect(200)
    result = wait_for_rehearsal(api, campaign)

    assert result["facts"]["rehearsal"]["failed"] == 0
    assert not {"missing_value", "render_error"} & warning_codes(result)


def test_advice_of_preflight(api: Client) -> None:
    """Plain HTTP links, missing preheader or test, a second send on a day and a repeated subject are warnings."""
    group, _ = list_with_contacts(api, ed={"first_name": "Ed"})
    body = '<p><a href="http://plain.example/x">x</a><a href="https://good.example">y</a> {{ data.nothing }}</p>'
    first = create_draft(api, group, body=body)
    result = wait_for_rehearsal(api, first)
    assert result["ok"]
    assert {"link_not_https", "preheader_missing", "not_tested", "postal_address"} <= warning_codes(result)
    assert not {"overlapping_campaign", "same_subject", "dormant", "too_long"} & warning_codes(result)
    api.post(f"/campaigns/{first}/send", {}).expect(200)
    second = wait_for_rehearsal(api, create_draft(api, group, preheader="p", body="<p>Other</p>"))

    assert {"overlapping_campaign", "same_subject"} <= warning_codes(second)
    assert not {"link_not_https", "preheader_missing"} & warning_codes(second)


def test_a_link_that_takes_too_long_is_a_warning(api: Client) -> None:
    """A link whose merge tags take longer than a click allows is named; loops of a few rounds are not."""
    group, _ = list_with_contacts(api, flo={"first_name": "Flo"})
    loop, condition = "{% for i in (1..COUNT) %}", "{% if i == 999 %}x{% endif %}"
    url = f"https://x.example/COUNT?a={loop * 2}{condition}{'{% endfor %}' * 2}"
    body = "".join(f'<a href="{url}">x</a>'.replace("COUNT", str(count)) for count in (2, 60))
    warnings = wait_for_rehearsal(api, create_draft(api, group, body=body))["warnings"]
    (slow,) = (warning for warning in warnings if warning["code"] == "link_slow")
    assert "https://x.example/60?" in slow["message"]


def test_a_dormant_audience_is_a_warning(fresh_server: FreshServer, clock: TestClock) -> None:
    """Contacts that got nothing for six months are a warning."""
    api = fresh_server(clock=clock).client()
    group, _ = list_with_contacts(api, flo={"first_name": "Flo"})
    campaign = create_draft(api, group, body="<p>Hi</p>")
    assert "dormant" not in warning_codes(wait_for_rehearsal(api, campaign))
    clock.advance(200 * 86_400)

    assert "dormant" in warning_codes(wait_for_rehearsal(api, campaign))


def test_findings_about_a_design(api: Client) -> None:
    """Advice about sections has their paths; a section of unknown type is a blocker."""
    group, _ = list_with_contacts(api, gil={"first_name": "Gil"})
    sections = [
        {"type": "image", "props": {"src": "https://pictures.example/a.png"}},
        {"type": "button", "props": {"text": "Go"}},
    ]
    campaign = create_draft(api, group, body=None, design={"sections": sections})
    result = wait_for_rehearsal(api, campaign)
    fields = {warning["code"]: warning["field"] for warning in result["warnings"]}

    assert result["ok"] and fields["alt_missing"] == "template_attributes.design.sections[0]"
    assert fields["link_missing"] == "template_attributes.design.sections[1]"
    sections.append({"type": "hologram", "props": {}})
    api.patch(f"/campaigns/{campaign}", {"template_attributes": {"design": {"sections": sections}}}).expect(200)
    blocked = api.get(f"/campaigns/{campaign}/preflight").expect(200)
    assert [blocker["field"] for blocker in blocked["blockers"]] == ["template_attributes.design.sections[2]"]


def test_data_tags_are_missing_in_campaigns(api: Client) -> None:
    """A `data` tag, which only single messages have, is missing for all recipients."""
    group, ids = list_with_contacts(api, hal={"first_name": "Hal"}, ida={"first_name": "Ida"})
    result = wait_for_rehearsal(api, create_draft(api, group, body="<p>{{ data.code }} {{ contact.first_name }}</p>"))

    assert [(entry["name"], entry["count"]) for entry in result["facts"]["rehearsal"]["lacking"] if entry["count"]] == [
        ("data.code", len(ids))
    ]
    assert "missing_value" in warning_codes(result)


def test_the_size_of_the_sent_html(api: Client) -> None:
    """The size includes tracked links and the footer; from 80 KB there is a warning about Gmail."""
    group, _ = list_with_contacts(api, size={"first_name": "Ed", "data": {"sum": 1}})
    campaign = create_draft(api, group, body=f"<p>{'word ' * 17_500}</p>")
    path = f"/campaigns/{campaign}/preflight"
    texts = [
        warning["message"] for warning in api.get(path).expect(200)["warnings"] if warning["code"] == "nearly_too_long"
    ]
    assert len(texts) == 1 and "Gmail clips emails over 102 KB" in texts[0]
    links = "".join(f'<p><a href="https://example.org/{at}">Go</a></p>' for at in range(300))
    api.patch(f"/campaigns/{campaign}", {"template_attributes": {"body": links}}).expect(200)
    result = api.get(path).expect(200)["facts"]["html_bytes"]
    api.post(f"/campaigns/{campaign}/send").expect(200)
    api.wait(f"/campaigns/{campaign}", lambda row: row["phase"] == "completed")
    html = api.get(f"/capture/{api.get('/capture').expect(200)[0]['id']}").expect(200)["html"]
    assert abs(result - len(html.encode())) < 200
