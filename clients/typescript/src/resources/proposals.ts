// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** What agents propose, and what users decide about it. */
export class Proposals {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List proposals of agents, newest first. An agent gets its own.
   *
   * Each kind needs the scope with which its subject can be read, such as `flows:read`; others are left out. Scope:
   * `campaigns:read`. Open to agents.
   */
  list(query: types.ListProposalsQuery = {}): Paginator<types.Proposal> {
    return new Paginator<types.Proposal>(this.#transport, "/v1/my/proposals", query);
  }

  /**
   * Propose what only a user may decide: to send a campaign, to start a flow, or to change what is in use.
   *
   * Only API keys make proposals: those of agents, and of programs that draft. The users who may decide get an
   * email. A proposal about a flow starts a replay of the last 90 days. Also requires the scope with which its
   * subject can be read; `change_segment` requires `events:read` too, and `change_flow` both `contacts:read` and
   * `events:read`. Scope: `campaigns:write`. Scope of agents: `proposals:write`.
   */
  create(body: types.ProposalWrite, options: RequestOptions = {}): Promise<types.Proposal> {
    return this.#transport.call("POST", "/v1/my/proposals", { body, ...options });
  }

  /**
   * Get a proposal with what it changes and whom it reaches, as it is now.
   *
   * Without the scope with which its subject can be read, the response is 404; without `contacts:read`, `sms_parts`
   * is null. Scope: `campaigns:read`. Open to agents.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.ProposalDetail> {
    return this.#transport.call("GET", `/v1/my/proposals/${segment(id)}`, { ...options });
  }

  /**
   * Approve a proposal, which carries it out. Only a signed-in user may, never an API key.
   *
   * The response is 409 if what is proposed has changed since `version` was read. In an account that requires
   * approval, the user needs the right to approve; if it requires another user, the one who created the agent's key
   * may not. Scope: `campaigns:send`.
   */
  approve(id: number, body: types.ApproveProposal, options: RequestOptions = {}): Promise<types.Proposal> {
    return this.#transport.call("POST", `/v1/my/proposals/${segment(id)}/approve`, { body, ...options });
  }

  /**
   * Return a proposal to its agent with a note. Only a signed-in user may, never an API key.
   *
   * Scope: `campaigns:send`.
   */
  return(id: number, body: types.ReturnProposal = {}, options: RequestOptions = {}): Promise<types.Proposal> {
    return this.#transport.call("POST", `/v1/my/proposals/${segment(id)}/return`, { body, ...options });
  }

  /**
   * Withdraw an open proposal. Only the API key that made it can.
   *
   * Scope: `campaigns:write`. Scope of agents: `proposals:write`.
   */
  withdraw(id: number, options: RequestOptions = {}): Promise<types.Proposal> {
    return this.#transport.call("POST", `/v1/my/proposals/${segment(id)}/withdraw`, { ...options });
  }
}
