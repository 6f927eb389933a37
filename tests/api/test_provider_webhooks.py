"""Inbound webhooks of email providers: each report has its documented effect, once.

The providers are simulated with valid signatures; no request leaves this machine.
"""

import json
import sqlite3
from typing import Any

import pytest

from appliance.core import crypto
from appliance.sending.messages import links
from tests.api.hooks_world import COMPLAINED, NOTHING, World, world
from tests.kit.disk import unwritable
from tests.kit.sampling import every_nth

__all__ = ["world"]

GONE = "550 5.1.1 The email account that you tried to reach does not exist"
SPAM = "550 5.7.1 Message rejected as spam"
HARD = ("bounced", ["email_bounced"], "hard_bounce", True)
SOFT = ("bounced", ["email_soft_bounced"], None, True)
NOBODYS = ("bounced", ["email_failed"], None, True)
DELIVERED = ("delivered", ["email_delivered"], None, True)
LEFT = ("sent", ["opt_out"], None, False)

CASES: dict[str, tuple[Any, ...]] = {
    "own delivered": (lambda w, m: w.custom_relay(m, "delivered"), *DELIVERED),
    "own bounced": (lambda w, m: w.custom_relay(m, "bounced", diagnostic=GONE), *HARD),
    "own bounced without words": (lambda w, m: w.custom_relay(m, "bounced"), *HARD),
    "own bounced as spam": (lambda w, m: w.custom_relay(m, "bounced", diagnostic=SPAM), *NOBODYS),
    "own soft": (lambda w, m: w.custom_relay(m, "soft_bounced", diagnostic="452 4.2.2 mailbox full"), *SOFT),
    "own complained": (lambda w, m: w.custom_relay(m, "complained"), *COMPLAINED),
    "ses permanent": (
        lambda w, m: w.ses_bounce(m, "Permanent", "General", status="5.1.1", diagnosticCode=f"smtp; {GONE}"), *HARD),
    "ses passed on": (
        lambda w, m: w.ses("Bounce", m, mail={**w.mail(m), "destination": [m["to"].upper()]}, bounce={
            "bounceType": "Permanent", "bounceSubType": "General", "feedbackId": f"p-{m['id']}",
            "bouncedRecipients": [{"emailAddress": "elsewhere@example.net", "status": "5.1.1"}]}), *HARD),
    "ses suppressed": (lambda w, m: w.ses_bounce(m, "Permanent", "OnAccountSuppressionList", status="5.1.1"), *HARD),
    "ses permanent, bare": (lambda w, m: w.ses_bounce(m, "Permanent", "General"), *HARD),
    "ses full": (lambda w, m: w.ses_bounce(m, "Transient", "MailboxFull", status="4.2.2"), *SOFT),
    "ses too large": (lambda w, m: w.ses_bounce(m, "Transient", "MessageTooLarge", status="5.3.4"), *NOBODYS),
    "ses spam": (lambda w, m: w.ses_bounce(m, "Transient", "ContentRejected", diagnosticCode=SPAM), *NOBODYS),
    "ses holiday note": (lambda w, m: w.ses_bounce(m, "Transient", "General"), *NOTHING),
    "ses delivery": (
        lambda w, m: w.ses("Delivery", m, delivery={"recipients": [m["to"]], "smtpResponse": "250 ok"}), *DELIVERED),
    "ses complaint": (
        lambda w, m: w.ses("Complaint", m, complaint={
            "complainedRecipients": [{"emailAddress": m["to"]}], "feedbackId": "c", "complaintFeedbackType": "abuse"}),
        *COMPLAINED),
    "ses complaint by event": (
        lambda w, m: w.ses("Complaint", m, name="eventType", complaint={
            "complainedRecipients": [{"emailAddress": m["to"]}], "feedbackId": "c2", "complaintSubType": None}),
        *COMPLAINED),
    "ses not spam": (
        lambda w, m: w.ses("Complaint", m, complaint={
            "complainedRecipients": [{"emailAddress": m["to"]}], "complaintFeedbackType": "not-spam"}), *NOTHING),
    "ses delay": (lambda w, m: w.ses("DeliveryDelay", m, name="eventType", deliveryDelay={}), *NOTHING),
    "ses reject": (lambda w, m: w.ses("Reject", m, name="eventType", reject={"reason": "Bad content"}), *NOBODYS),
    "mailgun delivered": (lambda w, m: w.mailgun(m, "delivered", **{"delivery-status": {"code": 250}}), *DELIVERED),
    "mailgun permanent": (
        lambda w, m: w.mailgun(m, "failed", severity="permanent", reason="bounce", **{
            "delivery-status": {"code": 550, "message": GONE, "enhanced-code": "5.1.1"}}), *HARD),
    "mailgun spam": (
        lambda w, m: w.mailgun(m, "failed", severity="permanent", reason="generic", **{
            "delivery-status": {"code": 550, "message": SPAM}}), *NOBODYS),
    "mailgun too old": (
        lambda w, m: w.mailgun(m, "failed", severity="permanent", reason="old", **{
            "delivery-status": {"code": 602, "message": "Too old"}}), *SOFT),
    "mailgun bounced before": (
        lambda w, m: w.mailgun(m, "failed", severity="permanent", reason="suppress-bounce", **{
            "delivery-status": {"code": 605, "message": "Not delivering to previously bounced address"}}), *HARD),
    "mailgun complained before": (
        lambda w, m: w.mailgun(m, "failed", severity="permanent", reason="suppress-complaint"), *COMPLAINED),
    "mailgun temporary": (lambda w, m: w.mailgun(m, "failed", severity="temporary", reason="generic"), *NOTHING),
    "mailgun complained": (lambda w, m: w.mailgun(m, "complained"), *COMPLAINED),
    "mailgun unsubscribed": (lambda w, m: w.mailgun(m, "unsubscribed"), *LEFT),
    "mailgun opened": (lambda w, m: w.mailgun(m, "opened"), *NOTHING),
    "sendgrid delivered": (lambda w, m: w.sendgrid(m, "delivered", response="250 OK"), *DELIVERED),
    "sendgrid bounce": (lambda w, m: w.sendgrid(m, "bounce", type="bounce", status="5.1.1", reason=GONE), *HARD),
    "sendgrid blocked": (lambda w, m: w.sendgrid(m, "bounce", type="blocked", status="5.7.1", reason=SPAM), *NOBODYS),
    "sendgrid blocked, no status": (
        lambda w, m: w.sendgrid(m, "bounce", type="blocked", reason="unable to get mx info"), *SOFT),
    "sendgrid dropped": (lambda w, m: w.sendgrid(m, "dropped", reason="Bounced Address"), *HARD),
    "sendgrid dropped, quota": (lambda w, m: w.sendgrid(m, "dropped", reason="Recipient List over Package Quota"),
                                *NOBODYS),
    "sendgrid spamreport": (
        lambda w, m: w.sendgrid(m, "spamreport", **{
            "smtp-id": None, "campanero": m["internet_message_id"].partition("@")[0]}), *COMPLAINED),
    "sendgrid unsubscribe": (lambda w, m: w.sendgrid(m, "group_unsubscribe", asm_group_id=3), *LEFT),
    "sendgrid deferred": (lambda w, m: w.sendgrid(m, "deferred", response="400 try again", attempt="5"), *NOTHING),
    "postmark delivery": (lambda w, m: w.postmark(m, "Delivery", Recipient=m["to"], Details="250 OK"), *DELIVERED),
    "postmark hard": (lambda w, m: w.postmark(m, "Bounce", Type="HardBounce", TypeCode=1, Details=f"smtp;{GONE}"),
                      *HARD),
    "postmark soft": (lambda w, m: w.postmark(m, "Bounce", Type="SoftBounce", Details="mailbox full"), *SOFT),
    "postmark blocked": (lambda w, m: w.postmark(m, "Bounce", Type="Blocked", Name="ISP block"), *NOBODYS),
    "postmark spam notice": (lambda w, m: w.postmark(m, "Bounce", Type="SpamNotification"), *NOBODYS),
    "postmark answering machine": (lambda w, m: w.postmark(m, "Bounce", Type="AutoResponder"), *NOTHING),
    "postmark delay": (lambda w, m: w.postmark(m, "Bounce", Type="Transient"), *NOTHING),
    "postmark complaint": (lambda w, m: w.postmark(m, "SpamComplaint", Type="SpamComplaint"), *COMPLAINED),
    "postmark unsubscribed": (
        lambda w, m: w.postmark(m, "SubscriptionChange", SuppressSending=True, SuppressionReason="ManualSuppression",
                                ChangedAt="2026-01-01T00:00:00Z"), *LEFT),
    "brevo delivered": (lambda w, m: w.brevo(m, "delivered"), *DELIVERED),
    "brevo hard bounce": (lambda w, m: w.brevo(m, "hard_bounce", reason=f" RecipientError: {GONE}"), *HARD),
    "brevo hard bounce as spam": (lambda w, m: w.brevo(m, "hard_bounce", reason=SPAM), *NOBODYS),
    "brevo soft bounce": (lambda w, m: w.brevo(m, "soft_bounce", reason="undefined Unable to find MX"), *SOFT),
    "brevo invalid": (lambda w, m: w.brevo(m, "invalid_email"), *HARD),
    "brevo blocked": (lambda w, m: w.brevo(m, "blocked", reason="blocked : due to blacklist user"), *NOBODYS),
    "brevo error": (lambda w, m: w.brevo(m, "error"), *NOBODYS),
    "brevo spam": (lambda w, m: w.brevo(m, "spam"), *COMPLAINED),
    "brevo complaint": (lambda w, m: w.brevo(m, "complaint"), *COMPLAINED),
    "brevo unsubscribed": (lambda w, m: w.brevo(m, "unsubscribed", ts_event=1604933654), *LEFT),
    "brevo deferred": (lambda w, m: w.brevo(m, "deferred", reason=GONE), *NOTHING),
    "brevo opened": (lambda w, m: w.brevo(m, "unique_opened"), *NOTHING),
    "mailjet sent": (lambda w, m: w.mailjet(m, "sent", smtp_reply="sent (250 2.0.0 OK)"), *DELIVERED),
    "mailjet bounce": (
        lambda w, m: w.mailjet(m, "bounce", blocked=False, hard_bounce=True, error_related_to="recipient",
                               error="user unknown", comment=GONE), *HARD),
    "mailjet soft bounce": (
        lambda w, m: w.mailjet(m, "bounce", hard_bounce=False, error_related_to="recipient", error="quota exceeded"),
        *SOFT),
    "mailjet greylisted": (
        lambda w, m: w.mailjet(m, "bounce", hard_bounce=False, error_related_to="domain", error="greylisted"),
        *NOTHING),
    "mailjet policy": (
        lambda w, m: w.mailjet(m, "bounce", hard_bounce=True, error_related_to="spam", error="policy issue"),
        *NOBODYS),
    "mailjet blocked": (
        lambda w, m: w.mailjet(m, "blocked", error_related_to="mailjet", error="preblocked"), *NOBODYS),
    "mailjet blocked for a complaint": (
        lambda w, m: w.mailjet(m, "blocked", error_related_to="recipient", error="spam reporter"), *COMPLAINED),
    "mailjet unknown error": (
        lambda w, m: w.mailjet(m, "bounce", error_related_to="system", error="connection issue"), *SOFT),
    "mailjet spam": (lambda w, m: w.mailjet(m, "spam", source="JMRPP"), *COMPLAINED),
    "mailjet unsub": (lambda w, m: w.mailjet(m, "unsub", mj_list_id=20), *LEFT),
    "mailjet open": (lambda w, m: w.mailjet(m, "open"), *NOTHING),
    "resend delivered": (lambda w, m: w.resend(m, "delivered"), *DELIVERED),
    "resend bounced": (
        lambda w, m: w.resend(m, "bounced", bounce={"type": "Permanent", "subType": "General", "message": GONE}),
        *HARD),
    "resend suppressed": (
        lambda w, m: w.resend(m, "bounced", bounce={"type": "Permanent", "subType": "Suppressed", "message": "x"}),
        *SOFT),
    "resend suppressed by event": (lambda w, m: w.resend(m, "suppressed", suppressed={"message": "x"}), *SOFT),
    "resend full": (
        lambda w, m: w.resend(m, "bounced", bounce={"type": "Transient", "subType": "MailboxFull"}), *SOFT),
    "resend content": (
        lambda w, m: w.resend(m, "bounced", bounce={"type": "Transient", "subType": "ContentRejected"}), *NOBODYS),
    "resend failed": (lambda w, m: w.resend(m, "failed", failed={"reason": "reached_daily_quota"}), *NOBODYS),
    "resend complained": (lambda w, m: w.resend(m, "complained"), *COMPLAINED),
    "resend complained, tags in a list": (
        lambda w, m: w.resend(m, "complained", tags=[
            {"name": "campanero", "value": m["internet_message_id"].partition("@")[0]}]), *COMPLAINED),
    "resend complained, by Message-ID": (
        lambda w, m: w.resend(m, "complained", tags=None, headers=[
            {"name": "Message-ID", "value": f"<{m['internet_message_id']}>"}]), *COMPLAINED),
    "resend two recipients": (lambda w, m: w.resend(m, "complained", to=[m["to"], "x@example.org"]), *NOTHING),
    "resend delayed": (lambda w, m: w.resend(m, "delivery_delayed"), *NOTHING),
    "postal sent": (lambda w, m: w.postal(m, "MessageSent", status="Sent", output="250 2.0.0 OK"), *DELIVERED),
    "postal failed": (lambda w, m: w.postal(m, "MessageDeliveryFailed", status="HardFail", output=GONE), *HARD),
    "postal failed as spam": (lambda w, m: w.postal(m, "MessageDeliveryFailed", output=SPAM), *NOBODYS),
    "postal gave up": (
        lambda w, m: w.postal(m, "MessageDeliveryFailed", details="Maximum number of delivery attempts reached",
                              output="451 4.3.0 try later"), *SOFT),
    "postal bounced": (
        lambda w, m: w.postal(m, "MessageBounced", name="original_message", bounce={"from": "postmaster@x"}), *SOFT),
    "postal delayed": (lambda w, m: w.postal(m, "MessageDelayed", output=GONE), *NOTHING),
    "postal other recipient": (lambda w, m: w.postal(m, "MessageSent", to="someone@example.org"), *NOTHING),
    "postmark reactivated": (lambda w, m: w.postmark(m, "SubscriptionChange", SuppressSending=False), *NOTHING),
}  # fmt: skip


