"""Webhooks on a full disk: deliveries that cannot be recorded are not repeated endlessly."""

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import FreshServer
from tests.kit.disk import CannotMount, fill_disk, small_disk
from tests.kit.webhook_receiver import Receiver

ALLOWED = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1", "CAMPANERO_LIMITS__MESSAGES_PER_MINUTE": "0"}


@pytest.mark.full
def test_a_full_disk_repeats_few_deliveries(fresh_server: FreshServer, tmp_path: Path) -> None:
    """On a full disk at most the deliveries in progress arrive twice; with space again the rest arrives."""
    try:
        with small_disk(tmp_path / "disk", 200) as path, Receiver(tmp_path) as receiver:
            server = fresh_server(data=path / "data", env=ALLOWED)
            api = server.client(validate=False)
            api.post("/webhooks", {"url": receiver.url, "events": ["thing_seen"]}).expect(201)
            receiver.respond_with(seconds=0.5)
            event = {"event": "thing_seen", "contact_email": "ann@example.org", "create_contact": True}
            for _ in range(40):
                api.post("/events", event).expect(201)
            receiver.wait(lambda deliveries: len(deliveries) >= 8)
            filler = fill_disk(path)
            server.wait_for_line("sending stopped: .* full$")  # the guard or a failed write noticed it first
            assert api.post("/events", event).status == 503
            assert len({delivery.name for delivery in receiver.requests}) < 40
            filler.unlink()
            arrived = receiver.wait(lambda deliveries: len({delivery.name for delivery in deliveries}) == 40)
            assert sum(Counter(delivery.name for delivery in arrived).values()) - 40 <= 4
            server.stop()
    except CannotMount as error:
        pytest.skip(f"no small disk can be mounted: {error}")
