"""Steps of flows in requests and responses (docs/decisions.md#12)."""

from typing import Any

import pytest

from tests.kit.client import Client

NINE = {
    "subject": "", "body": "", "preheader": "", "duration": 0, "filters": [], "yes": [], "no": [], "event_name": "",
    "forward_event_data": False,
}  # fmt: skip
PAID = [{"name": "event.total", "predicate": "gt", "value": 3}]
DESIGN = {"sections": [{"props": {"content": "<p>Hello</p>"}, "styles": {}}], "theme": {}}


def create_steps(api: Client, *steps: Any) -> list[dict[str, Any]]:
    """Create a flow and return its steps."""
    return api.post("/flows", {"steps": list(steps)}).expect(201)["steps"]


def step_errors(api: Client, *steps: Any) -> dict[str, list[str]]:
    """Return the validation errors of a flow with some steps."""
    return api.post("/flows", {"steps": list(steps)}).expect(422)["validation_errors"]


@pytest.fixture(scope="module")
def lists(api: Client) -> dict[str, int]:
    """Return a list with its own members, and a mirror of a segment."""
    own = api.post("/lists", {"name": "Own"}).expect(201)["id"]
    segment = api.post("/segments", {"name": "All"}).expect(201)["id"]
    view = api.post("/lists", {"name": "View", "segment_id": segment}).expect(201)["id"]
    return {"own": own, "view": view}


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ({"subject": "Hi"}, "email"),
        ({"design": DESIGN, "body": "x"}, "email"),
        ({"from_name": "Ann", "transactional": True}, "email"),
        ({"body": "Hi", "transactional": True}, "sms"),
        ({"duration": 60}, "wait"),
        ({"duration": 0}, "wait"),
        ({"duration": 0, "subject": "", "yes": [], "filters": None, "transactional": False}, "wait"),
        ({"filters": PAID, "yes": [], "no": None}, "split"),
        ({"event_name": "vip"}, "emit_event"),
        ({"event_name": "vip", "event_data": {"a": 1}, "forward_event_data": True, "duration": 0}, "emit_event"),
        ({"type": "exit"}, "exit"),
        ({"type": "contact_update", "data_merge": {"a": None}}, "contact_update"),
        ({"type": "email"}, "email"),
        ({"type": "sms"}, "sms"),
    ],
)
def test_step_types_are_inferred(api: Client, step: dict[str, Any], kind: str) -> None:
    """Without `type` the keys determine the type; the response has all nine keys, id and type."""
    (shown,) = create_steps(api, step)
    assert shown["type"] == kind and shown["id"] == 1
    assert set(NINE) <= set(shown) and "template_id" in shown
    set_keys = {key: value for key, value in step.items() if value not in (None, "", [], {}, 0, False)}
    for key, value in set_keys.items():
        assert shown[key] == value or key == "design"
    assert {key: shown[key] for key in NINE if key not in set_keys} == {
        key: value for key, value in NINE.items() if key not in set_keys
    }


def test_steps_round_trip(api: Client, lists: dict[str, int]) -> None:
    """The response is a valid request, changes nothing when sent back, and creates an equal flow."""
    steps = [
        {"subject": "Hi {{ contact.first_name }}", "preheader": "p", "from_name": "Ann", "from_email": "a@example.org",
         "reply_to": "r@example.org", "design": DESIGN, "body": "text", "transactional": True},
        {"duration": 3600},
        {"filters": PAID, "yes": [
            {"event_name": "vip", "event_data": {"n": 1}, "forward_event_data": True},
            {"filters": PAID, "no": [{"type": "exit"}]},
        ], "no": [{"body": "Hi"}, {"type": "contact_update", "data_merge": {"tags": None, "seen": True}}]},
        {"type": "list_add", "contact_list_id": lists["own"]},
        {"type": "list_remove", "contact_list_id": lists["own"]}, {"type": "unsubscribe", "channel": "sms"},
    ]  # fmt: skip
    flow = api.post("/flows", {"name": "Whole", "trigger": {"event": "order_paid"}, "steps": steps}).expect(201)
    assert [template["action_id"] for template in flow["templates"]] == [1, 7]
    sent = api.patch(f"/flows/{flow['id']}", flow)
    after = sent.expect(200)
    assert {**{name: after[name] for name in flow}, "updated_at": None} == {**flow, "updated_at": None}
    assert {"stats", "templates", "version"} <= set(sent.headers["X-Ignored-Fields"].split(", "))

    copy = api.post("/flows", {"name": "Copy", "trigger": flow["trigger"], "steps": flow["steps"]}).expect(201)

    def bare(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**step, "template_id": None, "yes": bare(step["yes"]), "no": bare(step["no"])} for step in steps]

    assert bare(copy["steps"]) == bare(flow["steps"])
    assert {template["id"] for template in copy["templates"]}.isdisjoint(
        template["id"] for template in flow["templates"]
    )


