"""Measures email over an HTTP API: `python -m benchmarks.bench_http_transport [--contacts 5000] [--connections 16]`.

Not a test, run by hand. A campaign goes through the real service to the fake API of each vendor in the kit, which
answers at once and then after 20 ms, as one far away does.
"""

import argparse
import time
from typing import Any

from benchmarks.bench_sending import UNLIMITED
from tests.kit import recipients
from tests.kit.email_api_vendors import VENDORS
from tests.kit.email_apis import FakeEmailApi
from tests.kit.server import Server
from tests.kit.sms_rules import Rule
from tests.kit.timeouts import cpu_seconds


def measure(name: str, options: Any) -> None:
    """Send two campaigns over one API, and print their rates and costs."""
    with FakeEmailApi(name, keep_emails=False) as provider:
        env = provider.env | UNLIMITED | {"CAMPANERO_EMAIL__CONNECTIONS": str(options.connections)}
        with Server(env=env).set_up() as server:
            api = server.set_postal_address().client(validate=False, keep_alive=True)
            list_id = recipients.create_list(api, options.contacts)
            for delay in (0.0, 0.02):
                provider.rules[:] = [Rule(accept=True, delay=delay)] if delay else []
                provider.accepted.clear()
                path = recipients.create_campaign(api, list_id)
                api.post(f"{path}/send").expect(200)
                provider.wait_for(1, 60)
                cpu, begin = cpu_seconds(server.pid), time.perf_counter()
                provider.wait_for(options.contacts, 600)
                seconds, spent = time.perf_counter() - begin, cpu_seconds(server.pid) - cpu
                recipients.wait_until_completed(api, path)
                print(f"{name}, {delay * 1000:.0f} ms: {options.contacts / seconds:,.0f}/s, "
                      f"{spent / options.contacts * 1000:.2f} CPU-s per 1,000")  # fmt: skip
            server.stop()


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contacts", type=int, default=5_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--vendors", nargs="*", default=[*VENDORS])
    options = parser.parse_args()
    for name in options.vendors:
        measure(name, options)


if __name__ == "__main__":
    main()
