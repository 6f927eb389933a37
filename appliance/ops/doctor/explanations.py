"""Explain the findings of `doctor` to people who do not administer the server: a title, the meaning, what to do.

The `words` of a finding are for the administrator. A finding with another meaning than the usual one of its check and
level has its own `meaning`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from appliance.core.i18n import gettext, gettext_noop
from appliance.ops.doctor.checks import Finding


class _Explanation(NamedTuple):
    """The title of a check, and what its findings mean, by level."""

    title: str
    meanings: Mapping[str, str]


_EXPLANATIONS = {
    "configuration": _Explanation(gettext_noop("Server settings"), {
        "ok": gettext_noop("The settings of the server are valid."),
        "warn": gettext_noop("A setting of the server may not work as intended. Ask your administrator to check it."),
        "fail": gettext_noop(
            "The settings of the server cannot be read, so nothing else was checked. Ask your administrator to correct "
            "them."
        ),
    }),
    "data directory": _Explanation(gettext_noop("Stored files"), {
        "ok": gettext_noop("Your data is stored where no other user of the server can read it."),
        "fail": gettext_noop(
            "Campanero cannot store all of its data, so sending may stop. Ask your administrator to correct this now."
        ),
    }),
    "key file": _Explanation(gettext_noop("Encryption key"), {
        "ok": gettext_noop("The key that protects stored passwords and the links of sent emails is in place."),
        "fail": gettext_noop(
            "The key that protects stored passwords and the links of sent emails is missing or wrong. Ask your "
            "administrator to put it back; until then Campanero cannot start again."
        ),
    }),
    "SQLite": _Explanation(gettext_noop("Database software"), {
        "ok": gettext_noop("The software that stores your data is up to date."),
    }),
    "database": _Explanation(gettext_noop("Database"), {
        "ok": gettext_noop("Your contacts, campaigns and results are intact."),
        "fail": gettext_noop(
            "Part of your data cannot be read. Send nothing for now, and ask your administrator to repair it or to "
            "restore a backup."
        ),
    }),
    "schema": _Explanation(gettext_noop("Database version"), {
        "ok": gettext_noop("Your data fits this version of Campanero."),
        "warn": gettext_noop(
            "Campanero was updated and has to be restarted; nothing else was checked. Ask your administrator."
        ),
        "fail": gettext_noop(
            "Your data was written by a newer version of Campanero. Ask your administrator to install that version."
        ),
    }),
    "version": _Explanation(gettext_noop("New version"), {
        "note": gettext_noop("A newer version of Campanero is available. Ask your administrator to install it."),
    }),
    "account": _Explanation(gettext_noop("Account"), {
        "fail": gettext_noop("The account to be checked does not exist."),
    }),
    "disk": _Explanation(gettext_noop("Storage space"), {
        "ok": gettext_noop("There is enough space for contacts, images and backups."),
        "warn": gettext_noop(
            "The storage of the server is almost full, and sending stops when it is. Ask your administrator to make "
            "room."
        ),
        "fail": gettext_noop(
            "The storage of the server is full, so nothing is sent. Ask your administrator to make room; sending then "
            "resumes by itself."
        ),
    }),
    "Litestream": _Explanation(gettext_noop("Continuous copy"), {
        "ok": gettext_noop("Your data is copied to another place within seconds."),
        "note": gettext_noop(
            "The continuous copy is as safe as the place where it is: anyone with access to it can read your data."
        ),
        "fail": gettext_noop(
            "Your data is not copied to another place now, so the loss of the server would lose what is newer than the "
            "last copy. Ask your administrator to correct this."
        ),
    }),
    "standby": _Explanation(gettext_noop("Second server"), {
        "ok": gettext_noop("This server has a copy of your data that is seconds old, and is ready to take over."),
        "warn": gettext_noop("This server does not have the latest data yet. Ask your administrator."),
        "fail": gettext_noop("This server does not follow the first one now. Ask your administrator."),
    }),
    "lease": _Explanation(gettext_noop("Permission to send"), {
        "ok": gettext_noop("This server is the one that sends."),
        "note": gettext_noop("This server takes the permission to send when it is started."),
        "warn": gettext_noop("This server takes the permission to send again by itself."),
        "fail": gettext_noop(
            "This server may not send, because another one does or the place that decides cannot be reached. Ask your "
            "administrator."
        ),
    }),
    "backups": _Explanation(gettext_noop("Backups"), {
        "ok": gettext_noop("Your data is backed up regularly."),
        "note": gettext_noop("The first backup is created automatically."),
        "warn": gettext_noop(
            "The last backup is too old: if the server broke now, you would lose everything since then. Create a "
            "backup under Settings, Backups, and tell your administrator."
        ),
    }),
    "copies": _Explanation(gettext_noop("Copies on another machine"), {
        "ok": gettext_noop("Encrypted copies of your data are on another machine."),
        "note": gettext_noop(
            "Your data is on this server only: if it broke or burned, your backups would be lost with it. Set up "
            "copies under Settings, Backups."
        ),
        "warn": gettext_noop(
            "The last attempt to copy your data to another machine failed. Campanero tries again. The reason is under "
            "Settings, Backups."
        ),
        "fail": gettext_noop(
            "The last copy of your data on another machine is too old: if the server broke now, you would lose "
            "everything since then. The reason is under Settings, Backups."
        ),
    }),
    "test restore": _Explanation(gettext_noop("Test restore"), {
        "ok": gettext_noop("The newest copy of your data was restored for a test, and it was complete."),
        "warn": gettext_noop(
            "The newest copy of your data could not be tested. Campanero tries again. The reason is under Settings, "
            "Backups."
        ),
        "fail": gettext_noop(
            "The newest copy of your data cannot be restored. Make a new copy under Settings, Backups, and tell your "
            "administrator."
        ),
    }),
    "clock": _Explanation(gettext_noop("Clock of the server"), {
        "ok": gettext_noop("The clock seems right, so scheduled messages go out on time."),
        "fail": gettext_noop(
            "The clock of the server is wrong, so scheduled messages may go out at the wrong time. Ask your "
            "administrator to set it."
        ),
    }),
    "service": _Explanation(gettext_noop("Campanero itself"), {
        "ok": gettext_noop("Campanero is running."),
        "warn": gettext_noop(
            "Campanero stopped while it was sending. Ask your administrator to start it; it then continues where it "
            "stopped."
        ),
    }),
    "listen": _Explanation(gettext_noop("Access by browser"), {
        "ok": gettext_noop("Pages, forms and the links of your emails can be opened on the server."),
        "fail": gettext_noop(
            "Campanero does not answer at its address, so pages, forms and the links of your emails may not open. Ask "
            "your administrator to correct this now."
        ),
    }),
    "inbound.listen": _Explanation(gettext_noop("Returned emails"), {
        "ok": gettext_noop("Emails that could not be delivered can come back, and their addresses are suppressed."),
        "note": gettext_noop(
            "Emails that could not be delivered are reported by your email provider, if you connect it."
        ),
        "warn": gettext_noop(
            "Nobody notices emails that could not be delivered, so you keep writing to dead addresses, and more of "
            "your emails end up in spam. Ask your administrator to receive returned emails."
        ),
        "fail": gettext_noop(
            "Emails that could not be delivered cannot come back, so you keep writing to dead addresses. Ask your "
            "administrator to correct this before your next large campaign."
        ),
    }),
    "submission.listen": _Explanation(gettext_noop("SMTP submission (STARTTLS)"), {
        "ok": gettext_noop("Your other programs can send email through Campanero."),
        "fail": gettext_noop(
            "Your other programs cannot send email through Campanero. Ask your administrator to correct this now."
        ),
    }),
    "submission.listen_tls": _Explanation(gettext_noop("SMTP submission (TLS)"), {
        "ok": gettext_noop("Your other programs can send email through Campanero."),
        "fail": gettext_noop(
            "Your other programs cannot send email through Campanero. Ask your administrator to correct this now."
        ),
    }),
    "submission.tls_certificate": _Explanation(gettext_noop("Certificate for SMTP submission"), {
        "ok": gettext_noop("Programs can check that they send their email to Campanero."),
        "warn": gettext_noop(
            "Programs will soon refuse to send through Campanero, or already do. Ask your administrator for a new "
            "certificate."
        ),
        "fail": gettext_noop(
            "Programs refuse to send through Campanero. Ask your administrator to correct the certificate now."
        ),
    }),
    "tls.certificate": _Explanation(gettext_noop("Security certificate"), {
        "ok": gettext_noop("Browsers trust the pages, forms and links of Campanero."),
        "warn": gettext_noop(
            "Browsers will soon warn people who open your forms and links, or already do. Ask your administrator for a "
            "new certificate."
        ),
        "fail": gettext_noop(
            "Browsers warn people who open your forms and links. Ask your administrator to correct the certificate now."
        ),
    }),
    "inbound.tls_certificate": _Explanation(gettext_noop("Certificate for returned emails"), {
        "ok": gettext_noop("Emails that come back are encrypted on their way."),
        "warn": gettext_noop(
            "Emails that come back will soon not be encrypted. Ask your administrator for a new certificate."
        ),
        "fail": gettext_noop(
            "Emails that come back cannot be encrypted, and some may be lost. Ask your administrator to correct the "
            "certificate."
        ),
    }),
    "acme.http_listen": _Explanation(gettext_noop("Renewal of the security certificate"), {
        "ok": gettext_noop("The certificate authority can reach Campanero, and the certificate is renewed by itself."),
        "warn": gettext_noop(
            "The certificate authority may not reach Campanero, and then the security certificate is not renewed. Ask "
            "your administrator to open the port."
        ),
    }),
    "queue": _Explanation(gettext_noop("Messages waiting to be sent"), {
        "ok": gettext_noop("All messages go out on time."),
        "warn": gettext_noop(
            "Messages that should have gone out are still waiting. The outbox says why; tell your administrator if "
            "they stay there."
        ),
    }),
    "events": _Explanation(gettext_noop("Reactions to what contacts do"), {
        "warn": gettext_noop(
            "Flows or webhooks are late to react to what contacts do. Nothing is lost, but tell your administrator if "
            "it lasts."
        ),
        "fail": gettext_noop(
            "Flows or webhooks may miss what contacts do, because an older copy of the data is in use. Ask your "
            "administrator to look at it before you rely on them."
        ),
    }),
    "consent": _Explanation(gettext_noop("Access to the mailbox"), {
        "ok": gettext_noop("Campanero may send email for the mailbox that you connected."),
        "warn": gettext_noop("The access to the mailbox ends soon: connect it again, so that no email has to wait."),
        "fail": gettext_noop(
            "Campanero may not send email for the mailbox. Emails wait and are sent once an owner or admin connects it."
        ),
    }),
    "outgoing ports": _Explanation(gettext_noop("Ports of the mail server"), {
        "ok": gettext_noop("The port of the mail server can be reached."),
        "fail": gettext_noop(
            "The port of the mail server cannot be reached, but another one can: select that port under Settings, "
            "Sending."
        ),
    }),
    "email transport": _Explanation(gettext_noop("Sending email"), {
        "ok": gettext_noop("Emails can be sent."),
        "fail": gettext_noop(
            "No email can be sent at the moment. Messages wait and go out once this is solved: check the login under "
            "Settings, Sending, or ask your administrator."
        ),
    }),
    "HELO name": _Explanation(gettext_noop("Name of the server"), {
        "ok": gettext_noop("Mail servers can see who sends your emails."),
        "warn": gettext_noop(
            "Mail servers may not be able to see who sends your emails, which brings more of them into spam. Ask your "
            "administrator to check the name of the server."
        ),
        "fail": gettext_noop(
            "Mail servers cannot see who sends your emails, so many will reject them or treat them as spam. Ask your "
            "administrator to correct the name of the server."
        ),
    }),
    "SMS transport": _Explanation(gettext_noop("Sending SMS"), {
        "ok": gettext_noop("SMS can be sent."),
        "warn": gettext_noop(
            "SMS can be sent, but a setting of the SMS provider may not work as intended. Ask your administrator."
        ),
        "fail": gettext_noop(
            "No SMS can be sent at the moment. Messages wait and go out once this is solved: check the login under "
            "Settings, Sending, or ask your administrator."
        ),
    }),
    "SMS callbacks": _Explanation(gettext_noop("Replies by SMS"), {
        "ok": gettext_noop("Replies and delivery reports arrive if your SMS provider is told where to send them."),
        "warn": gettext_noop(
            "Replies such as STOP do not arrive, so nobody can unsubscribe by SMS. Send no marketing SMS until your "
            "administrator has given Campanero a public address."
        ),
    }),
    "SMS": _Explanation(gettext_noop("SMS limits"), {
        "warn": gettext_noop(
            "The limit of SMS a day is used up. The others go out when the next day begins; if that is too slow, ask "
            "your administrator to raise the limit."
        ),
    }),
    "links": _Explanation(gettext_noop("Links in emails"), {
        "ok": gettext_noop("The links of your emails open over a secure connection."),
        "note": gettext_noop(
            "The links of your emails are not secure yet. This is fine for tests; before you write to real contacts, "
            "ask your administrator for a secure address (https)."
        ),
        "warn": gettext_noop(
            "The links of your emails are not secure, so inboxes show no unsubscribe button, and more people report "
            "your emails as spam. Ask your administrator for a secure address (https)."
        ),
        "fail": gettext_noop(
            "Browsers warn people who click a link in your emails. Ask your administrator to correct this before your "
            "next campaign."
        ),
    }),
    "account address": _Explanation(gettext_noop("Address of your links"), {
        "ok": gettext_noop("The links of your emails open at the address of your account."),
        "warn": gettext_noop(
            "The links of your emails may not open, or may stop working soon. Click one in a test email; if it does "
            "not open, ask your administrator to correct this before your next campaign."
        ),
        "fail": gettext_noop(
            "The links of your emails do not open at the address of your account. Ask your administrator to correct "
            "this before your next campaign."
        ),
    }),
    "sending": _Explanation(gettext_noop("Stop switch"), {
        "ok": gettext_noop("Nothing stops your sending."),
        "warn": gettext_noop("All sending is stopped. Messages wait until you resume sending under Settings, Sending."),
    }),
    "domains": _Explanation(gettext_noop("Sending domain"), {
        "note": gettext_noop("You have no sending domain yet. Add one before you write to real contacts."),
        "warn": gettext_noop(
            "You have no sending domain yet, so many of your emails are rejected or end up in spam. Add your domain."
        ),
    }),
    "domain": _Explanation(gettext_noop("Sending domain %(domain)s"), {
        "ok": gettext_noop("Mailbox providers can see that your emails are really from you."),
        "warn": gettext_noop(
            "An entry of this domain (a DNS record) is missing or wrong, or it could not be looked up. More of your "
            "emails may end up in spam: open the domain to see what to add, or whom to ask."
        ),
        "fail": gettext_noop(
            "An entry of this domain (a DNS record) is missing or wrong, so emails from it are rejected or end up in "
            "spam. Open the domain to see what to add, or whom to ask."
        ),
    }),
    "from": _Explanation(gettext_noop("From address"), {
        "ok": gettext_noop("Mailbox providers can see that emails from this address are really from you."),
        "warn": gettext_noop(
            "Mailbox providers cannot see that emails from this address are really from you, so many end up in spam. "
            "Add its domain under Settings, Domains."
        ),
        "fail": gettext_noop(
            "Nothing can be sent from this address until its domain is verified. Add the domain under Settings, "
            "Domains."
        ),
    }),
    "ledger": _Explanation(gettext_noop("Numbers in reports"), {
        "ok": gettext_noop("Recipients and sent messages add up in the reports of all campaigns."),
        "warn": gettext_noop(
            "For some contacts the number of emails sent is too low. Sending is not affected, and you need not do "
            "anything."
        ),
        "fail": gettext_noop(
            "The report of a campaign does not add up, so do not rely on its numbers. Give this to your administrator "
            "before you send the campaign to anybody again."
        ),
    }),
    "flows": _Explanation(gettext_noop("Flows"), {
        "ok": gettext_noop("The numbers of all flows add up."),
        "warn": gettext_noop(
            "Contacts wait in a flow although their next step is due. Tell your administrator if it lasts."
        ),
        "fail": gettext_noop(
            "The numbers of a flow do not add up, or contacts are stuck in it. Give this to your administrator."
        ),
    }),
    "webhooks": _Explanation(gettext_noop("Webhooks"), {
        "ok": gettext_noop("Other programs are told what happens in your account."),
        "warn": gettext_noop(
            "Another program does not accept what Campanero tells it. Have that program checked; Campanero keeps "
            "trying."
        ),
        "fail": gettext_noop(
            "Another program is no longer told what happens in your account, because the secret of its webhook cannot "
            "be read. Ask your administrator."
        ),
    }),
    "seed": _Explanation(gettext_noop("Test message"), {
        "ok": gettext_noop("The test message arrived."),
        "fail": gettext_noop("The test message did not arrive. Ask your administrator to look at it before you send."),
    }),
    "seed sender": _Explanation(gettext_noop("Test message: From address"), {
        "warn": gettext_noop("You have no From address yet. Set one before you write to real contacts."),
        "fail": gettext_noop("You have no From address, so your emails are rejected. Set one under Settings, General."),
    }),
    "seed DKIM": _Explanation(gettext_noop("Test message: signature (DKIM)"), {
        "ok": gettext_noop("The message is signed, so mailbox providers can see that it is really from you."),
        "warn": gettext_noop(
            "The message is not signed. Add your domain under Settings, Domains before you write to real "
            "contacts."
        ),
        "fail": gettext_noop(
            "The message is not signed, or its signature is not valid, so your emails are rejected or end up in spam. "
            "Check your domain under Settings, Domains."
        ),
    }),
    "seed SPF": _Explanation(gettext_noop("Test message: allowed server (SPF)"), {
        "ok": gettext_noop("Your domain says where emails that could not be delivered go."),
        "warn": gettext_noop(
            "Your domain does not say yet where emails that could not be delivered go. Add the record of the return "
            "path under Settings, Domains."
        ),
    }),
    "seed DMARC": _Explanation(gettext_noop("Test message: protection of your name (DMARC)"), {
        "ok": gettext_noop("The message passes the check that large mailbox providers make first."),
        "warn": gettext_noop(
            "The message would not pass the check that large mailbox providers make first. Add what is missing under "
            "Settings, Domains."
        ),
        "fail": gettext_noop(
            "The message does not pass the check that large mailbox providers make first, so they reject your emails "
            "or put them into spam. Add what is missing under Settings, Domains."
        ),
    }),
    "seed one-click": _Explanation(gettext_noop("Test message: unsubscribe button"), {
        "ok": gettext_noop("Inboxes can show an unsubscribe button beside your name."),
        "warn": gettext_noop(
            "Inboxes show no unsubscribe button, because the links of your emails are not secure. Ask your "
            "administrator for a secure address (https)."
        ),
        "fail": gettext_noop(
            "The unsubscribe button of inboxes does not work, so more people report your emails as spam. Ask your "
            "administrator to correct this before you send."
        ),
    }),
}  # fmt: skip
_DOMAIN_CHECK = "domain "


def name_check(check: str) -> str:
    """Return the title of a check for people who do not administer the server."""
    domain = check.removeprefix(_DOMAIN_CHECK) if check.startswith(_DOMAIN_CHECK) else None
    return gettext(_find(check).title, **({} if domain is None else {"domain": domain}))


def explain(finding: Finding) -> str:
    """Return what a finding means to people who do not administer the server, and what to do, in full sentences."""
    return finding.meaning or gettext(_find(finding.check).meanings[finding.level])


def _find(check: str) -> _Explanation:
    return _EXPLANATIONS["domain" if check.startswith(_DOMAIN_CHECK) else check]
