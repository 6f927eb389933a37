"""Automations: an event starts them; steps wait, branch and send.

Generated from the OpenAPI document by `python -m clients.generator`; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campanero_client._transport import AsyncDownload, AsyncPaginator, AsyncTransport, Download, Paginator, Transport

if TYPE_CHECKING:
    from typing import Unpack

    from campanero_client import types


class Flows:
    """Automations: an event starts them; steps wait, branch and send."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def export_runs_csv(self, id: int, /, **query: Unpack[types.ExportFlowRunsCsvQuery]) -> Download:
        """Export the runs of a flow as CSV. Also requires `contacts:read`.

        Scope: `flows:read`.
        """
        return Download(self._transport, f"/v1/my/flows/{id:d}/runs.csv", query)

    def list(self, /, **query: Unpack[types.ListFlowsQuery]) -> Paginator[types.Flow]:
        """List flows, newest first.

        Scope: `flows:read`. Open to agents.
        """
        return Paginator(self._transport, "/v1/my/flows", query)

    def create(self, /, **body: Unpack[types.FlowCreate]) -> types.Flow:
        """Create a flow, as a draft unless `status` is given.

        A branch, and a trigger with conditions on the contact, require `contacts:read` too, and conditions on
        the data of events `events:read`. Scope: `flows:write`. Open to agents.
        """
        result: types.Flow = self._transport.call("POST", "/v1/my/flows", body=body)
        return result

    def describe(self) -> types.FlowSpec:
        """Get the step types with their properties, and the events that start flows.

        Scope: `flows:read`. Open to agents.
        """
        result: types.FlowSpec = self._transport.call("GET", "/v1/my/flows/spec")
        return result

    def list_starters(self) -> types.FlowStarters:
        """Get predefined flows in the colours of the account.

        Scope: `flows:read`. Open to agents.
        """
        result: types.FlowStarters = self._transport.call("GET", "/v1/my/flows/starters")
        return result

    def get(self, id: int) -> types.Flow:
        """Get a flow.

        Scope: `flows:read`. Open to agents.
        """
        result: types.Flow = self._transport.call("GET", f"/v1/my/flows/{id:d}")
        return result

    def update(self, id: int, /, **body: Unpack[types.FlowPatch]) -> types.FlowChanged:
        """Update a flow; `steps` replaces all steps, `status` changes its state.

        Steps, trigger and goal of an active flow require `campaigns:send` too, because they take effect at once.
        A new branch, and new conditions of the trigger on the contact, require `contacts:read` too, and new
        conditions on the data of events `events:read`. Scope: `flows:write`. Open to agents.
        """
        result: types.FlowChanged = self._transport.call("PATCH", f"/v1/my/flows/{id:d}", body=body)
        return result

    def delete(self, id: int) -> types.Flow:
        """Delete a flow. Its runs exit and open messages are cancelled; sent messages and events are kept.

        Scope: `flows:write`.
        """
        result: types.Flow = self._transport.call("DELETE", f"/v1/my/flows/{id:d}")
        return result

    def activate(self, id: int, /, **body: Unpack[types.ActivateRequest]) -> types.Flow:
        """Activate a draft or resume a paused flow.

        Scope: `campaigns:send`.
        """
        result: types.Flow = self._transport.call("POST", f"/v1/my/flows/{id:d}/activate", body=body)
        return result

    def pause(self, id: int) -> types.Flow:
        """Pause a flow: no contact enters, and runs stay in their steps.

        Scope: `flows:write`.
        """
        result: types.Flow = self._transport.call("POST", f"/v1/my/flows/{id:d}/pause")
        return result

    def archive(self, id: int, /, **body: Unpack[types.ArchiveRequest]) -> types.Flow:
        """Archive a flow; its runs continue unless `take_out` is set.

        Scope: `flows:write`.
        """
        result: types.Flow = self._transport.call("POST", f"/v1/my/flows/{id:d}/archive", body=body)
        return result

    def ask_approval(self, id: int) -> types.Flow:
        """Request approval of a flow.

        Scope: `flows:write`.
        """
        result: types.Flow = self._transport.call("POST", f"/v1/my/flows/{id:d}/ask_approval")
        return result

    def approve(self, id: int, /, **body: Unpack[types.ApproveRequest]) -> types.Flow:
        """Approve a flow in its current state, or as it was read.

        Scope: `campaigns:approve`.
        """
        result: types.Flow = self._transport.call("POST", f"/v1/my/flows/{id:d}/approve", body=body)
        return result

    def choose_winner(self, id: int, /, **body: Unpack[types.ChooseBranch]) -> types.SplitTestResult:
        """Choose the branch of a random split that all contacts take from now on, or continue the test.

        Contacts in the flow keep their branch. Scope: `campaigns:send`.
        """
        result: types.SplitTestResult = self._transport.call("POST", f"/v1/my/flows/{id:d}/winner", body=body)
        return result

    def reject(self, id: int, /, **body: Unpack[types.RejectRequest]) -> types.Flow:
        """Reject a flow in its current state; an active one is paused.

        Scope: `campaigns:approve`.
        """
        result: types.Flow = self._transport.call("POST", f"/v1/my/flows/{id:d}/reject", body=body)
        return result

    def simulate(self, id: int, /, **body: Unpack[types.SimulateRequest]) -> types.Simulation:
        """Simulate a flow for one real contact or a sample contact; nothing is sent or stored.

        A real contact (`contact_id`) requires `contacts:read` too, and with branches on the data of events
        `events:read`. Scope: `flows:read`. Open to agents.
        """
        result: types.Simulation = self._transport.call("POST", f"/v1/my/flows/{id:d}/simulate", body=body)
        return result

    def simulate_in_bulk(self, id: int, /, **body: Unpack[types.BulkSimulateRequest]) -> types.BulkSimulation:
        """Simulate a flow for all contacts that recently met its trigger, counting the paths taken.

        Also requires `contacts:read` and `events:read`. Scope: `flows:read`. Open to agents.
        """
        result: types.BulkSimulation = self._transport.call("POST", f"/v1/my/flows/{id:d}/simulate_all", body=body)
        return result

    def list_script_results(
        self, id: int, /, **query: Unpack[types.ListFlowScriptResultsQuery]
    ) -> Paginator[types.ScriptResult]:
        """Run the saved simulations of a flow (`data.scripts`) and compare them with the expected results.

        Scope: `flows:read`. Open to agents.
        """
        return Paginator(self._transport, f"/v1/my/flows/{id:d}/scripts", query)

    def get_report(self, id: int, /, **query: Unpack[types.GetFlowReportQuery]) -> types.FlowReport:
        """Get the report of a flow by step; each number has the path of its runs.

        Scope: `flows:read`. Open to agents.
        """
        result: types.FlowReport = self._transport.call("GET", f"/v1/my/flows/{id:d}/report", query=query)
        return result

    def list_runs(self, id: int, /, **query: Unpack[types.ListFlowRunsQuery]) -> Paginator[types.FlowRun]:
        """List runs of a flow, newest first; the runs of a `step` are listed in the order in which they reached it.

        Scope: `flows:read`. Open to agents.
        """
        return Paginator(self._transport, f"/v1/my/flows/{id:d}/runs", query)

    def get_run(self, id: int, run_id: int) -> types.FlowRunDetail:
        """Get a run with the steps it has reached.

        Scope: `flows:read`. Open to agents.
        """
        result: types.FlowRunDetail = self._transport.call("GET", f"/v1/my/flows/{id:d}/runs/{run_id:d}")
        return result

    def move_run_on(self, id: int, run_id: int) -> types.FlowRunDetail:
        """Skip the wait of a run.

        Scope: `flows:write`.
        """
        result: types.FlowRunDetail = self._transport.call("POST", f"/v1/my/flows/{id:d}/runs/{run_id:d}/move_on")
        return result

    def move_runs_on(self, id: int, /, **body: Unpack[types.RunSelection]) -> types.RunActionResult:
        """Skip the wait of several runs, or of all runs that wait in a step.

        Scope: `flows:write`.
        """
        result: types.RunActionResult = self._transport.call("POST", f"/v1/my/flows/{id:d}/runs/move_on", body=body)
        return result

    def take_run_out(self, id: int, run_id: int) -> types.FlowRunDetail:
        """Remove a run from its flow.

        Scope: `flows:write`.
        """
        result: types.FlowRunDetail = self._transport.call("POST", f"/v1/my/flows/{id:d}/runs/{run_id:d}/take_out")
        return result

    def take_runs_out(self, id: int, /, **body: Unpack[types.RunSelection]) -> types.RunActionResult:
        """Remove several runs from a flow, or all runs that wait in a step.

        Scope: `flows:write`.
        """
        result: types.RunActionResult = self._transport.call("POST", f"/v1/my/flows/{id:d}/runs/take_out", body=body)
        return result

    def enroll_contacts(self, id: int, /, **body: Unpack[types.EnrollWrite]) -> types.EnrollmentResult:
        """Enroll contacts in an active flow: by id, or all current members of a segment.

        A test key also needs `contacts:read`. Scope: `campaigns:send`.
        """
        result: types.EnrollmentResult = self._transport.call("POST", f"/v1/my/flows/{id:d}/enroll", body=body)
        return result

    def get_replay(self, id: int) -> types.FlowReplay:
        """Get the last replay of a flow, with the state `none` if there is none.

        Also requires `contacts:read` and `events:read`. Scope: `flows:read`. Open to agents.
        """
        result: types.FlowReplay = self._transport.call("GET", f"/v1/my/flows/{id:d}/replay")
        return result

    def start_replay(self, id: int, /, **body: Unpack[types.ReplayRequest]) -> types.FlowReplay:
        """Start a replay: run a flow and its live version against the events of the last days; nothing is sent.

        The flow is replayed with its unpublished changes, or with `steps`. It takes up to a minute; read it with
        GET. The result is kept for 14 days, or until the next replay of the flow. Also requires `contacts:read`
        and `events:read`. Scope: `flows:write`. Open to agents.
        """
        result: types.FlowReplay = self._transport.call("POST", f"/v1/my/flows/{id:d}/replay", body=body)
        return result

    def cancel_replay(self, id: int) -> types.FlowReplay:
        """Cancel a replay that waits or runs; one that has ended is not changed.

        An agent cancels only its own. Also requires `contacts:read` and `events:read`. Scope: `flows:write`.
        Open to agents.
        """
        result: types.FlowReplay = self._transport.call("DELETE", f"/v1/my/flows/{id:d}/replay")
        return result

    def export_replay_csv(self, id: int) -> Download:
        """Export which contacts would have got which messages when, as CSV. Requires `contacts:read` and
        `events:read`.

        Scope: `flows:read`.
        """
        return Download(self._transport, f"/v1/my/flows/{id:d}/replay.csv", {})


