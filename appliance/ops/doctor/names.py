"""The names mail is sent from: what DNS says of them, and whether mail from the addresses in use is aligned with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from appliance.ops.doctor.findings import Line
from appliance.sending.domains import look, records, store
from appliance.sending.domains import records as spelling
from appliance.sending.domains.records import Record
from appliance.sending.messages import senders as rules
from appliance.settings import config
from appliance.storage.models import Account, SendingDomain
from appliance.storage.open import rows


def domains(_: Path, account_id: int | None) -> Iterator[Line]:
    """Ask DNS for the records of every sending domain now; what is stored about them stays as it is."""
    enabled = SendingDomain.select().where(SendingDomain.enabled).order_by(SendingDomain.id)
    found = list(enabled if account_id is None else enabled.where(SendingDomain.account == account_id))
    if not found:
        is_real = config.current().email.transport != "capture"
        words = "none yet: mail that leaves has to be from a domain of yours (page Settings, Sending domains)"
        yield Line("warn" if is_real else "ok", "domains", words)
    for domain in found:
        wanted = records.of(domain)
        seen = look.look(wanted, domain.name)
        wrong = [one for one in seen if one.valid != "valid"]
        for record in wrong:
            if record.value:
                yield _record(domain, record)
        yield from _nameless(domain, [one for one in wrong if not one.value])
        if not wrong:
            yield Line("ok", f"domain {domain.name}", f"all {len(seen)} records are right")


def _nameless(domain: SendingDomain, waiting: list[Record]) -> Iterator[Line]:
    """Tell once why some records cannot be named yet."""
    for problem in dict.fromkeys(one.problem for one in waiting):
        those = [one for one in waiting if one.problem == problem]
        named = ", ".join(f"{one.record_type} {one.name}" for one in those)
        is_grave = any(one.required for one in those) and config.current().email.transport != "capture"
        fix = 'base_url = "https://mail.example.com"' if problem == records.local_name() else ""
        yield Line("fail" if is_grave else "warn", f"domain {domain.name}", f"{named}: {problem}", fix)


def _record(domain: SendingDomain, record: Record) -> Line:
    name = f"domain {domain.name}"
    said = f"{record.record_type} {record.name} ({record.purpose.replace('_', ' ')}): {record.problem or 'not seen'}"
    if record.valid == "unknown":
        return Line("warn", name, f"{said} (could not be asked)")
    is_grave = record.required and config.current().email.transport != "capture"
    value = f"{record.priority} {record.value}".strip()
    shown = f'"{value}"' if record.record_type == "TXT" else f"{value}."
    return Line("fail" if is_grave else "warn", name, said, f"{record.name}. {record.record_type} {shown}")


class _Used(NamedTuple):
    """A From address in use, and by what."""

    account_id: int
    address: str
    by: str


def senders(_: Path, account_id: int | None) -> Iterator[Line]:
    """Check every address that mail is from now: of the accounts, and of campaigns that are to go or on their way."""
    here = config.current().email
    for number, address, by in dict.fromkeys(_used(account_id)):
        domain = spelling.of_address(address)
        if store.is_verified(number, domain):
            words = f"{address} ({by}): signed by its own domain, so that DMARC is met"
            attention = store.attention(number, domain)
            yield Line("warn" if attention else "ok", "from", f"{words}; {attention}" if attention else words)
            continue
        is_grave = here.transport != "capture" and not here.allow_unverified_domains
        name = spelling.show_domain(domain)
        words = f"{address} ({by}): {name} is not verified, so nothing is signed and DMARC is not met"
        yield Line("fail" if is_grave else "warn", "from", words, f"campanero: Settings, Sending domains, add {domain}")


def _used(account_id: int | None) -> Iterator[_Used]:
    accounts = Account.select().order_by(Account.id)
    for account in accounts if account_id is None else accounts.where(Account.id == account_id):
        address = rules.resolve(account, None)
        if account.email_from_email or not address.endswith(".invalid"):
            yield _Used(account.id, address, f"account {account.id}")
        live = rows(
            "SELECT c.id, t.from_email FROM campaign c JOIN template t ON t.id = c.template_id WHERE c.account_id = ? "
            "AND c.deleted_at IS NULL AND c.status IN ('active', 'paused') ORDER BY c.id",
            (account.id,),
        )
        for number, chosen in live:
            used = rules.resolve(account, chosen)
            if not used.endswith(".invalid"):
                yield _Used(account.id, used, f"campaign {number}")
