"""Numbers that SMS go to, from a provider's side: thirty of them, senders by country, and a block that is pumped."""

from tests.api.test_sms_numbers import NUMBERS
from tests.conftest import FreshServer
from tests.kit.fake_sms import NUMBER, FakeSms

WANTED = "US,CA,PR,BS,GB,DE,FR,ES,BR,AU,RU,CN"
RULES = {
    "CAMPANERO_SMS__COUNTRIES": WANTED, "CAMPANERO_SMS__COUNTRY_SENDERS": "DE Acme,US 12345",
    "CAMPANERO_SMS__NEW_NUMBERS_PER_HOUR": "3",
}  # fmt: skip
# Of no country, so of none that is wanted
NOWHERE = "+80012345678"


def sender_to(number: str) -> str:
    """Return who an SMS to a number of the table has to be from."""
    return "Acme" if number.startswith("+49") else "12345" if number[:5] in US else NUMBER


US = ("+1415", "+1202", "+1808", "+1800")


def test_numbers_and_their_senders(fresh_server: FreshServer, fake_sms: FakeSms) -> None:
    """What is taken is handed over once, in its normal form, from the sender of its country; nothing else leaves.

    Of thirty unknown numbers in a row three get theirs; the others are refused, and the log says why, once.
    """
    server = fresh_server(env=fake_sms.env | RULES)
    api = server.client()
    expected = []
    for given, answer in NUMBERS:
        refused = not answer.startswith("+") or answer == NOWHERE
        api.post("/messages", {"channel": "sms", "to": given, "body": "Hi"}).expect(422 if refused else 201)
        expected += [] if refused else [(answer, sender_to(answer), "Hi")]
    no = api.post("/messages", {"channel": "sms", "to": "+819012345678", "body": "Hi"}).expect(422)
    assert no["validation_errors"] == {"to": ["is in JP, which is not among sms.countries"]}
    taken = fake_sms.wait_for(len(expected))
    assert sorted((one.to, one.sender, one.body) for one in taken) == sorted(expected)

    answers = [
        api.post("/messages", {"channel": "sms", "to": f"+44740012{last:04}", "body": "Code"}) for last in range(30)
    ]
    assert [one.status for one in answers] == [201] * 3 + [429] * 27
    assert (
        answers[-1].expect(429)["code"] == "rate_limited" and 3_500 <= int(answers[-1].headers["Retry-After"]) <= 3_601
    )
    assert len(fake_sms.wait_for(len(expected) + 3)) == len(expected) + 3
    assert sum("block=+44740012****" in line for line in server.lines) == 1
    looked = server.cli("doctor", expect=None)
    assert "3 single SMS went to unknown numbers beginning with +44740012" in looked.stdout
