"""Kills in the middle of a campaign in four languages lose no message, and every copy is in its recipient's language.

A copy is rendered again by the next process, which has to choose the same translation and fill it with the same values
(P2, P3). The points of the kills are those of an SMTP transaction at which a claim, a body or a reply can be lost.
"""

import time
from functools import partial
from typing import NamedTuple

import pytest

from tests.faults.conftest import Figures, StartRelayed
from tests.kit.client import Client
from tests.kit.recipients import create_campaign, recipient_address, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.sampling import sampled
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.uploads import upload, wait_for_import

CONNECTIONS = 4
# Where the SMTP test server holds all connections when the service is killed. `mail` to `data`: the next message is
# claimed, none of its body has left, and the reply to the one before is not recorded; `body`: the server has the whole
# body; `stored`: the server has accepted the message, and its reply never arrives; `none`: nothing is held, so that
# replies are being recorded and the ledger is being brought up to date
POINTS = ("mail", "rcpt", "data", "body", "stored", "none")
POINTS_WITH_COPIES = ("body", "stored")
DESIGN = {"sections": [
    {"id": "t", "type": "text", "props": {"content": "<p>Good morning {{ contact.first_name }}</p>"}},
    {"id": "b", "type": "button", "props": {"text": "Order bread", "href": "https://bakery.example/en"}},
    {"id": "f", "type": "footer", "props": {}},
]}  # fmt: skip


class Texts(NamedTuple):
    """The texts of the campaign in a language."""

    subject: str
    greeting: str
    button: str

    def as_translation(self, language: str) -> dict[str, str]:
        """Return the texts under the ids that the API gives to texts of the design."""
        return {
            "subject": f"{self.subject} {{{{ contact.first_name }}}}",
            "t/props.content": f"<p>{self.greeting} {{{{ contact.first_name }}}}</p>",
            "b/props.text": self.button,
            "b/props.href": f"https://bakery.example/{language}",
        }


TEXTS = {
    "en": Texts("News for", "Good morning", "Order bread"),
    "de": Texts("Neues für", "Guten Morgen", "Brot bestellen"),
    "fr": Texts("Nouvelles pour", "Bonjour", "Commander du pain"),
    "ar": Texts("أخبار", "صباح الخير", "اطلب الخبز"),
}
# The language of a contact, and the language of the message; the template is not translated into Italian
LANGUAGES = {"de": "de", "fr": "fr", "ar": "ar", "de-AT": "de", "fr-CA": "fr", "en": "en", "it": "en", "": "en"}


def contact_language(index: int) -> str:
    """Return the language of contact number `index`; neighbours in the queue have different ones."""
    return list(LANGUAGES)[index % len(LANGUAGES)]


def create_translated_campaign(api: Client, count: int) -> str:
    """Create a campaign in four languages to `count` contacts with mixed languages, and return its path."""
    list_id = api.post("/lists", {"name": "All languages"}).expect(201)["id"]
    lines = [f"{recipient_address(index)},N{index},{contact_language(index)}" for index in range(count)]
    import_ = wait_for_import(api, upload(api, "email,first_name,language\n" + "\n".join(lines), list_ids=[list_id]))
    assert (import_["status"], import_["created"]) == ("complete", count), import_
    path = create_campaign(api, list_id, subject="News for {{ contact.first_name }}", body=None, design=DESIGN)
    template_id = api.get(path).expect(200)["template"]["id"]
    for language in ("de", "fr", "ar"):
        texts = TEXTS[language].as_translation(language)
        translation = api.put(f"/templates/{template_id}/translations/{language}", {"texts": texts}).expect(200)
        assert translation["missing"] == 0, translation
    return path


def kill_at(server: Server, sink: SmtpServer, point: str, wait: float) -> None:
    """Kill a server `wait` seconds after its connections have reached a point."""
    if point != "none":
        hold = sink.rules.store_then_hold if point == "stored" else partial(sink.rules.hold, point)
        hold(times=CONNECTIONS).wait_reached()
    time.sleep(wait)
    server.kill()
    sink.rules.clear()


@pytest.mark.parametrize("point", sampled(POINTS, ("stored",)))
def test_copies_keep_their_language(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures, point: str
) -> None:
    """Kills at one point lose no message; copies have the same bytes, and everybody gets their language."""
    count, kills = (2_400, 6) if full else (240, 2)
    server = relayed()
    api = server.client(validate=False)
    path = create_translated_campaign(api, count)
    api.post(f"{path}/send").expect(200)
    for number in range(kills):
        smtp_server.wait_for((number + 1) * count // (kills + 2))
        kill_at(server, smtp_server, point, wait=0.06 * number if point == "none" else 0.2)
        server.start()
    wait_until_completed(api, path)
    books = reconcile(api, path, smtp_server.messages)  # fails for a copy with other bytes or another Message-ID
    figures.books(books, kills=kills, uncertain=books.uncertain)

    assert (books.audience, books.accepted, books.missing, books.uncertain) == (count, count, 0, 0)
    assert books.copies <= kills * 2 * CONNECTIONS
    if point in POINTS_WITH_COPIES:
        assert books.copies >= kills, "a kill hit no message whose reply was on its way"
    for message in smtp_server.messages:
        index = int(message.to.partition("@")[0][1:])
        language = LANGUAGES[contact_language(index)]
        texts, html = TEXTS[language], message.html() or ""
        assert message.subject == f"{texts.subject} N{index}", (message.to, message.subject)
        assert f"{texts.greeting} N{index}" in html and texts.button in html, message.to
        assert f'lang="{language}"' in html and ('dir="rtl"' in html) == (language == "ar"), message.to
        others = [other.button for other in TEXTS.values() if other is not texts]
        assert not any(button in html for button in others), message.to
