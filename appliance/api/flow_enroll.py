"""Lets people into a flow over the API."""

from appliance.account import audit
from appliance.api.declare import Answer, Call, Routes
from appliance.api.nested_faults import checked
from appliance.db.work import call, commit
from appliance.flows import manual_enrollment
from appliance.flows.manual_enrollment import Enrolled, EnrollWrite

ROUTES = Routes()


@ROUTES.add(
    "POST", "/flows/{id}/enroll", scope="campaigns:send", reads=EnrollWrite, returns=Enrolled, rate="sends",
    inside=checked(manual_enrollment.check, either=("contact_ids", "segment_id")),
)  # fmt: skip
async def enroll(request: Call) -> Answer:
    """Let people into an active flow: named by id, or everybody in a segment now."""
    chosen = await call(manual_enrollment.who, request.account_id, request.id, request.body)
    done, test = Enrolled(), request.credential.test
    # In small parts, so that nobody else's write waits; the same request may be repeated, for who is inside stays so
    for start in range(0, len(chosen), manual_enrollment.CHUNK):
        some = await commit(manual_enrollment.let_in, request.id, chosen[start : start + manual_enrollment.CHUNK], test)
        if some is None:
            break
        done.enrolled += some.enrolled
        done.already_inside += some.already_inside
        done.frequency += some.frequency
    told = {"enrolled": done.enrolled}
    await commit(audit.note, request.by, request.account_id, "flow_enroll", f"flow:{request.id}", told)
    return Answer(done)