def test_step_ids_are_stable_and_unique(api: Client) -> None:
    """A step keeps its id wherever it moves; new steps get ids that were never used."""
    flow = api.post("/flows", {"steps": [{"subject": "One"}, {"duration": 5}, {"subject": "Two"}]}).expect(201)
    first, wait, two = flow["steps"]
    path = f"/flows/{flow['id']}"
    split = {"filters": PAID, "yes": [first], "no": [two]}
    moved = api.patch(path, {"steps": [split]}).expect(200)
    (shown,) = moved["steps"]
    assert shown["id"] == 4 and [shown[branch][0]["id"] for branch in ("yes", "no")] == [first["id"], two["id"]]
    assert [row["id"] for row in moved["templates"]] == [row["id"] for row in flow["templates"]]
    # A deleted step that is sent again gets a new id
    back = api.patch(path, {"steps": [wait, {**first, "id": 77}]}).expect(200)
    assert [step["id"] for step in back["steps"]] == [5, 6]
    assert [row["action_id"] for row in back["templates"]] == [6]
    assert [row["action_id"] for row in api.get("/templates", search="Two").expect(200)] == []


def test_absent_step_fields_stay(api: Client) -> None:
    """An absent field stays and null clears it, so steps can be moved without their content."""
    steps = [{"subject": "One", "preheader": "p", "design": DESIGN, "transactional": True}, {"duration": 5}]
    flow = api.post("/flows", {"steps": steps}).expect(201)
    path = f"/flows/{flow['id']}"
    first, second = flow["steps"]
    moved = api.patch(path, {"steps": [{"id": second["id"], "duration": 9}, {"id": first["id"]}]}).expect(200)
    assert moved["steps"][1] == first and moved["steps"][0]["duration"] == 9
    cleared = api.patch(path, {"steps": [{"id": first["id"], "preheader": None, "design": {}}]}).expect(200)
    assert cleared["steps"] == [{key: value for key, value in {**first, "preheader": ""}.items() if key != "design"}]
    assert cleared["templates"][0]["subject"] == "One" and cleared["templates"][0]["preheader"] is None


def test_a_template_is_copied_into_a_step(api: Client) -> None:
    """`template_id` copies the content of a template, overridden by the step's own keys; later changes are separate."""
    base = api.post("/templates", {"name": "Base", "subject": "Base", "body": "<p>Base</p>"}).expect(201)
    (step,) = create_steps(api, {"template_id": base["id"], "subject": "Own"})
    assert (step["type"], step["subject"], step["body"]) == ("email", "Own", "<p>Base</p>")
    assert step["template_id"] != base["id"]
    api.patch(f"/templates/{base['id']}", {"body": "<p>New</p>"}).expect(200)
    assert api.get(f"/templates/{step['template_id']}").expect(200)["body"] == "<p>Base</p>"
    assert step_errors(api, {"template_id": 987654321}) == {"steps[0].template_id": ["must exist"]}


