"""Somebody puts an earlier lease of the same installation back into the store, while two machines run."""

import time

import pytest

from tests.conftest import FreshServer
from tests.faults.test_send_lease import clone, empty_bucket, obstacle_codes, start, wait_for_obstacles
from tests.kit.s3_server import S3Server
from tests.kit.smtp import SmtpServer

SECONDS = 6


@pytest.mark.full
@pytest.mark.parametrize("pause", [0.05, 3.0])
def test_the_lease_of_the_former_machine_is_put_back(
    pause: float, fresh_server: FreshServer, smtp_server: SmtpServer, s3: S3Server
) -> None:
    """A machine that knows that another one was promoted does not send with its own lease of before."""
    env = empty_bucket(s3)
    first = start(fresh_server, smtp_server, env)
    second = clone(first, first.env)
    first_api = first.client(validate=False)
    wait_for_obstacles(first_api, [], 5)
    try:
        earlier = s3.objects()["lease.json"]
        second.cli("promote", "--lease-only")
        second.start()
        second_api = second.client(validate=False)
        wait_for_obstacles(second_api, [], 3 * SECONDS)
        first.wait_for_line("lease: sending stopped: another machine")
        end, put_at = time.monotonic() + 5 * SECONDS, 0.0
        while time.monotonic() < end:
            if time.monotonic() > put_at + pause:
                put_at = time.monotonic()
                s3.replace("lease.json", earlier)
            assert obstacle_codes(first_api) == ["lease"]
        assert "Traceback" not in first.output + second.output
        s3.remove("lease.json")
        wait_for_obstacles(second_api, [], 4 * SECONDS)
        assert obstacle_codes(first_api) == ["lease"]
    finally:
        second.close()