@pytest.mark.parametrize("case", every_nth(CASES, 5))
def test_provider_reports(case: str, world: World) -> None:
    """Each kind of report has its documented effect, and a repeated one has none."""
    build, *expected = CASES[case]
    message = world.sent()
    post = build(world, message)
    for _ in range(2):
        assert world.post(post).status == 200
        assert list(world.state(message)) == expected


def test_bounce_diagnostics_are_stored(world: World) -> None:
    """The message and the suppression have the reply of the recipient's server."""
    message = world.sent()
    assert world.post(world.custom_relay(message, "bounced", diagnostic=GONE)).status == 200
    error = world.api.get(f"/messages/{message['id']}").expect(200)["error"]
    assert (error["smtp"], error["enhanced"], error["text"]) == (550, "5.1.1", GONE)
    [kept] = world.api.get("/suppressions", address=message["to"]).expect(200)
    assert (kept["reason"], kept["source"], kept["diagnostic"]) == ("hard_bounce", "hook", GONE)


def test_ses_reports_are_matched_by_return_path(world: World) -> None:
    """Without the headers of the mail, the return path identifies the message, in any case."""
    crypto.load_key(world.server.data)
    message = world.sent()
    source = links.build_return_path(message["id"], "example.org").upper()
    fields = {"notificationType": "Delivery", "mail": {"source": source}, "delivery": {"recipients": [message["to"]]}}
    assert world.post(world.sns.notification(fields, world.clock.now())).status == 200
    assert list(world.state(message)) == list(DELIVERED)