class AsyncFlows:
    """Automations: an event starts them; steps wait, branch and send."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def export_runs_csv(self, id: int, /, **query: Unpack[types.ExportFlowRunsCsvQuery]) -> AsyncDownload:
        """Export the runs of a flow as CSV. Also requires `contacts:read`.

        Scope: `flows:read`.
        """
        return AsyncDownload(self._transport, f"/v1/my/flows/{id:d}/runs.csv", query)

    def list(self, /, **query: Unpack[types.ListFlowsQuery]) -> AsyncPaginator[types.Flow]:
        """List flows, newest first.

        Scope: `flows:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, "/v1/my/flows", query)

    async def create(self, /, **body: Unpack[types.FlowCreate]) -> types.Flow:
        """Create a flow, as a draft unless `status` is given.

        A branch, and a trigger with conditions on the contact, require `contacts:read` too, and conditions on
        the data of events `events:read`. Scope: `flows:write`. Open to agents.
        """
        result: types.Flow = await self._transport.call("POST", "/v1/my/flows", body=body)
        return result

    async def describe(self) -> types.FlowSpec:
        """Get the step types with their properties, and the events that start flows.

        Scope: `flows:read`. Open to agents.
        """
        result: types.FlowSpec = await self._transport.call("GET", "/v1/my/flows/spec")
        return result

    async def list_starters(self) -> types.FlowStarters:
        """Get predefined flows in the colours of the account.

        Scope: `flows:read`. Open to agents.
        """
        result: types.FlowStarters = await self._transport.call("GET", "/v1/my/flows/starters")
        return result

    async def get(self, id: int) -> types.Flow:
        """Get a flow.

        Scope: `flows:read`. Open to agents.
        """
        result: types.Flow = await self._transport.call("GET", f"/v1/my/flows/{id:d}")
        return result

    async def update(self, id: int, /, **body: Unpack[types.FlowPatch]) -> types.FlowChanged:
        """Update a flow; `steps` replaces all steps, `status` changes its state.

        Steps, trigger and goal of an active flow require `campaigns:send` too, because they take effect at once.
        A new branch, and new conditions of the trigger on the contact, require `contacts:read` too, and new
        conditions on the data of events `events:read`. Scope: `flows:write`. Open to agents.
        """
        result: types.FlowChanged = await self._transport.call("PATCH", f"/v1/my/flows/{id:d}", body=body)
        return result

    async def delete(self, id: int) -> types.Flow:
        """Delete a flow. Its runs exit and open messages are cancelled; sent messages and events are kept.

        Scope: `flows:write`.
        """
        result: types.Flow = await self._transport.call("DELETE", f"/v1/my/flows/{id:d}")
        return result

    async def activate(self, id: int, /, **body: Unpack[types.ActivateRequest]) -> types.Flow:
        """Activate a draft or resume a paused flow.

        Scope: `campaigns:send`.
        """
        result: types.Flow = await self._transport.call("POST", f"/v1/my/flows/{id:d}/activate", body=body)
        return result

    async def pause(self, id: int) -> types.Flow:
        """Pause a flow: no contact enters, and runs stay in their steps.

        Scope: `flows:write`.
        """
        result: types.Flow = await self._transport.call("POST", f"/v1/my/flows/{id:d}/pause")
        return result

    async def archive(self, id: int, /, **body: Unpack[types.ArchiveRequest]) -> types.Flow:
        """Archive a flow; its runs continue unless `take_out` is set.

        Scope: `flows:write`.
        """
        result: types.Flow = await self._transport.call("POST", f"/v1/my/flows/{id:d}/archive", body=body)
        return result

    async def ask_approval(self, id: int) -> types.Flow:
        """Request approval of a flow.

        Scope: `flows:write`.
        """
        result: types.Flow = await self._transport.call("POST", f"/v1/my/flows/{id:d}/ask_approval")
        return result

    async def approve(self, id: int, /, **body: Unpack[types.ApproveRequest]) -> types.Flow:
        """Approve a flow in its current state, or as it was read.

        Scope: `campaigns:approve`.
        """
        result: types.Flow = await self._transport.call("POST", f"/v1/my/flows/{id:d}/approve", body=body)
        return result

    async def choose_winner(self, id: int, /, **body: Unpack[types.ChooseBranch]) -> types.SplitTestResult:
        """Choose the branch of a random split that all contacts take from now on, or continue the test.

        Contacts in the flow keep their branch. Scope: `campaigns:send`.
        """
        result: types.SplitTestResult = await self._transport.call("POST", f"/v1/my/flows/{id:d}/winner", body=body)
        return result

    async def reject(self, id: int, /, **body: Unpack[types.RejectRequest]) -> types.Flow:
        """Reject a flow in its current state; an active one is paused.

        Scope: `campaigns:approve`.
        """
        result: types.Flow = await self._transport.call("POST", f"/v1/my/flows/{id:d}/reject", body=body)
        return result

    async def simulate(self, id: int, /, **body: Unpack[types.SimulateRequest]) -> types.Simulation:
        """Simulate a flow for one real contact or a sample contact; nothing is sent or stored.

        A real contact (`contact_id`) requires `contacts:read` too, and with branches on the data of events
        `events:read`. Scope: `flows:read`. Open to agents.
        """
        result: types.Simulation = await self._transport.call("POST", f"/v1/my/flows/{id:d}/simulate", body=body)
        return result

    async def simulate_in_bulk(self, id: int, /, **body: Unpack[types.BulkSimulateRequest]) -> types.BulkSimulation:
        """Simulate a flow for all contacts that recently met its trigger, counting the paths taken.

        Also requires `contacts:read` and `events:read`. Scope: `flows:read`. Open to agents.
        """
        result: types.BulkSimulation = await self._transport.call(
            "POST", f"/v1/my/flows/{id:d}/simulate_all", body=body
        )
        return result

    def list_script_results(
        self, id: int, /, **query: Unpack[types.ListFlowScriptResultsQuery]
    ) -> AsyncPaginator[types.ScriptResult]:
        """Run the saved simulations of a flow (`data.scripts`) and compare them with the expected results.

        Scope: `flows:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, f"/v1/my/flows/{id:d}/scripts", query)

    async def get_report(self, id: int, /, **query: Unpack[types.GetFlowReportQuery]) -> types.FlowReport:
        """Get the report of a flow by step; each number has the path of its runs.

        Scope: `flows:read`. Open to agents.
        """
        result: types.FlowReport = await self._transport.call("GET", f"/v1/my/flows/{id:d}/report", query=query)
        return result

    def list_runs(self, id: int, /, **query: Unpack[types.ListFlowRunsQuery]) -> AsyncPaginator[types.FlowRun]:
        """List runs of a flow, newest first; the runs of a `step` are listed in the order in which they reached it.

        Scope: `flows:read`. Open to agents.
        """
        return AsyncPaginator(self._transport, f"/v1/my/flows/{id:d}/runs", query)

    async def get_run(self, id: int, run_id: int) -> types.FlowRunDetail:
        """Get a run with the steps it has reached.

        Scope: `flows:read`. Open to agents.
        """
        result: types.FlowRunDetail = await self._transport.call("GET", f"/v1/my/flows/{id:d}/runs/{run_id:d}")
        return result

    async def move_run_on(self, id: int, run_id: int) -> types.FlowRunDetail:
        """Skip the wait of a run.

        Scope: `flows:write`.
        """
        result: types.FlowRunDetail = await self._transport.call("POST", f"/v1/my/flows/{id:d}/runs/{run_id:d}/move_on")
        return result

    async def move_runs_on(self, id: int, /, **body: Unpack[types.RunSelection]) -> types.RunActionResult:
        """Skip the wait of several runs, or of all runs that wait in a step.

        Scope: `flows:write`.
        """
        result: types.RunActionResult = await self._transport.call(
            "POST", f"/v1/my/flows/{id:d}/runs/move_on", body=body
        )
        return result

    async def take_run_out(self, id: int, run_id: int) -> types.FlowRunDetail:
        """Remove a run from its flow.

        Scope: `flows:write`.
        """
        result: types.FlowRunDetail = await self._transport.call(
            "POST", f"/v1/my/flows/{id:d}/runs/{run_id:d}/take_out"
        )
        return result

    async def take_runs_out(self, id: int, /, **body: Unpack[types.RunSelection]) -> types.RunActionResult:
        """Remove several runs from a flow, or all runs that wait in a step.

        Scope: `flows:write`.
        """
        result: types.RunActionResult = await self._transport.call(
            "POST", f"/v1/my/flows/{id:d}/runs/take_out", body=body
        )
        return result

    async def enroll_contacts(self, id: int, /, **body: Unpack[types.EnrollWrite]) -> types.EnrollmentResult:
        """Enroll contacts in an active flow: by id, or all current members of a segment.

        A test key also needs `contacts:read`. Scope: `campaigns:send`.
        """
        result: types.EnrollmentResult = await self._transport.call("POST", f"/v1/my/flows/{id:d}/enroll", body=body)
        return result

    async def get_replay(self, id: int) -> types.FlowReplay:
        """Get the last replay of a flow, with the state `none` if there is none.

        Also requires `contacts:read` and `events:read`. Scope: `flows:read`. Open to agents.
        """
        result: types.FlowReplay = await self._transport.call("GET", f"/v1/my/flows/{id:d}/replay")
        return result

    async def start_replay(self, id: int, /, **body: Unpack[types.ReplayRequest]) -> types.FlowReplay:
        """Start a replay: run a flow and its live version against the events of the last days; nothing is sent.

        The flow is replayed with its unpublished changes, or with `steps`. It takes up to a minute; read it with
        GET. The result is kept for 14 days, or until the next replay of the flow. Also requires `contacts:read`
        and `events:read`. Scope: `flows:write`. Open to agents.
        """
        result: types.FlowReplay = await self._transport.call("POST", f"/v1/my/flows/{id:d}/replay", body=body)
        return result

    async def cancel_replay(self, id: int) -> types.FlowReplay:
        """Cancel a replay that waits or runs; one that has ended is not changed.

        An agent cancels only its own. Also requires `contacts:read` and `events:read`. Scope: `flows:write`.
        Open to agents.
        """
        result: types.FlowReplay = await self._transport.call("DELETE", f"/v1/my/flows/{id:d}/replay")
        return result

    def export_replay_csv(self, id: int) -> AsyncDownload:
        """Export which contacts would have got which messages when, as CSV. Requires `contacts:read` and
        `events:read`.

        Scope: `flows:read`.
        """
        return AsyncDownload(self._transport, f"/v1/my/flows/{id:d}/replay.csv", {})
