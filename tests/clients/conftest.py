"""Fixtures of the client tests: a service that may post to this machine, and the compiled TypeScript client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import typescript
from tests.kit.server import ROOT, Server

TYPESCRIPT = ROOT / "clients/typescript"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Yield a server with the built-in inbox that posts webhooks to 127.0.0.1."""
    with Server(env={"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}).set_up() as running:
        yield running
        running.stop()


@pytest.fixture(scope="session")
def compiled_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the compiled TypeScript client, whose compilation is its strict type check."""
    target = tmp_path_factory.mktemp("typescript")
    typescript.run_tool("tsc", "-p", TYPESCRIPT, "--outDir", target)
    (target / "package.json").write_text('{"type": "module"}')
    return target