def test_processed_reports_contain_no_address(world: World) -> None:
    """The stored keys of processed reports contain no email address."""
    message = world.sent()
    for post in (
        world.ses("Delivery", message, delivery={"recipients": [message["to"]]}),
        world.ses_bounce(message, "Permanent", "General", status="5.1.1"),
        world.sendgrid(message, "unsubscribe"), world.mailgun(message, "complained"),
        world.brevo(message, "unsubscribed"), world.mailjet(message, "unsub"), world.brevo(message, "complaint"),
        world.mailjet(message, "spam"), world.resend(message, "complained"), world.postal(message, "MessageSent"),
    ):  # fmt: skip
        assert world.post(post).status == 200
    world.api.delete(f"/contacts/{message['contact_id']}", erase="true").expect(200)
    with sqlite3.connect(f"file:{world.server.data}/campanero.db?mode=ro", uri=True) as database:
        names = [row[0] for row in database.execute("SELECT key FROM processed_notification")]
    assert len(names) >= 4 and [name for name in names if "@" in name] == []


def test_message_status_never_goes_back(world: World) -> None:
    """Whatever the order of the reports, the most severe status stays."""
    message = world.sent()
    for kind, status in (("complained", "complained"), ("bounced", "complained"), ("delivered", "complained")):
        assert world.post(world.custom_relay(message, kind)).status == 200
        assert world.state(message)[0] == status
    other = world.sent()
    for kind, status in (("delivered", "delivered"), ("bounced", "bounced"), ("delivered", "bounced")):
        assert world.post(world.custom_relay(other, kind)).status == 200
        assert world.state(other)[0] == status


