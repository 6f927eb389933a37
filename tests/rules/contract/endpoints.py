"""Every endpoint: origin, method, path under `/v1/my`, statuses of success, scope; further `paged`, `key` (takes an
`Idempotency-Key`), the bucket it draws from if not `requests`, and whom a role needs if not only a key's scope.
"""

from typing import NamedTuple

from tests.rules.contract.rows import lines

_TEXT = """
= messages
S GET /messages 200 messages:read paged
S POST /messages 201,200 messages:send key messages
D POST /messages/batch 200 messages:send key messages
D GET /messages/{id} 200 messages:read
D POST /messages/{id}/retry 200 messages:send
D POST /messages/{id}/cancel 200 messages:send
D POST /messages/{id}/assume_sent 200 messages:send
= campaigns
S GET /campaigns 200 campaigns:read paged
S POST /campaigns 201 campaigns:write
S GET /campaigns/{id} 200 campaigns:read
S PATCH /campaigns/{id} 200 campaigns:write
S DELETE /campaigns/{id} 200 campaigns:write
S POST /campaigns/{id}/send 200 campaigns:send key sends
D POST /campaigns/{id}/pause 200 campaigns:send
D POST /campaigns/{id}/resume 200 campaigns:send
D POST /campaigns/{id}/cancel 200 campaigns:send
D POST /campaigns/{id}/approve 200 campaigns:approve
D POST /campaigns/{id}/reject 200 campaigns:approve
O POST /campaigns/{id}/ask_approval 200 campaigns:write -- whoever may not send says that it is ready
D POST /campaigns/{id}/duplicate 201 campaigns:write
D GET /campaigns/{id}/preflight 200 campaigns:read renders
D GET /campaigns/{id}/recipients 200 campaigns:read paged
D GET /campaigns/{id}/report 200 campaigns:read
D GET /campaigns/{id}/explain 200 campaigns:read
O GET /campaigns/{id}/send_times 200 campaigns:read -- when a campaign with a local time leaves where
O GET /campaigns/{id}/occurrences 200 campaigns:read paged -- the dates of a repeating campaign that are over
O GET /campaigns/{id}/experiment 200 campaigns:read -- what an A/B test or holdout says
O POST /campaigns/{id}/experiment/winner 200 campaigns:send -- a person ends an A/B test
= contacts
S GET /contacts 200 contacts:read paged
S POST /contacts 201,200 contacts:write
S GET /contacts/search 200 contacts:read paged
S PATCH /contacts/{id} 200 contacts:write
D GET /contacts/{id} 200 contacts:read
D DELETE /contacts/{id} 200 contacts:write
D GET /contacts/{id}/timeline 200 contacts:read paged
D GET /contacts/{id}/consents 200 contacts:read paged
D GET /contacts/{id}/export 200 contacts:read
D POST /contacts/{id}/merge 200 contacts:write
O GET /contacts/{id}/conversation 200 contacts:read paged -- what was said by SMS, both ways, in order
O GET /contacts/{id}/runs 200 contacts:read paged -- the flows that a person is or was in
= incoming
O GET /incoming 200 messages:read paged -- received SMS stand nowhere else but among events
O GET /incoming/{id} 200 messages:read -- one of them
O POST /incoming/{id}/seen 200 contacts:write -- the inbox of people and of programs is one
= lists
S GET /lists 200 contacts:read paged
S POST /lists 201 contacts:write
S PATCH /lists/{id} 200 contacts:write
D GET /lists/{id} 200 contacts:read
D DELETE /lists/{id} 200 contacts:write
D POST /lists/{id}/contacts/bulk 200 contacts:write
= segments
S GET /segments 200 contacts:read paged
S POST /segments 201 contacts:write
D POST /segments/count 200 contacts:read renders
D GET /segments/spec 200 contacts:read
O GET /segments/starters 200 contacts:read -- ready-made segments, to begin with
D GET /segments/{id} 200 contacts:read
D PATCH /segments/{id} 200 contacts:write
D DELETE /segments/{id} 200 contacts:write
D GET /segments/{id}/explain 200 contacts:read
= templates
S GET /templates 200 templates:read paged
S POST /templates 201 templates:write
S GET /templates/{id} 200 templates:read
S PATCH /templates/{id} 200 templates:write
S POST /templates/{id}/send_test 200 templates:write sends
S POST /templates/preview 200 templates:read renders
D GET /templates/spec 200 templates:read
D DELETE /templates/{id} 200 templates:write
O GET /templates/{id}/translations 200 templates:read paged -- a template in several languages
O GET /templates/{id}/translations/{language} 200 templates:read -- its texts in one of them
O PUT /templates/{id}/translations/{language} 200 templates:write -- and their translations
O DELETE /templates/{id}/translations/{language} 200 templates:write -- or no longer in it
= flows
S GET /flows 200 flows:read paged
S POST /flows 201 flows:write
S DELETE /flows/{id} 200 flows:write
D GET /flows/spec 200 flows:read
D GET /flows/{id} 200 flows:read
D PATCH /flows/{id} 200 flows:write
D POST /flows/{id}/activate 200 campaigns:send sends
D POST /flows/{id}/pause 200 flows:write starts
D POST /flows/{id}/archive 200 flows:write starts
D POST /flows/{id}/approve 200 campaigns:approve
D POST /flows/{id}/reject 200 campaigns:approve
O POST /flows/{id}/ask_approval 200 flows:write -- whoever may not start says that it is ready
D POST /flows/{id}/enroll 200 campaigns:send sends
O POST /flows/{id}/winner 200 campaigns:send -- a person ends the test of a random split
D POST /flows/{id}/simulate 200 flows:read renders
D GET /flows/{id}/runs 200 flows:read paged
O GET /flows/starters 200 flows:read -- ready flows, to begin with
O POST /flows/{id}/simulate_all 200 flows:read renders -- the rehearsal with many people at once
O POST /flows/{id}/replay 202 flows:write renders -- the events of the past, against a changed flow
O GET /flows/{id}/replay 200 flows:read -- its progress and result
O DELETE /flows/{id}/replay 200 flows:write -- ends it
O GET /flows/{id}/replay.csv 200 flows:read -- its people for a spreadsheet
O GET /flows/{id}/scripts 200 flows:read paged renders -- rehearsals kept with the flow, as last run
O GET /flows/{id}/report 200 flows:read -- figures of each step
O GET /flows/{id}/runs.csv 200 flows:read -- the list of runs for a spreadsheet
O GET /flows/{id}/runs/{run_id} 200 flows:read -- one run with its way through the steps
O POST /flows/{id}/runs/{run_id}/move_on 200 flows:write starts -- ends a wait early
O POST /flows/{id}/runs/move_on 200 flows:write starts -- so for many
O POST /flows/{id}/runs/{run_id}/take_out 200 flows:write starts -- one person leaves a flow
O POST /flows/{id}/runs/take_out 200 flows:write starts -- so for many
= brand
S PUT /brand 200 account:write
D GET /brand 200 account:read
= domains
S POST /domains 201 domains:write
D GET /domains 200 domains:read paged
D GET /domains/{id} 200 domains:read
D DELETE /domains/{id} 200 domains:write
D POST /domains/{id}/verify 200 domains:write
O POST /domains/{id}/rotate_key 200 domains:write -- keys of DKIM are changed now and then (RFC 6376, 6.1)
= backups
O GET /backups 200 account:write -- the backups page, for programs that watch
O POST /backups 202 account:write -- a backup before a change, from a script
O POST /backups/copies 202 account:write -- a copy on another machine before a change
O POST /backups/proofs 202 account:write -- a test restore after a change of the store
= account
S GET /account 200 account:read
D PATCH /account 200 account:write
D GET /delivery/status 200 account:read
= events
S GET /events 200 events:read paged
D POST /events 201,200 events:write key messages
D GET /events/{id} 200 events:read
D POST /events/batch 200 events:write messages
= suppressions
D GET /suppressions 200 contacts:read paged
D POST /suppressions 201,200 contacts:write
D DELETE /suppressions/{id} 200 contacts:write
= imports
D GET /imports 200 contacts:read paged
D POST /imports 201 contacts:write
D GET /imports/{id} 200 contacts:read
D GET /imports/{id}/results.csv 200 contacts:read
D POST /imports/{id}/cancel 200 contacts:write
D POST /imports/{id}/undo 200 contacts:write
= exports
D GET /exports/contacts.csv 200 contacts:read
D GET /exports/contacts.jsonl 200 contacts:read
D GET /exports/events.csv 200 events:read
D GET /exports/events.jsonl 200 events:read
D GET /exports/messages.csv 200 messages:read
D GET /exports/messages.jsonl 200 messages:read
= webhooks
D GET /webhooks 200 account:read paged
D POST /webhooks 201 account:write
D GET /webhooks/{id} 200 account:read
D PATCH /webhooks/{id} 200 account:write
D DELETE /webhooks/{id} 200 account:write
D GET /webhooks/{id}/deliveries 200 account:read paged
O POST /webhooks/{id}/rotate_secret 200 account:write -- a secret is changed without a gap
O POST /webhooks/{id}/test 200 account:write -- shows at once whether an address listens
O POST /webhooks/{id}/replay_failed 200 account:write -- what was missed comes again
O GET /webhooks/{id}/deliveries/{delivery_id} 200 account:read -- one delivery
O POST /webhooks/{id}/deliveries/{delivery_id}/replay 200 account:write -- that one again
= forms
D GET /forms 200 contacts:read paged
D POST /forms 201 contacts:write
D GET /forms/{id} 200 contacts:read
D PATCH /forms/{id} 200 contacts:write
D DELETE /forms/{id} 200 contacts:write
= people
D GET /users 200 admin paged
D POST /users 201 admin
D GET /users/{id} 200 admin
D PATCH /users/{id} 200 admin
D DELETE /users/{id} 200 admin
O GET /roles 200 admin paged -- own roles, beside the built-in ones
O POST /roles 201 admin -- made by owners and admins
O GET /roles/{id} 200 admin -- one of them
O PATCH /roles/{id} 200 admin -- for all who have it
O DELETE /roles/{id} 200 admin -- with a replacement
O GET /invitations 200 admin paged -- who was invited and has not come yet
O POST /invitations 201 admin -- by email
O POST /invitations/{id}/resend 200 admin -- with a new link
O DELETE /invitations/{id} 200 admin -- withdrawn
D GET /user 200 self
D PATCH /user 200 self
O GET /user/sessions 200 self paged -- people see where they are signed in
O PATCH /user/sessions/{id} 200 self -- name their devices
O DELETE /user/sessions/{id} 200 self -- and end what is not theirs any more
O GET /user/passkeys 200 self paged -- people see with what they sign in
O PATCH /user/passkeys/{id} 200 self -- name it
O DELETE /user/passkeys/{id} 200 self -- and remove what is lost, with their password
O GET /user/identities 200 self paged -- accounts at providers that sign in the user
O DELETE /user/identities/{id} 200 self -- and one that should no longer
O GET /sign_in_providers 200 admin paged -- the company's account instead of a password
O POST /sign_in_providers 201 admin -- each with a redirect URI of its own
O GET /sign_in_providers/{id} 200 admin -- without its secret
O PATCH /sign_in_providers/{id} 200 admin -- secrets expire, and domains change
O DELETE /sign_in_providers/{id} 200 admin -- with all that signs in by it
O POST /sign_in_providers/{id}/test 200 admin -- says what is wrong before anybody tries
O GET /sign_in 200 admin -- whether passwords are allowed
O PATCH /sign_in 200 admin -- a company wants one way in
D GET /api_keys 200 admin paged
D POST /api_keys 201 admin
D DELETE /api_keys/{id} 200 admin
D GET /audit 200 admin paged
O GET /proposals 200 campaigns:read paged -- what agents propose
O POST /proposals 201 campaigns:write renders -- only agents make them
O GET /proposals/{id} 200 campaigns:read renders -- with all that a user needs to decide
O POST /proposals/{id}/approve 200 campaigns:send sends -- only signed-in users
O POST /proposals/{id}/return 200 campaigns:send -- with a note for the agent
O POST /proposals/{id}/withdraw 200 campaigns:write -- the agent itself
O GET /agents 200 admin -- what agents there are, and whether they are stopped
O POST /agents/stop 200 admin -- one switch stops all
O POST /agents/resume 200 admin -- and lets them go on
= uploads
D POST /uploads 201 templates:write
= capture
D GET /capture 200 account:read paged
D DELETE /capture 200 account:write
D GET /capture/{id} 200 account:read
D GET /capture/{id}/raw 200 account:read
D POST /capture/{id}/simulate 200 account:write
"""

