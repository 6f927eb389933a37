"""Connect the signals of packages to their receivers in other packages.

This is separate from `http/server.py`, which sets up the HTTP server, so that commands need not import Sanic and the
pages.
"""

from appliance.accounts import accounts, devices, passkeys
from appliance.audience.contacts import removal
from appliance.campaigns import occurrences
from appliance.content.templates import store as templates
from appliance.flows import drafts, run_ends, versions
from appliance.inbound import delivery_reports
from appliance.sending.delivery.oauth import tokens
from appliance.sending.messages import oauth_grants, outcomes, security_emails


def connect_signals() -> None:
    """Connect the receivers of all signals; the commands `serve` and `restore` and the tests call it at their start."""
    accounts.time_zone_changed.connect(occurrences.reschedule)
    devices.signed_in_on_new_device.connect(security_emails.report_new_device)
    passkeys.passkey_changed.connect(security_emails.report_passkey)
    removal.contacts_deleting.connect(run_ends.end_runs_of_deleted_contacts)
    removal.contact_merging.connect(run_ends.end_runs_of_merged_contact)
    templates.step_template_changed.connect(drafts.publish_changed_template)
    templates.compile_step_template.connect(versions.prepare_changed_step)
    outcomes.sms_accepted.connect(delivery_reports.apply_early_receipts)
    tokens.grant_refreshed.connect(oauth_grants.record_refresh)
    tokens.grant_rejected.connect(oauth_grants.record_rejection)
    outcomes.sms_uncertain.connect(delivery_reports.apply_receipts_of_uncertain)
