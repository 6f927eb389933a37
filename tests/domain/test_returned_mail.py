"""What comes back is understood as it is meant, in the formats of real servers, and nothing hostile disturbs it."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from appliance import config, tokens
from appliance.delivery import classes
from appliance.feedback import mail
from appliance.feedback.facts import Fact
from appliance.inbound.crowd import Crowd
from appliance.inbound.desk import Desk
from appliance.inbound.session import Session
from appliance.messages import links
from tests.kit.bounces import FOLDER, MEANS, Marks, bombs, sample
from tests.kit.patience import soon

NUMBER = 4711
RECIPIENT = "reader@example.org"


@pytest.fixture(autouse=True)
def installation(tmp_path: Path) -> None:
    """A key and a configuration, which links are made with."""
    tokens.load_key(tmp_path)
    config.use(config.load({"data_dir": str(tmp_path)}, {}).config)


def marks(number: int = NUMBER) -> Marks:
    """Answer what names a message of ours."""
    return Marks(
        RECIPIENT, links.return_path(number, "example.com"), links.internet_message_id(number, "example.com"),
        links.unsubscribe(number),
    )  # fmt: skip


def meant(facts: list[list[Fact]]) -> str:
    """Answer what facts come to for our message and its recipient."""
    mine = [fact for ways in facts for fact in ways if fact.recipient in (RECIPIENT, None)]
    if not mine:
        return "nothing"
    assert len({fact.kind for fact in mine}) == 1 and {fact.message_id for fact in mine} == {NUMBER}
    told = mine[0]
    if told.kind in ("delivered", "complained"):
        return {"delivered": "delivered", "complained": "complaint"}[told.kind]
    found = classes.classify(told.smtp, told.enhanced, told.text)
    assert (told.kind == "bounced") is (found is classes.HARD), "told as it is judged"
    return found.name


@pytest.mark.parametrize("name", sorted(MEANS))
def test_each_sample_means_what_its_sender_meant(name: str) -> None:
    """Every bounce gets its class, a delivery and a complaint are known, all else is left alone."""
    to = NUMBER if not name.startswith("arf") else None
    assert meant(mail.facts(sample(name, marks()), to)) == MEANS[name]


def test_the_samples_are_many_and_of_nobody() -> None:
    """Forty bounces and six complaints at least, each file in the table, with addresses that belong to nobody."""
    assert {path.stem for path in FOLDER.glob("*.eml")} == set(MEANS)
    kinds = list(MEANS.values())
    assert sum(kind in classes.BY_NAME for kind in kinds) >= 40 and kinds.count("complaint") >= 6
    of_numbers = {one.name for one in (classes.UNREACHABLE, classes.LEFT, classes.FILTERED, classes.UNREGISTERED,
                                       classes.COUNTRY)}  # fmt: skip
    left = classes.BY_NAME.keys() - set(kinds)
    assert len(left - of_numbers) == 1 and of_numbers < left, "every class of mail but the unknown one"


def test_a_report_about_another_message_is_not_believed() -> None:
    """A report sent back for one message that brings another of ours along says nothing about either."""
    odd = marks()._replace(message_id=links.internet_message_id(99, "example.com"))
    assert mail.facts(sample("postfix_user_unknown", odd), NUMBER) == []


def test_a_complaint_needs_signatures_that_agree() -> None:
    """Tokens of two messages in one complaint, or none, and nobody complained."""
    torn = marks()._replace(unsubscribe=links.unsubscribe(99))
    assert mail.facts(sample("arf_rfc5965", torn), None) == []
    assert mail.facts(sample("arf_rfc5965", marks()._replace(
        return_path="b+0@bounce.example.com", message_id="1@example.com", unsubscribe="https://example.com/u/x",
    )), None) == []  # fmt: skip


@pytest.mark.parametrize("name", sorted(bombs()))
def test_hostile_mail_is_read_at_once_or_not_at_all(name: str) -> None:
    """Whatever comes in, nothing is raised, nothing is believed of us, and it takes a moment."""
    begun = time.perf_counter()
    facts = mail.facts(bombs()[name], NUMBER)
    assert time.perf_counter() - begun < soon(1)
    assert meant(facts) in ("nothing", "refused")


@pytest.mark.parametrize("name", sorted(MEANS)[::6])
def test_a_sample_cut_anywhere_is_read(name: str) -> None:
    """A mail that ends in the middle, or lost a byte, never raises."""
    raw = sample(name, marks())
    for end in range(0, len(raw), 97):
        mail.facts(raw[:end], NUMBER)
        mail.facts(raw[:end] + b"\xff" + raw[end + 1 :], None)


SPLINTERS = (
    b"\r\n\r\n", b"\n", b"\x00", b"\xff" * 50, b"=?utf-8?b?x?=", b"Content-Type: message/rfc822\r\n\r\n",
    b'charset="\x00"', b"boundary=", b";charset*=utf-8''%", b"\xed\xa0\x80", b"<" * 300, b"@" * 100,
)  # fmt: skip
SWAPS = (b"7bit", b"8bit", b"text/plain", b"us-ascii", b"utf-8", b"delivery-status", b"rfc822")
STRANGE = (
    b"base64", b"quoted-printable", b"x-uuencode", b"\xe9", b"message/delivery-status", b"", b"idna", b"punycode",
    b"utf-7", b"unknown-8bit", b"message/external-body",
)  # fmt: skip


def test_mutants_of_samples_are_read() -> None:
    """Samples with bytes changed, cut, doubled and swapped for what the library stumbles over never raise."""
    dice = random.Random(11)
    whole = [sample(name, marks()) for name in sorted(MEANS)]
    for _ in range(1_000):
        raw = dice.choice(whole)
        for _ in range(dice.randrange(1, 10)):
            at, other = sorted((dice.randrange(len(raw) + 1), dice.randrange(len(raw) + 1)))
            raw = dice.choice((
                raw[:at] + bytes([dice.randrange(256)]) + raw[at + 1 :], raw[:at] + raw[other:],
                raw[:at] + dice.choice(SPLINTERS) + raw[at:], raw[:at] + dice.choice(whole)[:400] + raw[at:],
                raw.replace(dice.choice(SWAPS), dice.choice(STRANGE)),
            ))  # fmt: skip
        mail.facts(raw, NUMBER)


def test_a_complaint_names_its_message_by_the_address_to_leave_too() -> None:
    """Where all else was taken out of it, the unsubscribe address that we signed is enough; a forged one is nothing."""
    leaving = marks()._replace(unsubscribe=f"mailto:{links.leave_address(NUMBER, 'bounce.example.com')}")
    forged = leaving._replace(unsubscribe=leaving.unsubscribe.replace("@", "0@"))
    told = [mail.facts(sample("arf_unsubscribe_link_alone", one), None) for one in (leaving, forged)]
    assert meant(told[0]) == "complaint" and told[1] == []


class Line(asyncio.Transport):
    """The end of a connection from an address; it keeps what is written to it."""

    def __init__(self, ip: str) -> None:
        super().__init__({"peername": (ip, 4711, 0, 0)})
        self.heard = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.heard += data

    def close(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False


def test_a_line_with_many_addresses_is_one_client() -> None:
    """Of IPv6 a line has more addresses than we have places: all of a /64 have as many as one, and then others come."""

    async def run() -> list[bytes]:
        crowd, desk = Crowd(), Desk()
        lines = [Line(f"2001:db8:0:{number // 8}::{number}") for number in range(16)]
        sessions = [Session(desk, crowd, "mx.example.org", None) for _ in lines]
        for session, line in zip(sessions, lines, strict=True):
            session.connection_made(line)
        turned_away = [line.heard[:3] for line in lines]
        for session in sessions:
            session.connection_lost(None)
        assert crowd.size == 0
        desk.close()
        return turned_away

    first, second = [b""] * 5 + [b"421"] * 3, [b""] * 5 + [b"421"] * 3
    assert asyncio.run(run()) == first + second
