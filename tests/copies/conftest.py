"""An installation in this process, and stores for its copies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.copies.copy_rows import CopyHome
from tests.kit.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Return an S3 server."""
    with S3Server() as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server) -> S3Server:
    """Return an S3 server with an empty bucket and no faults."""
    s3_server.faults.clear()
    s3_server.requests.clear()
    for key in s3_server.objects():
        s3_server.remove(key)
    return s3_server


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CopyHome]:
    """Return an installation with a store in a directory."""
    (tmp_path / "data").mkdir()
    (tmp_path / "store").mkdir()
    opened = CopyHome(tmp_path / "data", tmp_path / "store")
    yield opened
    opened.close()
