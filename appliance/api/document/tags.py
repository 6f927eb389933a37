"""What the parts of the interface are about, in words."""

INTRODUCTION = """\
Email and SMS marketing for one account at a time: contacts with their consent, lists and segments, campaigns, flows,
single messages, and everything that happens to them.

Every request carries `Authorization: Bearer` with a key of the account. Requests and answers are JSON in UTF-8; times
are answered in UTC with milliseconds and read with any offset. Absent keys keep what is stored, `null` and `""` clear
it. Keys that are unknown or read-only are ignored and named in `X-Ignored-Fields`, in a 422 too; unknown parameters of
a query are refused, and so are filters by an id that is not there.

Lists are paged by `page` and `limit` and say in their headers how many there are. Whatever is refused has one shape,
`Error`, and names all that is wrong at once. Within version 1 only additions come: clients
ignore what they do not know.
"""

TAGS = {
    "messages": "Single messages, and every message to anybody: what it said and what became of it.",
    "campaigns": "One message to many people at once, now or at a time: drafts, sends, reports.",
    "contacts": "People with their addresses, their consent and the evidence for it, and their history.",
    "incoming": "SMS that people wrote.",
    "suppressions": "Addresses that must not be written to, account-wide.",
    "exports": "Contacts, events and messages as files.",
    "lists": "Groups of people by membership.",
    "segments": "Groups of people that follow from filters.",
    "imports": "Files of people, and what came of them.",
    "forms": "Forms through which people sign themselves up.",
    "templates": "What a message says: subject, body and design; previews and tests.",
    "uploads": "Pictures for designs and the brand.",
    "flows": "Automations: an event starts them, steps wait, decide and send.",
    "brand": "How the account looks and sounds.",
    "domains": "Domains that mail may come from, and their DNS records.",
    "account": "The account: its settings, what it can do and what stands in its way.",
    "delivery": "How sending stands right now.",
    "capture": "What was kept on this machine instead of sent: everything on a fresh installation, and what test keys "
    "send.",
    "events": "Everything that happened, recorded by the service or by clients.",
    "webhooks": "Addresses that are told of events.",
    "users": "The people of the account, for its owner and admins.",
    "user": "Oneself: name, password, second factor, sessions.",
    "api_keys": "Keys of the account, for its owner and admins.",
    "audit": "Who did what, for the account's owner and admins.",
    "login": "Tokens for people.",
    "hooks": "Where providers tell what became of messages, and what people answered.",
    "service": "The service itself: its health and its description.",
}
