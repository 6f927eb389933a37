"""Phone numbers of SMS as the provider sees them: normal form, sender by country, and protection against pumping."""

from tests.api.test_sms_numbers import NUMBERS
from tests.conftest import FreshServer
from tests.kit.fake_sms import NUMBER, FakeSms

WANTED = "US,CA,PR,BS,GB,DE,FR,ES,BR,AU,RU,CN"
RULES = {
    "CAMPANERO_SMS__COUNTRIES": WANTED, "CAMPANERO_SMS__COUNTRY_SENDERS": "DE Acme,US 12345",
    "CAMPANERO_SMS__NEW_NUMBERS_PER_HOUR": "3",
}  # fmt: skip
# A number without a country, which is not allowed
NOWHERE = "+80012345678"


def sender_to(number: str) -> str:
    """Return the expected sender of an SMS to a number."""
    return "Acme" if number.startswith("+49") else "12345" if number[:5] in US else NUMBER


US = ("+1415", "+1202", "+1808", "+1800")


def test_numbers_and_their_senders(fresh_server: FreshServer, fake_sms: FakeSms) -> None:
    """Each valid number is sent to once, in normal form, from its country's sender; others are rejected.

    Of thirty unknown numbers in a row three are accepted; the others are rejected, and the log says why once.
    """
    server = fresh_server(env=fake_sms.env | RULES)
    api = server.client()
    expected = []
    for number, normalized in NUMBERS:
        refused = not normalized.startswith("+") or normalized == NOWHERE
        api.post("/messages", {"channel": "sms", "to": number, "body": "Hi"}).expect(422 if refused else 201)
        expected += [] if refused else [(normalized, sender_to(normalized), "Hi")]
    rejection = api.post("/messages", {"channel": "sms", "to": "+819012345678", "body": "Hi"}).expect(422)
    assert rejection["validation_errors"] == {"to": ["is in JP, which is not among sms.countries"]}
    accepted = fake_sms.wait_for(len(expected))
    assert sorted((sms.to, sms.sender, sms.body) for sms in accepted) == sorted(expected)

    responses = [
        api.post("/messages", {"channel": "sms", "to": f"+44740012{last:04}", "body": "Code"}) for last in range(30)
    ]
    assert [sms.status for sms in responses] == [201] * 3 + [429] * 27
    assert (
        responses[-1].expect(429)["code"] == "rate_limited"
        and 3_500 <= int(responses[-1].headers["Retry-After"]) <= 3_601
    )
    assert len(fake_sms.wait_for(len(expected) + 3)) == len(expected) + 3
    assert sum("block=+44740012****" in line for line in server.lines) == 1
    report = server.cli("doctor", expect=None)
    assert "3 single SMS went to unknown numbers beginning with +44740012" in report.stdout
