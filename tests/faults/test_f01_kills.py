"""The power goes again and again in the middle of a large send (P2, P3); three seeds with `--full`."""

import random
import threading
import time
from http.client import HTTPException

from tests.faults.conftest import Figures, Relayed
from tests.kit.books import Books, balance, identity
from tests.kit.client import Client
from tests.kit.recipients import completed, crowd, send
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

CONNECTIONS = 4


class Watch:
    """Looks at a campaign all the time: its terms always add up, and it is never completed while a row is open."""

    def __init__(self, api: Client, path: str) -> None:
        self._api, self._path, self._over = api, path, threading.Event()
        self.looks, self._faults = 0, list[str]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            try:
                row = self._api.get(self._path).expect(200)
                identity(row["stats"])
                assert row["status"] == "active" or row["stats"]["pending"] == 0, row
                self.looks += 1
            except (OSError, HTTPException):
                continue  # killed just now
            except AssertionError as fault:
                self._faults.append(str(fault))

    def end(self) -> None:
        """Stop looking, and raise for what was seen."""
        self._over.set()
        self._thread.join()
        assert self.looks > 3 and not self._faults, self._faults[:3]


def killed(server: Server, sink: SmtpServer, count: int, kills: int, dice: random.Random) -> Books:
    """Send to a crowd, kill at random moments until it is through, and return the books."""
    api = server.client(validate=False)
    path = send(api, crowd(api, count))
    watch = Watch(api, path)
    for at in sorted(dice.sample(range(count // 50, count * 19 // 20), kills)):
        sink.wait_for(at, timeout=120)
        time.sleep(dice.uniform(0, 0.05))
        server.kill()
        server.start()
    completed(api, path, timeout=300)
    watch.end()
    return balance(api, path, sink.messages)


def test_kills_forget_nobody(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures, seed: int
) -> None:
    """Nobody is missing; a kill costs at most a copy for each connection, of the same bytes; the books balance."""
    count, kills = (20_000, 10) if full else (1_500, 4)
    books = killed(relayed(), smtp_server, count, kills, random.Random(seed))
    figures.books(books, kills=kills, uncertain=books.uncertain)

    assert (books.audience, books.accepted, books.missing, books.uncertain) == (count, count, 0, 0)
    assert books.copies <= kills * CONNECTIONS


def test_kills_make_no_copies_where_doubt_is_held(
    relayed: Relayed, smtp_server: SmtpServer, full: bool, figures: Figures, seed: int
) -> None:
    """With `in_doubt = hold` nothing comes twice, and what nobody can know waits for a person."""
    count, kills = (20_000, 10) if full else (1_000, 3)
    books = killed(relayed(in_doubt="hold"), smtp_server, count, kills, random.Random(seed))
    figures.books(books, kills=kills, uncertain=books.uncertain)

    assert (books.audience, books.missing, books.copies) == (count, 0, 0)
    assert books.accepted + books.uncertain == count and books.uncertain <= kills * CONNECTIONS
