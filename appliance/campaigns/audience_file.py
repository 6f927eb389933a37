"""The list of a large audience: who is in it, drawn once from the contacts as of one moment, in a file of its own.

It is made beside the database, outside of the writer: positions 1, 2, 3 ... in the order of contact ids, with the
address each person is written to and why not, if so. Finished means on disk under its final name; one that is not is
thrown away and drawn again.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import apsw

from appliance.campaigns import audience
from appliance.campaigns.audience import Audience
from appliance.core import data_dir
from appliance.core.errors import Unavailable
from appliance.settings import config
from appliance.storage import identity
from appliance.storage.open import connection, scalar

_STEPS = 200_000


def directory() -> Path:
    """Return where lists are kept: beside the database, private as all of it."""
    base = Path(config.current().data_dir) / "audiences"
    base.mkdir(mode=0o700, exist_ok=True)
    return base


class Send(NamedTuple):
    """One send of a campaign: taken back and sent again, it is another one, to others perhaps."""

    campaign_id: int
    moment: int


def path(send: Send) -> Path:
    """Return the file of a list."""
    return directory() / f"{send.campaign_id}-{send.moment}.list"


def draw(send: Send, people: Audience, kind: str, after: int, is_stopping: Callable[[], bool]) -> int:
    """Draw the list of those behind a contact id and answer how many they are; raises Unavailable if told to stop."""
    final = path(send)
    raw = final.with_suffix(".part")
    for old in (raw, final):
        old.unlink(missing_ok=True)
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY, 0o600))
    here = connection()
    identity.make_file(raw, "drawn")
    here.set_progress_handler(is_stopping, _STEPS)
    try:
        here.execute("CREATE TABLE drawn.person (pos INTEGER PRIMARY KEY, contact INTEGER, channel INTEGER, why TEXT)")
        here.execute(
            "INSERT INTO drawn.person SELECT NULL, * FROM "
            f"({audience.members(people)} AND c.id > :after ORDER BY c.id)",
            {**people.parameters, "kind": kind, "after": after},
        )
        count = int(scalar("SELECT coalesce(max(pos), 0) FROM drawn.person"))
    except apsw.InterruptError:
        raise Unavailable("the service is ending") from None
    finally:
        here.set_progress_handler(None)
        identity.detach_file("drawn")
    _keep(raw, final)
    return count


def _keep(raw: Path, final: Path) -> None:
    """Bring a finished list to disk, and only then under its name."""
    data_dir.settle(raw)
    raw.rename(final)
    data_dir.settle(final.parent)


def attach(send: Send) -> None:
    """Put a list beside the database of this connection as `drawn`; outside of a transaction."""
    identity.attach_file(path(send), "drawn")


def detach() -> None:
    """Take it away again."""
    identity.detach_file("drawn")


def sweep() -> None:
    """Remove the lists that are not needed any more; called when no audience is being frozen."""
    for name in directory().iterdir():
        name.unlink(missing_ok=True)
