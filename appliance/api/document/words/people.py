"""Words about people: contacts, lists, segments, suppressions, evidence, imports, forms."""

_CONTACT = {
    "source": "where the contact came from, in your words",
    "country_code": "the country by two letters; from the phone number where nothing is said",
    "data": "values of your own, as JSON of at most 32 KiB; `tags` is a list of texts",
    "subscribed_email": "whether any e-mail address of theirs is subscribed; written, it is set on all of them",
    "subscribed_phone": "whether any phone number of theirs is subscribed; written, it is set on all of them",
    "tracking": "how far opens and clicks of theirs are followed: `full`, counted without a name (`aggregate`), `none`",
    "list_ids": "the lists they are in",
    "channels": "their addresses",
}
_WRITTEN = {
    "email": "creates or changes their e-mail address, and opts it in",
    "phone": "creates or changes their phone number (E.164), and opts it in",
    "list_ids": "the lists they join; on PATCH the static lists they are in from now on",
    "data": "on POST merged into what is there, on PATCH put in its place",
    "channels_attributes": "addresses to add, change or remove",
    "opt_in": "true lifts an opt-out of theirs, false takes consent back; absent: a new address is opted in",
    "consent_source": "where and to which words they agreed, kept as evidence",
    "data_merge": "a JSON merge patch (RFC 7396) of `data`",
}
_LIST = {
    "name": "what the list is called, once in the account whatever the case",
    "segment_id": "the segment whose people it shows; null: a static list",
    "contact_ids": "who is in it, by id; replaces whoever was",
    "double_opt_in": "whether members get marketing only after they have confirmed their address",
    "public": "whether it stands on the preference page",
}
_FORM = {
    "list_ids": "the lists that people join",
    "origins": "the sites whose pages may submit it and read the answer, as `https://example.org`",
    "fields": "what it asks for: `email`, `phone`, `first_name`, `last_name` or keys of `data`, as a name or an object",
    "double_opt_in": "whether people confirm their address by a link in a mail",
    "redirect_url": "where a browser goes afterwards; null: to a page of ours",
    "consent_text": "the words that people agree to, kept as evidence",
}
_FILTERS = "filters, all of which have to hold; none at all: everybody"

