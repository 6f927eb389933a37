// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Download, Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** Automations: an event starts them; steps wait, branch and send. */
export class Flows {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Export the runs of a flow as CSV. Also requires `contacts:read`.
   *
   * Scope: `flows:read`.
   */
  exportRunsCsv(id: number, query: types.ExportFlowRunsCsvQuery = {}): Download {
    return new Download(this.#transport, `/v1/my/flows/${segment(id)}/runs.csv`, query);
  }

  /**
   * List flows, newest first.
   *
   * Scope: `flows:read`. Open to agents.
   */
  list(query: types.ListFlowsQuery = {}): Paginator<types.Flow> {
    return new Paginator<types.Flow>(this.#transport, "/v1/my/flows", query);
  }

  /**
   * Create a flow, as a draft unless `status` is given.
   *
   * A branch, and a trigger with conditions on the contact, require `contacts:read` too, and conditions on the data
   * of events `events:read`. Scope: `flows:write`. Open to agents.
   */
  create(body: types.FlowCreate = {}, options: RequestOptions = {}): Promise<types.Flow> {
    return this.#transport.call("POST", "/v1/my/flows", { body, ...options });
  }

  /**
   * Get the step types with their properties, and the events that start flows.
   *
   * Scope: `flows:read`. Open to agents.
   */
  describe(options: RequestOptions = {}): Promise<types.FlowSpec> {
    return this.#transport.call("GET", "/v1/my/flows/spec", { ...options });
  }

  /**
   * Get predefined flows in the colours of the account.
   *
   * Scope: `flows:read`. Open to agents.
   */
  listStarters(options: RequestOptions = {}): Promise<types.FlowStarters> {
    return this.#transport.call("GET", "/v1/my/flows/starters", { ...options });
  }

  /**
   * Get a flow.
   *
   * Scope: `flows:read`. Open to agents.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.Flow> {
    return this.#transport.call("GET", `/v1/my/flows/${segment(id)}`, { ...options });
  }

  /**
   * Update a flow; `steps` replaces all steps, `status` changes its state.
   *
   * Steps, trigger and goal of an active flow require `campaigns:send` too, because they take effect at once. A new
   * branch, and new conditions of the trigger on the contact, require `contacts:read` too, and new conditions on
   * the data of events `events:read`. Scope: `flows:write`. Open to agents.
   */
  update(id: number, body: types.FlowPatch = {}, options: RequestOptions = {}): Promise<types.FlowChanged> {
    return this.#transport.call("PATCH", `/v1/my/flows/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete a flow. Its runs exit and open messages are cancelled; sent messages and events are kept.
   *
   * Scope: `flows:write`.
   */
  delete(id: number, options: RequestOptions = {}): Promise<types.Flow> {
    return this.#transport.call("DELETE", `/v1/my/flows/${segment(id)}`, { ...options });
  }

  /**
   * Activate a draft or resume a paused flow.
   *
   * Scope: `campaigns:send`.
   */
  activate(id: number, body: types.ActivateRequest = {}, options: RequestOptions = {}): Promise<types.Flow> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/activate`, { body, ...options });
  }

  /**
   * Pause a flow: no contact enters, and runs stay in their steps.
   *
   * Scope: `flows:write`.
   */
  pause(id: number, options: RequestOptions = {}): Promise<types.Flow> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/pause`, { ...options });
  }

  /**
   * Archive a flow; its runs continue unless `take_out` is set.
   *
   * Scope: `flows:write`.
   */
  archive(id: number, body: types.ArchiveRequest = {}, options: RequestOptions = {}): Promise<types.Flow> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/archive`, { body, ...options });
  }

  /**
   * Request approval of a flow.
   *
   * Scope: `flows:write`.
   */
  askApproval(id: number, options: RequestOptions = {}): Promise<types.Flow> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/ask_approval`, { ...options });
  }

  /**
   * Approve a flow in its current state, or as it was read.
   *
   * Scope: `campaigns:approve`.
   */
  approve(id: number, body: types.ApproveRequest = {}, options: RequestOptions = {}): Promise<types.Flow> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/approve`, { body, ...options });
  }

  /**
   * Choose the branch of a random split that all contacts take from now on, or continue the test.
   *
   * Contacts in the flow keep their branch. Scope: `campaigns:send`.
   */
  chooseWinner(id: number, body: types.ChooseBranch, options: RequestOptions = {}): Promise<types.SplitTestResult> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/winner`, { body, ...options });
  }

  /**
   * Reject a flow in its current state; an active one is paused.
   *
   * Scope: `campaigns:approve`.
   */
  reject(id: number, body: types.RejectRequest = {}, options: RequestOptions = {}): Promise<types.Flow> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/reject`, { body, ...options });
  }

  /**
   * Simulate a flow for one real contact or a sample contact; nothing is sent or stored.
   *
   * A real contact (`contact_id`) requires `contacts:read` too, and with branches on the data of events
   * `events:read`. Scope: `flows:read`. Open to agents.
   */
  simulate(id: number, body: types.SimulateRequest = {}, options: RequestOptions = {}): Promise<types.Simulation> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/simulate`, { body, ...options });
  }

  /**
   * Simulate a flow for all contacts that recently met its trigger, counting the paths taken.
   *
   * Also requires `contacts:read` and `events:read`. Scope: `flows:read`. Open to agents.
   */
  simulateInBulk(id: number, body: types.BulkSimulateRequest = {}, options: RequestOptions = {}): Promise<types.BulkSimulation> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/simulate_all`, { body, ...options });
  }

  /**
   * Run the saved simulations of a flow (`data.scripts`) and compare them with the expected results.
   *
   * Scope: `flows:read`. Open to agents.
   */
  listScriptResults(id: number, query: types.ListFlowScriptResultsQuery = {}): Paginator<types.ScriptResult> {
    return new Paginator<types.ScriptResult>(this.#transport, `/v1/my/flows/${segment(id)}/scripts`, query);
  }

  /**
   * Get the report of a flow by step; each number has the path of its runs.
   *
   * Scope: `flows:read`. Open to agents.
   */
  getReport(id: number, query: types.GetFlowReportQuery = {}, options: RequestOptions = {}): Promise<types.FlowReport> {
    return this.#transport.call("GET", `/v1/my/flows/${segment(id)}/report`, { query, ...options });
  }

  /**
   * List runs of a flow, newest first; the runs of a `step` are listed in the order in which they reached it.
   *
   * Scope: `flows:read`. Open to agents.
   */
  listRuns(id: number, query: types.ListFlowRunsQuery = {}): Paginator<types.FlowRun> {
    return new Paginator<types.FlowRun>(this.#transport, `/v1/my/flows/${segment(id)}/runs`, query);
  }

  /**
   * Get a run with the steps it has reached.
   *
   * Scope: `flows:read`. Open to agents.
   */
  getRun(id: number, runId: number, options: RequestOptions = {}): Promise<types.FlowRunDetail> {
    return this.#transport.call("GET", `/v1/my/flows/${segment(id)}/runs/${segment(runId)}`, { ...options });
  }

  /**
   * Skip the wait of a run.
   *
   * Scope: `flows:write`.
   */
  moveRunOn(id: number, runId: number, options: RequestOptions = {}): Promise<types.FlowRunDetail> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/runs/${segment(runId)}/move_on`, { ...options });
  }

  /**
   * Skip the wait of several runs, or of all runs that wait in a step.
   *
   * Scope: `flows:write`.
   */
  moveRunsOn(id: number, body: types.RunSelection = {}, options: RequestOptions = {}): Promise<types.RunActionResult> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/runs/move_on`, { body, ...options });
  }

  /**
   * Remove a run from its flow.
   *
   * Scope: `flows:write`.
   */
  takeRunOut(id: number, runId: number, options: RequestOptions = {}): Promise<types.FlowRunDetail> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/runs/${segment(runId)}/take_out`, { ...options });
  }

  /**
   * Remove several runs from a flow, or all runs that wait in a step.
   *
   * Scope: `flows:write`.
   */
  takeRunsOut(id: number, body: types.RunSelection = {}, options: RequestOptions = {}): Promise<types.RunActionResult> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/runs/take_out`, { body, ...options });
  }

  /**
   * Enroll contacts in an active flow: by id, or all current members of a segment.
   *
   * A test key also needs `contacts:read`. Scope: `campaigns:send`.
   */
  enrollContacts(id: number, body: types.EnrollWrite = {}, options: RequestOptions = {}): Promise<types.EnrollmentResult> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/enroll`, { body, ...options });
  }

  /**
   * Get the last replay of a flow, with the state `none` if there is none.
   *
   * Also requires `contacts:read` and `events:read`. Scope: `flows:read`. Open to agents.
   */
  getReplay(id: number, options: RequestOptions = {}): Promise<types.FlowReplay> {
    return this.#transport.call("GET", `/v1/my/flows/${segment(id)}/replay`, { ...options });
  }

  /**
   * Start a replay: run a flow and its live version against the events of the last days; nothing is sent.
   *
   * The flow is replayed with its unpublished changes, or with `steps`. It takes up to a minute; read it with GET.
   * The result is kept for 14 days, or until the next replay of the flow. Also requires `contacts:read` and
   * `events:read`. Scope: `flows:write`. Open to agents.
   */
  startReplay(id: number, body: types.ReplayRequest = {}, options: RequestOptions = {}): Promise<types.FlowReplay> {
    return this.#transport.call("POST", `/v1/my/flows/${segment(id)}/replay`, { body, ...options });
  }

  /**
   * Cancel a replay that waits or runs; one that has ended is not changed.
   *
   * An agent cancels only its own. Also requires `contacts:read` and `events:read`. Scope: `flows:write`. Open to
   * agents.
   */
  cancelReplay(id: number, options: RequestOptions = {}): Promise<types.FlowReplay> {
    return this.#transport.call("DELETE", `/v1/my/flows/${segment(id)}/replay`, { ...options });
  }

  /**
   * Export which contacts would have got which messages when, as CSV. Requires `contacts:read` and `events:read`.
   *
   * Scope: `flows:read`.
   */
  exportReplayCsv(id: number): Download {
    return new Download(this.#transport, `/v1/my/flows/${segment(id)}/replay.csv`, {});
  }
}