def test_a_report_is_retried_when_the_disk_fails(world: World) -> None:
    """While the disk cannot be written, the response is a 503; the provider's retry is then processed."""
    message = world.sent()
    post = world.mailgun(message, "complained")
    with unwritable(world.server.pid):
        assert world.post(post).status == 503
    world.api.wait("/account", lambda _: world.post(post).status == 200)
    assert list(world.state(message)) == list(COMPLAINED)


def test_a_message_in_sending_defers_only_itself(world: World) -> None:
    """A report about a message that is being sent gets a 503; the other reports of the request are stored."""
    waits, *others = [world.sent() for _ in range(3)]
    events = [
        {"email": message["to"], "event": "spamreport", "smtp-id": f"<{message['internet_message_id']}>",
         "sg_event_id": f"w{message['id']}"}
        for message in (others[0], waits, others[1])
    ]  # fmt: skip
    _set_status(world, waits, "sending")
    responses = [world.post(world.grid.post(events, world.clock.now())) for _ in range(2)]
    assert [(response.status, response.json["code"]) for response in responses] == [(503, "unavailable")] * 2
    assert [world.state(other) for other in others] == [COMPLAINED] * 2

    _set_status(world, waits, "sent")
    assert world.post(world.grid.post(events, world.clock.now())).status == 200
    assert [world.state(message) for message in (waits, *others)] == [COMPLAINED] * 3


