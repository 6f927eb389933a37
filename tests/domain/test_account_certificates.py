"""Certificates of the hosts of accounts: the stored ones are served whatever becomes of new orders."""

import ssl
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from appliance.certificates import challenges, issuer, store
from appliance.certificates.store import State
from appliance.core import clock, crypto
from appliance.core.crypto import ServedCertificate
from appliance.settings.schema import Config


class Served:
    """What a listener was told to serve."""

    contexts: Mapping[str, ssl.SSLContext] = {}

    def serve_others(self, contexts: Mapping[str, ssl.SSLContext]) -> None:
        """Keep the contexts."""
        self.contexts = contexts


def test_stored_certificates_are_served_before_anything_is_ordered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a start, an order that fails or takes long does not keep the certificates of other hosts back."""
    settings = Config(data_dir=str(tmp_path), base_url="https://app.example")
    pem = challenges.build_self_signed(["mail.shop.example"], [], timedelta(days=9)).decode()
    state = State(certificate=pem, key=pem, issued_at=clock.now_ms())
    monkeypatch.setattr(crypto, "_key", bytes(32))
    store.save(tmp_path, state, "mail.shop.example")
    served, hosts = Served(), ["mail.bad.example", "mail.shop.example"]

    def fail(_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("appliance.certificates.issuer._Certificate.check", fail)
    service = issuer.CertificateIssuer(
        settings, challenges.LiveChallenges(), issuer.ChallengeListeners(True, True), lambda _: None, lambda: hosts,
        cast(ServedCertificate, served),
    )  # fmt: skip
    orders: dict[str, Any] = {}
    with pytest.raises(OSError, match="full"):
        service._check_all(orders)
    assert list(served.contexts) == ["mail.shop.example"]