# Outside of `/v1/my`: origin, method, path, statuses of success
_OUTSIDE = """
S GET /openapi.yaml 200
D GET /healthz 200
D POST /v1/login 200
D POST /v1/my/login 200 -- another name of the same
D DELETE /v1/logout 204
D DELETE /v1/my/logout 204 -- another name of the same
D POST /v1/public/forms/{public_key} 202,303
D GET /metrics 200
O GET /readyz 200 -- who deploys waits for it, and who balances load asks it
"""


class Endpoint(NamedTuple):
    """One promised endpoint."""

    origin: str
    method: str
    path: str
    statuses: tuple[int, ...]
    scope: str
    paged: bool
    key: bool
    rate: str
    starts: bool


def _statuses(cell: str) -> tuple[int, ...]:
    return tuple(sorted(int(status) for status in cell.split(",")))


def _read() -> tuple[Endpoint, ...]:
    rows = []
    for line in lines(_TEXT):
        method, path, statuses, scope, *more = line.cells
        rate = next((word for word in more if word in ("messages", "sends", "renders")), "requests")
        if rest := set(more) - {"paged", "key", "starts", rate}:
            raise ValueError(f"{method} {path}: {rest}")
        marks = ("paged" in more, "key" in more, rate, "starts" in more)
        rows.append(Endpoint(line.origin, method, path, _statuses(statuses), scope, *marks))
    return tuple(rows)


ENDPOINTS = _read()
OUTSIDE = tuple((line.origin, *line.cells[:2], _statuses(line.cells[2])) for line in lines(_OUTSIDE))