def _set_status(world: World, message: Any, status: str) -> None:
    with sqlite3.connect(world.server.data / "campanero.db", timeout=10) as database:
        database.execute("UPDATE message SET status = ? WHERE id = ?", (status, message["id"]))


def test_many_reports_in_one_request(world: World) -> None:
    """A request may have reports on many messages; unknown and malformed ones are ignored."""
    messages = [world.sent() for _ in range(3)]
    events: list[Any] = [
        {"event": "delivered", "email": message["to"], "smtp-id": f"<{message['internet_message_id']}>"}
        for message in messages
    ]
    strange: list[Any] = [{"event": "delivered", "smtp-id": "<other@example.org>"}, {"event": 7, "email": []}, {}]
    post = world.grid.post([events[0], *strange, *events[1:]] + strange * 40, world.clock.now())
    assert world.post(post).json == {"received": 3}
    assert [world.state(message)[0] for message in messages] == ["delivered"] * 3


def test_events_of_brevo_and_mailjet_may_come_in_lists(world: World) -> None:
    """Events may be posted in a list, and a malformed event does not stop the others."""
    for name, event in (("brevo", "delivered"), ("mailjet", "sent")):
        messages = [world.sent() for _ in range(2)]
        posts = [getattr(world, name)(message, event) for message in messages]
        bodies = [json.loads(post.body) for post in posts]
        strange: list[Any] = [{"event": 7, "email": []}, {}, "x", None]
        post = posts[0]._replace(body=json.dumps([bodies[0], *strange, bodies[1]]).encode())
        assert world.post(post).json == {"received": 2}
        assert [world.state(message)[0] for message in messages] == ["delivered"] * 2


def test_a_repeated_opt_out_counts_once(world: World) -> None:
    """A repeated opt-out report has no effect after the contact has opted in again."""
    message = world.sent()
    post = world.sendgrid(message, "unsubscribe")
    assert world.post(post).status == 200
    world.api.post("/contacts", {"email": message["to"], "opt_in": True}).expect(200)
    assert world.post(post).status == 200
    assert world.state(message)[3] is True


def test_a_report_on_another_recipient_is_ignored(world: World) -> None:
    """A report with the address of another contact has no effect."""
    message, other = world.sent(), world.sent()
    assert world.post(world.custom_relay(message, "complained", recipient=other["to"])).status == 200
    assert list(world.state(message)) == list(NOTHING) and list(world.state(other)) == list(NOTHING)


