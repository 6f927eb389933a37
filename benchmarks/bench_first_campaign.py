"""Goes from the printed link to the first campaign received, at a person's pace.

Run by hand: `python -m benchmarks.bench_first_campaign [--reads 100]`; it takes as long as it says. The person
knows nothing yet: of the words that a page newly shows so many percent are read, at 240 a minute, before anything is
done there (28 is the most that people were seen to read of a page: Nielsen, How Little Do Users Read?, 2008; forms are
read better). Every act costs what the keystroke-level model says (Card, Moran,
Newell, The Keystroke-Level Model for User Performance Time, CACM 23/7, 1980): 1.35 s to make up one's mind, 1.1 s to
point, 0.4 s from the mouse to the keys and back, 0.28 s a key (an average typist). Mail goes to a real SMTP server,
connected in the browser. What the pages took comes on top by itself, for the person waits for them.
"""

import argparse
import re
import time

from playwright.sync_api import Locator, Page, expect

from tests.kit.browser import Problems, new_page, running_browser
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

GOAL_SECONDS = 300
READ, DECIDE, POINT, HOME, KEY = 60 / 240, 1.35, 1.1, 0.4, 0.28


class Person:
    """A user at a browser who reads what is new, decides, points and types, and measures each part."""

    def __init__(self, page: Page, share: float) -> None:
        self.page, self.share = page, share
        self.began = self.part_began = time.monotonic()
        self.known: set[str] = set()
        self.words = 0
        self.keys = 0

    def read(self, where: str = "main") -> None:
        """Read the text that is new on the page."""
        self.page.wait_for_timeout(1000)  # until one sees that something else is there
        self.page.wait_for_load_state()
        room = self.page.locator(where).first
        lines = [line.strip() for line in room.inner_text().splitlines()]
        closed = {line.strip() for line in room.locator("option").all_inner_texts()}  # of a list that nobody opened
        new = [line for line in lines if line and line not in self.known | closed]
        self.known.update(new)
        words = sum(len(line.split()) for line in new)
        self.words += words
        time.sleep(words * READ * self.share)

    def click(self, target: Locator, where: str = "") -> None:
        """Decide and click; with `where`, read what appears there."""
        time.sleep(DECIDE + POINT)
        target.click()
        if where:
            self.read(where)

    def type(self, target: Locator, text: str, clears: bool = False) -> None:
        """Click into a field and type; `clears` removes the previous text."""
        time.sleep(DECIDE + POINT + HOME)
        target.click()
        if clears:
            self.page.keyboard.press("Control+a")
        self.page.keyboard.type(text, delay=KEY * 1000)
        self.keys += len(text)
        time.sleep(HOME)

    def told(self, part: str) -> None:
        """Return how long this part took."""
        now = time.monotonic()
        print(f"{part:<44}{now - self.part_began:7.1f} s", flush=True)
        self.part_began = now


def set_up(person: Person, server: Server, smtp: SmtpServer) -> None:
    """Go from the link to Home: owner, sender and mail server; domain and brand are left for later."""
    page = person.page
    page.goto(server.setup_link)
    person.read()
    for label, text in (("Your name", "Ana Lind"), ("Team or company", "Northwind"),
                        ("Email", "ana@northwind.example"), ("Password", "a few words in a row")):  # fmt: skip
        person.type(page.get_by_label(label), text)
    person.click(page.get_by_role("button", name="Continue"), "main")
    person.told("you")
    person.type(page.get_by_label("Postal address"), "4 Mill Lane, Leeds LS1 4DT")
    person.click(page.get_by_role("button", name="Save and go on"), "main")
    person.told("who is writing")
    person.click(page.get_by_label(re.compile("SMTP")), "main")
    person.type(page.get_by_label("Server", exact=True), "127.0.0.1", clears=True)
    person.type(page.get_by_label("Port", exact=True), str(smtp.port), clears=True)
    for label, value in (("Encryption", "none"), ("Domains it may send from", "true")):
        person.click(page.get_by_label(label))
        page.get_by_label(label).select_option(value)
    person.click(page.get_by_role("button", name="Test the server"), "main")
    person.click(page.get_by_role("button", name="Save and go on"), "main")
    person.told("how mail leaves")
    for _ in range(2):
        person.click(page.get_by_role("link", name="Later"), "main")
    person.told("domain and brand, left for later")


def add_somebody(person: Person) -> None:
    """Add the first contact and the first list from the checklist."""
    page = person.page
    person.click(page.get_by_role("link", name="Do it").first, "main")
    person.type(page.get_by_label("First name"), "Mara")
    person.type(page.get_by_label("Email"), "mara@example.com")
    person.type(page.get_by_label("Name of your first list"), "Newsletter")
    person.click(page.get_by_label("They agreed to receive messages"))
    person.type(page.get_by_label("How they agreed"), "Signed at the market")
    person.click(page.get_by_role("button", name="Add contact"), "main")
    person.told("the first person and list")


def write(person: Person) -> None:
    """Create a campaign for that list, with an email made in the editor."""
    page = person.page
    person.click(page.get_by_role("navigation").get_by_role("link", name="Campaigns"), "main")
    person.click(page.get_by_role("main").get_by_role("link", name="New email").first, "main")
    person.type(page.get_by_label("Name"), "First letter")
    person.click(page.get_by_role("button", name="Start writing"), "main")
    person.click(page.get_by_label("Newsletter"))
    expect(page.locator(".sums .total")).to_have_text("=1 person")
    person.click(page.locator("#card-from summary"), "#card-from")
    person.type(page.get_by_label("Subject"), "News from the mill")
    person.told("whom it goes to, and its subject")
    person.click(page.locator("#card-content summary"), "#card-content")
    person.click(page.get_by_role("link", name="Write it in the editor"), "main")
    for kind, text in (("heading", "Hello from Northwind"), ("text", "We are open again, and there is bread.")):
        person.click(page.get_by_role("tab", name="Add"))
        person.click(page.locator(f"#palette button[value={kind}]"))
        expect(page.locator(f"#outline li[data-kind={kind}]")).to_be_visible()
        person.read("#inspector")
        person.type(page.locator("#inspector .ed").first, text, clears=True)
    person.told("the email, in the editor")


def send(person: Person, smtp: SmtpServer) -> None:
    """Review and send, and wait until the email has arrived."""
    page = person.page
    person.click(page.locator("a.primary[href*='/campaigns/']"), "main")
    person.click(page.get_by_role("link", name="Review and send"), "dialog[open]")
    person.click(page.get_by_role("dialog").get_by_role("button", name=re.compile("^Send to")))
    person.told("a last look, and Send")
    smtp.wait_for(1, 60)
    expect(page.locator("#report .pill", has_text="Done")).to_be_visible(timeout=20_000)
    person.told("until it has arrived (15 s to undo it)")


def main() -> None:
    """Run once and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--reads", type=int, default=50, help="percent of the words that are read (50)")
    share = options.parse_args().reads / 100
    problems = Problems()
    with SmtpServer() as smtp, Server() as server, running_browser() as browser:
        person = Person(new_page(browser, server.url, problems, width=1360), share)
        set_up(person, server, smtp)
        add_somebody(person)
        write(person)
        send(person, smtp)
        took = time.monotonic() - person.began
        print(f"{'from the link to the mail':<44}{took:7.1f} s, goal {GOAL_SECONDS}")
        slow = took + person.words * READ * (1 - share)
        print(f"whoever reads every one of its {person.words} words takes {slow:.0f} s; {person.keys} keys")
        print(f"the browser's console: {problems.found or 'quiet'}")
        person.page.context.close()
        server.stop()


if __name__ == "__main__":
    main()