def test_the_channel_of_an_unsubscribe_step(api: Client) -> None:
    """It is email unless it is given, stays if it is absent in a change, and another channel is an error."""
    steps = [{"type": "unsubscribe"}, {"type": "unsubscribe", "channel": "sms"}]
    flow = api.post("/flows", {"steps": steps}).expect(201)
    assert [step["channel"] for step in flow["steps"]] == ["email", "sms"]
    kept = api.patch(f"/flows/{flow['id']}", {"steps": [{"id": step["id"]} for step in flow["steps"]]}).expect(200)
    assert kept["steps"] == flow["steps"]
    assert step_errors(api, {"type": "unsubscribe", "channel": "post"}, {"type": "unsubscribe", "channel": [1]}) == {
        f"steps[{index}].channel": ["is not included in the list"] for index in range(2)
    }
    shown = next(kind for kind in api.get("/flows/spec").expect(200)["steps"] if kind["type"] == "unsubscribe")
    assert [field["type"] for field in shown["fields"]] == ["channel"]


def test_errors_of_step_types(api: Client) -> None:
    """A step of unknown or contradictory type is an error at the step."""
    assert step_errors(
        api, {}, "x", {"subject": "s", "duration": 5}, {"type": "wait", "subject": "s"}, {"type": "nothing"},
        {"id": "1", "type": "exit"}, {"type": 7, "filters": "x"}, {"contact_list_id": 1},
        {"duration": 1, "x\ud800": None},
        {"event_data": {"a": 1}}, {"transactional": True, "duration": 1}, {"type": "exit", "yes": [{}]},
    ) == {
        "steps[0]": ["can't be blank"],
        "steps[1]": ["is invalid"],
        "steps[2]": ["is a step of type email, which has no duration"],
        "steps[3]": ["is a step of type wait, which has no subject"],
        "steps[4].type": ["is not included in the list"],
        "steps[5].id": ["is invalid"],
        "steps[6].type": ["is not included in the list"],
        "steps[7]": ["can't be blank"],
        "steps[8].x?": ["is not a known field"],
        "steps[9].event_name": ["can't be blank"],
        "steps[10]": ["is a step of type wait, which has no transactional"],
        "steps[11]": ["is a step of type exit, which has no yes"],
        "steps[11].yes[0]": ["can't be blank"],
    }  # fmt: skip


def test_errors_of_step_values(api: Client, lists: dict[str, int]) -> None:
    """All invalid values are reported at once, each at its path."""
    assert step_errors(
        api, {"duration": "soon"}, {"duration": 31_622_401}, {"duration": -1},
        {"subject": "a\u0000", "from_email": "nobody"},
        {"type": "list_add", "contact_list_id": lists["view"]}, {"type": "list_remove", "contact_list_id": 987654321},
        {"type": "list_remove"}, {"type": "contact_update"}, {"type": "contact_update", "data_merge": [1]},
        {"event_name": "No Name", "event_data": [1], "forward_event_data": "yes"},
        {"body": "x" * 1601, "transactional": "yes"},
    ) == {
        "steps[0].duration": ["is not a number"],
        "steps[1].duration": ["must be less than or equal to 31622400"],
        "steps[2].duration": ["must be greater than or equal to 0"],
        "steps[3].subject": ["is invalid"],
        "steps[3].from_email": ["is invalid"],
        "steps[4].contact_list_id": ["is a view of a segment"],
        "steps[5].contact_list_id": ["must exist"],
        "steps[6].contact_list_id": ["can't be blank"],
        "steps[7].data_merge": ["can't be blank"],
        "steps[8].data_merge": ["is invalid"],
        "steps[9].event_name": ["is invalid"],
        "steps[9].event_data": ["is invalid"],
        "steps[9].forward_event_data": ["is invalid"],
        "steps[10].body": ["is too long (maximum is 1600 characters)"],
        "steps[10].transactional": ["is invalid"],
    }  # fmt: skip


