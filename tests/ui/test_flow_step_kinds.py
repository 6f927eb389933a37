"""The forms of the flow steps that depend on the contact: what a marketer chooses becomes the step."""

import pytest

from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser


@pytest.fixture
def flow(api: Client) -> int:
    """Return a draft that orders start."""
    flow_id: int = api.post("/flows", {"name": "Kinds", "trigger": {"event": "order_paid"}}).expect(201)["id"]
    return flow_id


def add_step(user: ScriptlessBrowser, flow: int, label: str, at: str = "start") -> HtmlPage:
    """Add a step of a kind and return the page with its form."""
    return HtmlPage(user, f"/flows/{flow}?at={at}").press(label)


def test_waiting_until_a_time_then_a_date_then_an_event(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """Another choice shows its fields first; saving them stores the step, and the tree names its branches."""
    page = add_step(user, flow, "Wait until")
    assert "Wait until 09:00" in page.text
    page.fill("Time of day", "07:30")
    page.check("Mon")
    page = page.press("Save")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert (step["until"], step["at"], step["weekdays"]) == ("time", "07:30", ["mon"])
    assert "Wait until 07:30 on Mon" in page.text

    page.fill("Wait until", "a date of the contact")
    page = page.press("Save")
    page.fill("Custom field with the date", "renewal")
    page.fill("Days", "3")
    page.fill("Before or after", "Before")
    page = page.press("Save")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert (step["until"], step["path"], step["offset_days"], step["at"]) == ("date", "data.renewal", -3, "07:30")
    assert "Wait until 3 days before the date in “renewal”, 07:30" in page.text and "No date, or past" in page.text

    page.fill("Wait until", "something happens")
    page = page.press("Save")
    page = page.press("Save")
    assert "This field is required." in page.text
    page.fill("Event", "Started checkout")
    page = page.press("Save")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert (step["until"], step["event_name"], step["timeout"]) == ("event", "checkout", 259_200)
    assert "at most 3 days" in page.text and "Not in time" in page.text

    api.patch(f"/flows/{flow}", {"steps": [{**step, "no": [{"type": "exit"}]}]}).expect(200)
    page = page.reload()
    page.fill("Wait until", "a time of day")
    page = page.press("Save").press("Save")
    assert "Remove the steps in the branches first" in page.text


def test_adding_a_tag(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """The form asks for the tag, and the tree names it."""
    page = add_step(user, flow, "Add tag").press("Add step")
    assert "This field is required." in page.text
    page.fill("Tag", "vip")
    page = page.press("Add step")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert step["tag"] == "vip" and "Add the tag “vip”" in page.text


def test_the_simulation_of_a_wait_names_the_time_zone_and_offers_the_event(
    user: ScriptlessBrowser, api: Client, flow: int
) -> None:
    """The page says whose zone it is and where it comes from; “What if” lets the event happen within the limit."""
    steps = [
        {"type": "wait_until", "until": "time"},
        {"type": "wait_until", "until": "event", "event_name": "checkout", "timeout": 172_800},
    ]
    api.patch(f"/flows/{flow}", {"steps": steps}).expect(200)
    page = HtmlPage(user, f"/flows/{flow}/try?data=time_zone:+Asia/Tokyo")
    assert "from the contact’s custom field" in page.text and "Not in time" in page.text
    page = page.follow("What if: started checkout")
    assert "Assumed: started checkout" in page.text and "at most 2 days: Happened" in page.text
    assert "Wait until 09:00" in HtmlPage(user, f"/flows/{flow}/crowd").text


def test_splitting_by_a_value(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """A field that is not in the list is named, rows become branches, and an emptied row removes its branch."""
    page = add_step(user, flow, "Split by value").press("Add step")
    assert "This field is required." in page.text
    page.fill("Field", "Another custom field…")
    page = page.press("Add step")
    page.fill("Name of the field", "plan")
    page.fill("Values of branch 1", 'Gold, "Silver, new"')
    page.fill("Values of branch 2", "Trial")
    page = page.press("Add step")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert step["field"] == "data.plan"
    assert [branch["values"] for branch in step["branches"]] == [["Gold", "Silver, new"], ["Trial"]]
    assert "Split by Plan" in page.text and "Everyone else" in page.text

    api.patch(f"/flows/{flow}", {"steps": [{**step, "else": [{"type": "exit"}]}]}).expect(200)
    page = page.reload()
    page.fill("Values of branch 1", "")
    page.fill("Values of branch 3", "trial")
    page = page.press("Save")
    assert "already in use" in page.text
    page.fill("Values of branch 2", "Basic")
    page = page.press("Save")
    (after,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert [branch["values"] for branch in after["branches"]] == [["Trial"], ["Basic"]]
    assert after["branches"][0]["key"] == step["branches"][1]["key"] and after["else"][0]["type"] == "exit"
    page = HtmlPage(user, f"/flows/{flow}?at={after['branches'][1]['key']}-{after['id']}").press("Exit")
    assert api.get(f"/flows/{flow}").expect(200)["steps"][0]["branches"][1]["steps"][0]["type"] == "exit"
    assert "First step of “Everyone else”" in page.html
    page = HtmlPage(user, f"/flows/{flow}?step={after['id']}")
    page.fill("Values of branch 2", "")
    assert "Remove the steps in this branch" in page.press("Save").text
    assert "Trial" in HtmlPage(user, f"/flows/{flow}/crowd").text


def test_splitting_at_random(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """Two halves come first; the form names branches, adds one, and wants shares that add up to 100."""
    page = add_step(user, flow, "Random split")
    assert "Split at random: A 50%, B 50%" in page.text
    page.fill("Name of branch 1", "Short series")
    page.fill("Share of branch 3 in percent", "20%")
    page = page.press("Save")
    assert "100" in page.text and "120" in page.text
    page.fill("Share of branch 2 in percent", "30")
    page = page.press("Save")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert [(branch["name"], branch["share"]) for branch in step["branches"]] == [
        ("Short series", 50), ("", 30), ("", 20)
    ]  # fmt: skip
    assert "Short series (50%)" in page.text and "C (20%)" in page.text
    page.fill("Share of branch 2 in percent", "")
    page.fill("Share of branch 1 in percent", "80")
    page = page.press("Save")
    (after,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert [branch["key"] for branch in after["branches"]] == [step["branches"][0]["key"], step["branches"][2]["key"]]


def test_going_to_another_step(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """The step is chosen by its name; a loop without a wait is refused, and a removed step is a blocker."""
    steps = [{"duration": 3600}, {"event_name": "reminded"}]
    wait, emit = api.patch(f"/flows/{flow}", {"steps": steps}).expect(200)["steps"]
    page = add_step(user, flow, "Go to another step", f"after-{emit['id']}")
    assert "This field is required." in page.press("Add step").text
    page.fill("Step", str(emit["id"]))
    page = page.press("Add step")
    assert "loop without a wait" in page.text
    page.fill("Step", "Wait 1 hour")
    page.fill("Maximum jumps per contact", "3")
    page = page.press("Add step")
    step = api.get(f"/flows/{flow}").expect(200)["steps"][2]
    assert (step["step_id"], step["max_jumps"]) == (wait["id"], 3) and "Go to “Wait 1 hour”" in page.text
    HtmlPage(user, f"/flows/{flow}?step={wait['id']}").press("Remove")
    assert "must be the id of another step" in HtmlPage(user, f"/flows/{flow}").text


def test_notifying_a_colleague(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """The form offers the members of the team, and the tree says whom."""
    page = add_step(user, flow, "Notify a colleague").press("Add step")
    assert "This field is required." in page.text
    page.fill("Colleague", "1")
    page.fill("Note", "Call them today.")
    page = page.press("Add step")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert (step["user_id"], step["note"]) == (1, "Call them today.") and "Notify owner" in page.text


def test_limiting_the_entries_of_an_hour(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """The trigger's form has the limit; the page says how many contacts wait to enter."""
    page = HtmlPage(user, f"/flows/{flow}?step=start")
    page.fill("Maximum entries per hour", "0")
    assert "greater than or equal to 1" in page.press("Save").text
    page.fill("Maximum entries per hour", "1")
    page = page.press("Save")
    assert api.get(f"/flows/{flow}").expect(200)["trigger"]["data"]["max_per_hour"] == 1
    api.patch(f"/flows/{flow}", {"steps": [{"duration": 3600}]}).expect(200)
    api.post(f"/flows/{flow}/activate").expect(200)
    contacts = [api.post("/contacts", {"email": f"cap{index}@example.org"}).expect(201)["id"] for index in range(2)]
    api.post(f"/flows/{flow}/enroll", {"contact_ids": contacts}).expect(200)
    assert "1 contact waits to enter" in HtmlPage(user, f"/flows/{flow}?step=start").text


def test_making_an_http_request(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """The form takes JSON, headers and secrets; stored secrets are not shown, and stay when the form is saved."""
    page = add_step(user, flow, "HTTP request").press("Add step")
    assert "This field is required." in page.text
    page.fill("URL", "https://shop.example/hook")
    page.fill("JSON body", '{"email": "{{ email }}"')
    page = page.press("Add step")
    assert "This is not valid JSON: see line 1, column 24." in page.text
    page.fill("JSON body", '{"email": "{{ email }}"}')
    page.fill("Headers", "X-Shop: one")
    page.fill("Secret headers", "Authorization: Bearer hush-hush-2")
    page.check("Sign requests")
    page = page.press("Add step")
    assert "This field is required." in page.text
    page.fill("Signing secret", "whsec_c2VjcmV0IHNlY3JldA==")
    page.fill("Store in custom fields", "score: result.score")
    page = page.press("Add step")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert (step["payload"], step["headers"]) == ({"email": "{{ email }}"}, {"X-Shop": "one"})
    assert (step["secret_headers"], step["signed"]) == ({"Authorization": None}, True)
    assert (step["save_to_contact"], step["timeout"], step["method"]) == ({"score": "result.score"}, 3600, "POST")
    page = HtmlPage(user, f"/flows/{flow}?step={step['id']}")
    assert "POST request to shop.example" in page.text and "Succeeded" in page.text and "Failed" in page.text
    assert "hush-hush-2" not in page.html and "whsec_" not in page.html
    page.fill("Method", "PUT")
    page.press("Save")
    (saved,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert saved == {**step, "method": "PUT"}


def test_simulating_an_http_request(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """The simulation plays a success, the values that are entered, or a failure."""
    step = {"type": "http_request", "url": "https://shop.example/hook", "save_to_run": {"score": "score"},
            "yes": [{"event_name": "asked"}], "no": [{"event_name": "unreached"}]}  # fmt: skip
    api.patch(f"/flows/{flow}", {"steps": [step]}).expect(200)
    page = HtmlPage(user, f"/flows/{flow}/try")
    assert "POST request to shop.example: Succeeded" in page.text
    page.fill("Values of the response", "score: 7")
    page = page.press("Run simulation")
    assert "Succeeded" in page.text
    page = page.follow("What if: the request fails")
    assert "POST request to shop.example: Failed" in page.text and "Record the event “Unreached”" in page.text


def test_notifying_in_slack(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """Another way of notification first shows its fields; the URL is not shown again, and stays."""
    page = add_step(user, flow, "Notify a colleague")
    page.fill("Notify by", "Slack message")
    page = page.press("Add step")
    page.fill("Webhook URL", "https://hooks.slack.com/services/T0/B0/hush")
    page.fill("Note", "Call them today.")
    page = page.press("Add step")
    assert "Notify hooks.slack.com" in page.text and "services/T0" not in page.html
    page.fill("Note", "Write to them.")
    page = page.press("Save")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert (step["via"], step["note"]) == ("slack", "Write to them.") and "Notify hooks.slack.com" in page.text


def test_testing_the_branches_of_a_random_split(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """The form asks what decides; the page of a live flow shows the test, and a person chooses the winner."""
    page = add_step(user, flow, "Random split")
    page.fill("Find the winner by", "Conversions (an event)")
    page = page.press("Save")
    page.fill("Event", "Placed an order (paid)")
    page.fill("Who chooses the winner", "I choose")
    page.check("Send more contacts to better branches during the test")
    page = page.press("Save")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert (step["metric"], step["event_name"], step["decided_by"]) == ("event", "order_paid", "person")
    assert step["uneven"] is True and "To show a difference of 20%, each branch needs about" in page.text
    api.post(f"/flows/{flow}/activate").expect(200)
    page = HtmlPage(user, f"/flows/{flow}?step={step['id']}")
    assert "The test starts with the first contact." in page.text and "Choose the winner when it is clear." in page.text
    page = page.press("Choose B")
    assert "B was chosen by" in page.text and "All new contacts take it." in page.text
    page = page.press("Go on with the test")
    assert "Choose the winner when it is clear." in page.text


def test_the_size_of_a_test_is_shown_before_it_is_saved(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """Choosing what counts shows how many contacts each branch needs, and whether the time is known."""
    page = add_step(user, flow, "Random split")
    assert "each branch needs about" not in page.text
    page.fill("Find the winner by", "Clicks")
    page = page.press("Save")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert "metric" not in step
    assert "To show a difference of 20%, each branch needs about" in page.text
    assert "No contact entered this flow in the last 30 days, so it is unknown how long that takes." in page.text
    page.fill("Find the winner by", "Conversions (an event)")
    page = page.press("Save")
    assert "each branch needs about" not in page.text  # until the event is known
    page.fill("Find the winner by", "Clicks")
    page = page.press("Save").press("Save")
    (step,) = api.get(f"/flows/{flow}").expect(200)["steps"]
    assert step["metric"] == "clicks"
    api.post(f"/flows/{flow}/activate").expect(200)
    for number in range(3):
        contact_id = api.post("/contacts", {"email": f"size{number}@example.org"}).expect(201)["id"]
        api.post("/events", {"event": "order_paid", "contact_id": contact_id}).expect(201)
    report = api.wait(f"/flows/{flow}/report", lambda report: report["stats"]["entered"] == 3, 30)
    sample = report["steps"][0]["sample_size"]
    assert sample["per_day"] == 3 and sample["days"] > 365
    page = page.reload()
    assert "At the pace of the last 30 days, that takes more than a year. Make the branches differ" in page.text


def test_a_holdout_group(user: ScriptlessBrowser, api: Client, flow: int) -> None:
    """The trigger's form has the share and the conversion; the page of a live flow shows what the flow changes."""
    page = HtmlPage(user, f"/flows/{flow}?step=start")
    page.fill("Holdout group, in percent", "10")
    page = page.press("Save")
    page.fill("Conversion", "Started checkout")
    page.check("Not for the control group")
    page = page.press("Save")
    data = api.get(f"/flows/{flow}").expect(200)["trigger"]["data"]
    assert data == {"holdout": 0.1, "holdout_event": "checkout", "respect_control_group": True}
    page.fill("Holdout group, in percent", "80")
    assert "Enter a percentage from 1 to 50." in page.press("Save").text
    api.patch(f"/flows/{flow}", {"steps": [{"duration": 60}], "status": "active"}).expect(200)
    page = HtmlPage(user, f"/flows/{flow}?step=start")
    assert "Too early to tell." in page.text and "Got nothing (holdout group)" in page.text


def test_choosing_the_branch_of_a_random_split_in_a_simulation(user: ScriptlessBrowser, api: Client) -> None:
    """The page offers each branch; the chosen one is marked and taken, and is kept when the form is sent."""
    split = {"type": "random_split", "branches": [
        {"name": "Short", "share": 50, "steps": [{"type": "exit"}]}, {"name": "Long", "share": 50, "steps": []},
    ]}  # fmt: skip
    body = {"name": "Drawn", "trigger": {"event": "order_paid"}, "steps": [split, {"duration": 60}]}
    flow = api.post("/flows", body).expect(201)["id"]
    for name in ("Short", "Long"):
        page = HtmlPage(user, f"/flows/{flow}/try").follow(f"What if: {name} (50%)")
        assert f"Chosen: {name} (50%)" in page.text and f"Long 50%: {name} (50%)" in page.text
        assert f"Chosen: {name} (50%)" in page.press("Run simulation").text