@pytest.mark.parametrize("spelling", ["<{}>", "Jo Roe <{}>", "{}.", " {} "])
def test_recipient_address_formats(spelling: str, world: World) -> None:
    """Angle brackets, a display name, a trailing dot and spaces around the address are accepted."""
    message = world.sent()
    assert world.post(world.custom_relay(message, "complained", recipient=spelling.format(message["to"]))).status == 200
    assert list(world.state(message)) == list(COMPLAINED)


def test_reports_must_name_the_recipient(world: World) -> None:
    """A report of any provider with another recipient or none has no effect."""
    message, other = world.sent(), world.sent()
    for recipient in (other["to"], None, ""):
        for kind in ("delivered", "bounced", "soft_bounced", "complained"):
            check_report_of_another(world, message, kind, recipient)
    assert list(world.state(other)) == list(NOTHING)


def check_report_of_another(world: World, message: Any, kind: str, to: str | None) -> None:
    """Post a report of a message with another recipient or none from each provider, and check that it has no effect."""
    posts = [
        world.sendgrid(message, {"delivered": "delivered", "complained": "spamreport"}.get(kind, "bounce"), email=to),
        world.mailgun(message, {"delivered": "delivered", "complained": "complained"}.get(kind, "failed"), recipient=to,
                      severity="permanent", **{"delivery-status": {"code": 550, "message": GONE}}),
        world.postmark(message, {"delivered": "Delivery", "complained": "SpamComplaint"}.get(kind, "Bounce"), Email=to,
                       Type="SpamComplaint" if kind == "complained" else "HardBounce"),
        world.brevo(message, {"delivered": "delivered", "complained": "spam"}.get(kind, "hard_bounce"), email=to),
        world.mailjet(message, {"delivered": "sent", "complained": "spam"}.get(kind, "bounce"), email=to),
        world.resend(message, {"delivered": "delivered", "complained": "complained"}.get(kind, "bounced"),
                     to=[to] if to else []),
    ]  # fmt: skip
    for post in posts:
        assert world.post(post).status == 200
    response = world.post(world.custom_relay(message, kind, recipient=to))
    if to:
        assert response.status == 200
    else:
        assert response.expect(422)["validation_errors"] == {"recipient": ["can't be blank"]}
    assert list(world.state(message)) == list(NOTHING)


def test_ses_destination_must_be_the_recipient(world: World) -> None:
    """A report of SES on a mail to another destination has no effect."""
    message, other = world.sent(), world.sent()
    sent_to = {**world.mail(message), "destination": [other["to"]]}
    gone = {"emailAddress": message["to"], "status": "5.1.1"}
    bounce = {"bounceType": "Permanent", "bounceSubType": "General", "bouncedRecipients": [gone]}
    complaint = {"complainedRecipients": [{"emailAddress": "redacted@example.net"}]}
    for kind, details in (("Bounce", {"bounce": bounce}), ("Complaint", {"complaint": complaint}),
                       ("Reject", {"reject": {"reason": "Bad content"}})):  # fmt: skip
        assert world.post(world.ses(kind, message, mail=sent_to, **details)).status == 200
    assert list(world.state(message)) == list(NOTHING) and list(world.state(other)) == list(NOTHING)


@pytest.mark.parametrize("recipient", ["other", None])
def test_opt_outs_must_name_the_recipient(recipient: str | None, world: World) -> None:
    """An opt-out report with another recipient or none has no effect."""
    message = world.sent()
    to = world.sent()["to"] if recipient else None
    for post in (
        world.sendgrid(message, "unsubscribe", email=to), world.mailgun(message, "unsubscribed", recipient=to),
        world.postmark(message, "SubscriptionChange", SuppressSending=True, SuppressionReason="ManualSuppression",
                       ChangedAt="2026-01-01T00:00:00Z", Email=to, Recipient=to),
        world.brevo(message, "unsubscribed", email=to), world.mailjet(message, "unsub", email=to),
    ):  # fmt: skip
        assert world.post(post).status == 200
    assert list(world.state(message)) == list(NOTHING)


def test_all_errors_of_a_custom_report(world: World) -> None:
    """A custom report with an unknown message and an invalid recipient gets both errors."""
    for recipient, error in (
        (None, "can't be blank"),
        (" ", "can't be blank"),
        ("<>", "is invalid"),
        ("@", "is invalid"),
    ):
        post = world.custom_relay(world.sent(), "bounced", internet_message_id="a@b", recipient=recipient)
        errors = world.post(post).expect(422)["validation_errors"]
        assert errors == {"internet_message_id": ["must exist"], "recipient": [error]}, recipient