def test_errors_in_nested_branches(api: Client) -> None:
    """An error in a nested branch has the full path."""
    inner = {
        "filters": [{"name": "nothing", "predicate": "eq"}],
        "no": [{"event_name": "contact_add"}, {"yes": [None]}],
    }
    result = step_errors(
        api, {"filters": PAID, "yes": [{"subject": "{{ contact.first_name"}, inner], "no": {"subject": "x"}}
    )
    assert result.pop("steps[0].yes[0].subject")[0].endswith("(line 1, column 1)")
    assert result == {
        "steps[0].yes[1].filters[0].name": ["is not included in the list"],
        "steps[0].yes[1].no[0].event_name": ["is reserved"],
        "steps[0].yes[1].no[1].filters": ["can't be blank"],
        "steps[0].yes[1].no[1].yes[0]": ["is invalid"],
        "steps[0].no": ["is invalid"],
    }


def test_a_step_cannot_change_its_type(api: Client) -> None:
    """The type of a step with an id is fixed, and no two steps have the same id."""
    flow = api.post("/flows", {"steps": [{"subject": "One"}, {"duration": 5}]}).expect(201)
    wrong = [{"id": 1, "duration": 5}, {"id": 2, "type": "exit"}, {"id": 1, "subject": "x"}, {"id": 2}]
    assert api.patch(f"/flows/{flow['id']}", {"steps": wrong}).expect(422)["validation_errors"] == {
        "steps[0]": ["cannot change from email to wait: leave out its id"],
        "steps[1]": ["cannot change from wait to exit: leave out its id"],
        "steps[2].id": ["has already been taken"],
        "steps[3].id": ["has already been taken"],
        "steps[3].duration": ["can't be blank"],
    }


def nested_split(depth: int) -> dict[str, Any]:
    """Return a step with nested branches of this depth."""
    step: dict[str, Any] = {"type": "exit"}
    for _ in range(depth - 1):
        step = {"filters": PAID, "no": [step]}
    return step


def test_limits_of_steps(api: Client) -> None:
    """A flow has at most 200 steps and ten levels."""
    create_steps(api, *({"duration": 1} for _ in range(199)), {"type": "exit"})
    assert step_errors(api, *({"duration": 1} for _ in range(201))) == {"steps": ["is too long (maximum is 200 steps)"]}
    many = [{"filters": PAID, "yes": [{"duration": 1}] * 100, "no": [{"duration": 1}] * 100}]
    assert step_errors(api, *many) == {"steps": ["is too long (maximum is 200 steps)"]}
    create_steps(api, nested_split(10))
    assert step_errors(api, nested_split(11)) == {"steps": ["is nested too deeply (maximum is 10 levels)"]}
    assert api.post("/flows", {"steps": None}).expect(201)["steps"] == []
    assert step_errors(api, {"event_name": "a", "event_data": {"a": "x" * 33_000}}) == {
        "steps[0].event_data": ["is too long (maximum is 32768 bytes)"]
    }


def test_null_steps_match_the_document(api: Client) -> None:
    """The document allows null for absent fields, and whatever the API returns."""
    body = {"steps": [dict.fromkeys(NINE) | {"id": None, "type": None, "subject": "Hi"}], "trigger": {"event": None}}
    flow = api.post("/flows", body).expect(201)
    assert api.contract().matches("FlowCreate", body)
    assert api.contract().matches("FlowPatch", {"steps": flow["steps"], "trigger": flow["trigger"]})
    assert not api.contract().matches("FlowCreate", {"steps": [{"subject": 1}]})


@pytest.mark.parametrize("steps", [{}, "", "x", 0, False, {"0": {"subject": "a"}}])
def test_invalid_steps_are_rejected(api: Client, steps: object) -> None:
    """Any other value than a list or null is rejected when creating, editing and simulating a flow."""
    flow = api.post("/flows", {"steps": [{"duration": 60}]}).expect(201)
    for ask in (
        lambda: api.post("/flows", {"steps": steps}),
        lambda: api.patch(f"/flows/{flow['id']}", {"steps": steps}),
        lambda: api.post(f"/flows/{flow['id']}/simulate", {"contact": {"email": "a@example.org"}, "steps": steps}),
    ):
        assert ask().expect(422)["validation_errors"] == {"steps": ["is invalid"]}
    assert len(api.get(f"/flows/{flow['id']}").expect(200)["steps"]) == 1
    assert api.patch(f"/flows/{flow['id']}", {"steps": None}).expect(200)["steps"] == []
