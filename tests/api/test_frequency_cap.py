"""The frequency cap over the API: set, validated, and applied to campaigns that run at the same time."""

from tests.conftest import FreshServer
from tests.journeys.test_sending import completed, create_list, send
from tests.kit.smtp import SmtpServer


def test_the_cap_holds_for_parallel_campaigns(fresh_server: FreshServer, smtp_server: SmtpServer) -> None:
    """Each contact gets one of two campaigns, the other message is skipped with a reason.

    Without the cap all get one.
    """
    smtp_server.rules.delay("body", 0.02)
    server = fresh_server(relay=smtp_server.port)
    api = server.client()
    shown = api.patch("/account", {"frequency_cap": {"messages": 1, "days": 7}}).expect(200)
    group = create_list(api, 20)
    campaigns = [send(api, group) for _ in range(2)]
    done = [completed(api, campaign)["stats"] for campaign in campaigns]

    assert shown["frequency_cap"] == {"messages": 1, "days": 7}
    assert sorted(message.to for message in smtp_server.messages) == sorted(f"p{n}@people.example" for n in range(20))
    assert (sum(stats["sent"] for stats in done), sum(stats["skipped"] for stats in done)) == (20, 20)
    reasons = {row["skip_reason"] for campaign in campaigns for row in api.all("/messages", campaign_id=campaign["id"])}
    assert reasons == {None, "frequency_cap"}
    assert api.patch("/account", {"frequency_cap": None}).expect(200)["frequency_cap"] is None
    assert completed(api, send(api, group))["stats"]["sent"] == 20
    # Both numbers are required and positive
    for body, path in (
        ({"messages": 0, "days": 1}, "frequency_cap.messages"), ({"messages": 1}, "frequency_cap.days"),
        ({"messages": 1, "days": 1.5}, "frequency_cap.days"), ("often", "frequency_cap"),
    ):  # fmt: skip
        assert list(api.patch("/account", {"frequency_cap": body}).expect(422)["validation_errors"]) == [path]