WORDS: dict[str, dict[str, str]] = {
    "Contact": _CONTACT
    | {
        "uuid": "a name of theirs that says nothing of them",
        "sendable_email": "whether marketing by e-mail may go to them: subscribed, not suppressed, and confirmed where "
        "a list wants that",
        "sendable_phone": "whether marketing by SMS may go to them",
        "verification_status": "of their first e-mail address, else of their phone number",
        "enrichment_status": "`enriched` if `data.enrichment` holds anything",
        "last_interacted_at": "when they last opened, clicked, answered, filled in a form or did anything told by an "
        "event; machines do not count",
    },
    "ContactWritten": {
        "kept_opt_out": "what the write did not lift, because they had opted out themselves: addresses, and lists as "
        "`list:5`"
    },
    "ContactWrite": _CONTACT | _WRITTEN,
    "ContactPatch": {"data_merge": _WRITTEN["data_merge"]},
    "ChannelWrite": {
        "id": "the address that is changed; absent: a new one",
        "value": "the address itself",
        "kind": "what it is; absent: an e-mail address if it has an @",
        "subscribed": "whether marketing may go to it; true lifts an opt-out",
        "_destroy": "true removes the address",
    },
    "Channel": {
        "contact_id": "whose it is",
        "kind": "what it is",
        "value": "the address itself",
        "subscribed": "whether there is consent to marketing",
        "verified": "whether somebody has answered from it: confirmed, clicked or replied",
        "opt_in_at": "when they last agreed; null: never",
        "opt_out_at": "when they opted out; null: they have not",
        "opted_out_by": "who took it out; null: nobody",
        "suppression_reason": "why nothing may go to it at all; null: it is not suppressed",
        "sent_count": "how many messages to it were taken by the next hop",
        "fail_count": "how many failed or bounced",
        "data": "values that belong to the address",
    },
    "MergeWrite": {"contact_id": "the contact who is merged in, and is gone then"},
    "ConsentRow": {
        "kind": "what kind of address it is about",
        "address": "the address; null once the person is erased",
        "act": "what was done",
        "by": "who did it",
        "source": "in what way, as `api`, `form`, `import` or `link`",
        "actor": "the key or user who did it, as `key:3`; null: the person",
        "text": "the words they saw or were said to have agreed to",
        "data": "what else is known of it",
    },
    "TimelineEntry": {
        "type": "which of the two it is",
        "id": "the id of the event or the message",
        "created_at": "when it happened",
        "event": "the event, if it is one",
        "message": "the message, if it is one",
    },
    "ContactExport": {
        "exported_at": "when this was put together",
        "contact": "the contact",
        "lists": "the lists they are in",
        "left_lists": "the lists they left",
        "suppressions": "what keeps messages from them",
        "consents": "the evidence of their consent",
        "messages": "what was sent to them",
        "message_texts": "what single messages to them said",
        "incoming": "what they wrote",
        "events": "what happened",
        "flow_runs": "their ways through flows",
    },
    "MessageText": {"headers": "further headers that it was given", "data": "the values that it was given"},
    "Suppression": {
        "channel": "which channel it closes",
        "address": "the address; null if it was erased and only its hash is kept",
        "reason": "why",
        "source": "what led to it",
        "diagnostic": "the words of the server that refused",
    },
    "SuppressionWrite": {
        "address": "an e-mail address or a phone number",
        "channel": "which channel it closes; absent: by the address",
        "reason": "why; `manual` unless it is said",
        "diagnostic": "the words of the server that refused, if there are any",
        "expires_at": "when it ends; only `manual` may",
    },
    "Lift": {"reason": "why it is taken off, for the evidence; needed here or in the query"},
    "ContactList": _LIST
    | {
        "contacts_count": "how many people are in it",
        "sendable_count": "how many of them marketing may go to",
        "stale": "whether the segment has changed and the list is being brought up to date",
        "last_populated_at": "when it was last made from its segment; null for a static list",
    },
    "ListCreate": _LIST,
    "ListPatch": _LIST | {"segment_id": "the segment that it shows from now on; null keeps its people as they are"},
    "Sendable": {"email": "by e-mail", "sms": "by SMS"},
    "BulkWrite": {"add": "who joins, by id or e-mail address", "remove": "who leaves, by id or e-mail address"},
    "BulkDone": {
        "added": "how many joined",
        "removed": "how many left",
        "unknown": "what names nobody, as it was sent",
        "kept_opt_out": "who left the list themselves, and was not put back",
    },
    "Segment": {"filters": _FILTERS, "contacts_count": "how many people are in it; null until they are first counted"},
    "SegmentCreate": {"filters": _FILTERS},
    "SegmentPatch": {"filters": _FILTERS},
    "CountWrite": {"filters": _FILTERS},
    "Counted": {"sample": "some of them", "rows": "the share of each filter, in the order they were sent"},
    "FilterShare": {"count": "how many people this filter alone lets through", "estimated": "whether that is a guess"},
    "Explained": {
        "segment_id": "the segment",
        "contact_id": "the person",
        "matches": "whether they are in it",
    },
    "Row": {
        "name": "the name of the filter",
        "predicate": "its predicate",
        "value": "its value, as it was sent",
        "matches": "whether it holds",
        "actual": "what it found in the person",
        "rows": "the filters of a group",
    },
    "FilterField": {
        "type": "its type, which says what predicates it has",
        "section": "under which heading it is offered",
        "aliases": "other names that mean the same",
        "choices": "the values it may have, where they are few",
        "of": "the noun whose ids its values are",
    },
    "FilterTest": {
        "predicate": "its name in a filter",
        "takes": "what its value is",
        "negative": "whether it also lets those through of whom nothing is known",
    },
    "FilterSpec": {"fields": "the names that filters know", "types": "the predicates of each type"},
    "Import": {
        "resource": "what is imported",
        "phase": "what is being done just now; null: nothing",
        "dry_run": "whether it only reports what it would do",
        "filename": "what the file was called",
        "format": "how the file was read",
        "product": "the product whose export it looks like; null: none that is known",
        "columns": "the columns of the file",
        "options": "what it was told to do",
        "status": "how far it is",
        "total": "how many lines there are",
        "processed": "how many are done with",
        "created": "how many people it made",
        "updated": "how many it changed",
        "warnings": "lines that came in without one of their values, or with a date that is kept as text; "
        "`results.csv` says which and why",
        "arriving": "how the contacts stand afterwards, each counted once",
        "left_in_place": "contacts that its undo did not remove",
        "skipped": "how many it left as they were",
        "failed": "how many were wrong; `results.csv` says what about them",
        "restored": "how many were put back by `undo`",
        "progress": "from 0 to 1",
        "error": "why it failed as a whole; null: it did not",
        "undo_until": "until when it can be undone; null: it cannot",
        "undone_at": "when it was undone; null: it was not",
    },
    "ImportColumn": {
        "target": "where it goes; empty: nowhere",
        "samples": "what is in its first rows",
        "dates": "how its dates are written: without any doubt (`clear`), day first (`dmy`), month first (`mdy`), so "
        "that either may be meant (`ambiguous`), or both in turn (`mixed`); null: it is no column of dates. The last "
        "two are kept as text, the others become ISO 8601",
    },
    "ImportArriving": {
        "subscribed": "contacts whose address is subscribed",
        "unsubscribed": "contacts whose address is not subscribed",
        "suppressed": "contacts whose address is on the suppression list",
        "reasons": "why they are not subscribed: `file` says so, they left `before`, the import subscribes nobody "
        "(`not_opted_in`), or the reason of the suppression",
    },
    "ImportLeftInPlace": {
        "changed": "contacts that somebody changed since",
        "messaged": "contacts that a message was sent to since",
        "in_another_list": "contacts that were added to another list since",
    },
    "ImportOptions": {
        "map": "where columns go, by their names; null leaves one out; those not named go where their name says",
        "list_ids": "lists that everybody joins",
        "list_names": "further ones by name; those that are missing are made",
        "on_conflict": "what becomes of somebody who is known: `merge` changes them, `skip` leaves them",
        "opt_in": "whether the addresses are opted in; never lifts what a person did themselves",
        "consent_source": "where and to which words they agreed, kept as evidence",
        "default_country": "the country of phone numbers without country code, by two letters; the account's where "
        "nothing is said, none with null",
        "date_order": "how dates like 03/04/2026 are written, day or month first, in columns where no value tells; "
        "without it these stay text",
        "trigger_flows": "whether it starts flows as if each had been added by hand",
    },
    "ImportForm": {"resource": "what is imported; `contacts` unless it is said", "options": "JSON (see ImportOptions)"},
    "Form": _FORM
    | {
        "public_key": "names it where it is submitted",
        "url": "its own page",
        "submissions_count": "how often it was submitted",
        "confirmed_count": "how many of those confirmed their address",
    },
    "FormWrite": _FORM,
    "FormPatch": _FORM,
    "FormField": {
        "name": "`email`, `phone`, `first_name`, `last_name`, or a key of `data`",
        "label": "what stands beside it on the form's own page",
        "required": "whether it has to be filled in",
    },
}
