"""Tells others of events: each goes to the webhooks that asked for it, signed, until it was taken or given up.

Events become deliveries behind a cursor (`fanout`), what is due is posted (`teller`), what came of it is kept
(`outcomes`). All of it stands in rows: what a process was doing when it died is done again by the next, under the same
`webhook-id`, so that nothing is lost and whoever listens can tell a repeat.
"""
