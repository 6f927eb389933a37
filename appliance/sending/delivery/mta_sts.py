"""What a domain says about the encryption of its mail (MTA-STS, RFC 8461): found, read, and held against a server.

A domain without a policy, or with one that cannot be had, is written to as others are. DANE is not looked at: it is
worth something only where the answers of name servers are proven, which those of most machines are not.
"""

import re
from typing import NamedTuple

from appliance.sending.delivery import resolver, safe_http

_MAX_BYTES = 65_536
_SECONDS = 10.0
_MAX_AGE_SECONDS = 31_557_600  # a year (3.2)
_ID = re.compile(r"[A-Za-z0-9]{1,32}")
_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9])?")
_MODES = ("enforce", "testing", "none")


class Policy(NamedTuple):
    """A policy: its id in DNS, what it asks for, of which servers, and for how many seconds it holds."""

    id: str
    mode: str
    hosts: tuple[str, ...]
    max_age: int

    def allows(self, host: str) -> bool:
        """Return whether a mail server is one of the policy's (4.1)."""
        host = host.lower().rstrip(".")
        return any(
            host.partition(".")[2] == pattern[2:] if pattern.startswith("*.") else host == pattern
            for pattern in self.hosts
        )


def announced(domain: str) -> str | None:
    """Return the id of the policy that a domain says it has, or None; waits for name servers."""
    answer = resolver.lookup(f"_mta-sts.{domain}", "TXT")
    said = [record for record in answer.records if re.match(r"v=STSv1\s*;", record)]
    if answer.state != "found" or len(said) != 1:
        return None
    parts = dict(part.strip().partition("=")[::2] for part in said[0].split(";") if part.strip())
    found = parts.get("id", "")
    return found if _ID.fullmatch(found) else None


async def fetch(domain: str, policy_id: str) -> Policy | None:
    """Get the policy of a domain from its web server; None if there is none that can be believed.

    The certificate has to be good, redirects are not followed, and servers of private networks are not asked.
    """
    url = f"https://mta-sts.{domain}/.well-known/mta-sts.txt"
    try:
        answer = await safe_http.ask("GET", url, schemes=("https",), most=_MAX_BYTES, seconds=_SECONDS)
    except safe_http.Unreached:
        return None
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return read(policy_id, answer.body) if answer.status == 200 and kind == "text/plain" else None


def read(policy_id: str, body: bytes) -> Policy | None:
    """Read a policy (3.2); None for what is none."""
    try:
        lines = body.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return None
    fields: dict[str, list[str]] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), []).append(value.strip())
    mode, age = (fields.get(name, [""])[0] for name in ("mode", "max_age"))
    hosts = tuple(host.lower().rstrip(".") for host in fields.get("mx", ()))
    if fields.get("version", [""])[0] != "STSv1" or mode not in _MODES or not re.fullmatch(r"[0-9]{1,10}", age):
        return None
    if not all(map(_HOST.fullmatch, hosts)) or (mode != "none" and not hosts):
        return None
    return Policy(policy_id, mode, hosts, min(int(age), _MAX_AGE_SECONDS))
