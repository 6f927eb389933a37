// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** A message to many contacts, sent now or at a given time: drafts, sends, reports. */
export class Campaigns {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List campaigns, newest first.
   *
   * Scope: `campaigns:read`. Open to agents.
   */
  list(query: types.ListCampaignsQuery = {}): Paginator<types.Campaign> {
    return new Paginator<types.Campaign>(this.#transport, "/v1/my/campaigns", query);
  }

  /**
   * Create a campaign as a draft.
   *
   * The `event` of an A/B test or holdout requires `contacts:read` too, and `by_amount` requires `events:read`.
   * `local_time` requires `contacts:read`. Scope: `campaigns:write`. Open to agents.
   */
  create(body: types.CampaignCreate, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", "/v1/my/campaigns", { body, ...options });
  }

  /**
   * Get a campaign.
   *
   * Scope: `campaigns:read`. Open to agents.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("GET", `/v1/my/campaigns/${segment(id)}`, { ...options });
  }

  /**
   * Update a campaign; `status` changes its state.
   *
   * A new `event` of an A/B test or holdout requires `contacts:read` too, and new `by_amount` requires
   * `events:read`. So does a new `local_time` require `contacts:read`. Scope: `campaigns:write`. Open to agents.
   */
  update(id: number, body: types.CampaignPatch = {}, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("PATCH", `/v1/my/campaigns/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete a campaign. Open messages are cancelled; sent messages and events are kept.
   *
   * Scope: `campaigns:write`.
   */
  delete(id: number, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("DELETE", `/v1/my/campaigns/${segment(id)}`, { ...options });
  }

  /**
   * Send a campaign: apply the attributes, create the audience snapshot and start delivery.
   *
   * A test key also needs `contacts:read`, and so does a new `local_time`. Scope: `campaigns:send`.
   */
  send(id: number, body: types.SendRequest = {}, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", `/v1/my/campaigns/${segment(id)}/send`, { body, ...options });
  }

  /**
   * Pause an active campaign.
   *
   * Scope: `campaigns:send`.
   */
  pause(id: number, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", `/v1/my/campaigns/${segment(id)}/pause`, { ...options });
  }

  /**
   * Resume a paused campaign with its remaining messages.
   *
   * Scope: `campaigns:send`.
   */
  resume(id: number, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", `/v1/my/campaigns/${segment(id)}/resume`, { ...options });
  }

  /**
   * Cancel an active or paused campaign permanently.
   *
   * Scope: `campaigns:send`.
   */
  cancel(id: number, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", `/v1/my/campaigns/${segment(id)}/cancel`, { ...options });
  }

  /**
   * Request approval of a campaign.
   *
   * Scope: `campaigns:write`.
   */
  askApproval(id: number, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", `/v1/my/campaigns/${segment(id)}/ask_approval`, { ...options });
  }

  /**
   * Approve a campaign in its current state, or as it was read.
   *
   * Scope: `campaigns:approve`.
   */
  approve(id: number, body: types.ApproveRequest = {}, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", `/v1/my/campaigns/${segment(id)}/approve`, { body, ...options });
  }

  /**
   * Reject a campaign in its current state.
   *
   * Scope: `campaigns:approve`.
   */
  reject(id: number, body: types.RejectRequest = {}, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", `/v1/my/campaigns/${segment(id)}/reject`, { body, ...options });
  }

  /**
   * Create a draft with the content and audience of a campaign.
   *
   * Scope: `campaigns:write`. Open to agents.
   */
  duplicate(id: number, body: types.CampaignCopy = {}, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", `/v1/my/campaigns/${segment(id)}/duplicate`, { body, ...options });
  }

  /**
   * Check a draft for blockers and warnings before it is sent.
   *
   * Rendering for all recipients requires `contacts:read` too; without it, `rehearsal` is left out. An agent gets
   * no `links`, because checking them requests the addresses in its draft. Scope: `campaigns:read`. Open to agents.
   */
  preflight(id: number, options: RequestOptions = {}): Promise<types.Preflight> {
    return this.#transport.call("GET", `/v1/my/campaigns/${segment(id)}/preflight`, { ...options });
  }

  /**
   * Get the report of a campaign; each number has the path of its recipients.
   *
   * Scope: `campaigns:read`. Open to agents.
   */
  getReport(id: number, options: RequestOptions = {}): Promise<types.CampaignReport> {
    return this.#transport.call("GET", `/v1/my/campaigns/${segment(id)}/report`, { ...options });
  }

  /**
   * Get the send times of a campaign with a local time, by time zone; nothing for other campaigns.
   *
   * It shows where contacts are, so it requires `contacts:read` too. Scope: `campaigns:read`. Open to agents.
   */
  getSendTimes(id: number, options: RequestOptions = {}): Promise<types.SendTimes> {
    return this.#transport.call("GET", `/v1/my/campaigns/${segment(id)}/send_times`, { ...options });
  }

  /**
   * Get the figures of a campaign's A/B test or holdout, and the conclusion; 404 if it has none.
   *
   * Scope: `campaigns:read`. Open to agents.
   */
  getExperiment(id: number, options: RequestOptions = {}): Promise<types.ExperimentResult> {
    return this.#transport.call("GET", `/v1/my/campaigns/${segment(id)}/experiment`, { ...options });
  }

  /**
   * End the A/B test of a campaign and send a variant to all recipients who wait.
   *
   * Scope: `campaigns:send`.
   */
  chooseWinner(id: number, body: types.ChooseWinner, options: RequestOptions = {}): Promise<types.Campaign> {
    return this.#transport.call("POST", `/v1/my/campaigns/${segment(id)}/experiment/winner`, { body, ...options });
  }

  /**
   * List recipients of a campaign with the state of their messages, newest first.
   *
   * Scope: `campaigns:read`. Open to agents.
   */
  listRecipients(id: number, query: types.ListCampaignRecipientsQuery = {}): Paginator<types.Message> {
    return new Paginator<types.Message>(this.#transport, `/v1/my/campaigns/${segment(id)}/recipients`, query);
  }

  /**
   * Explain why a contact receives a campaign, received it or did not.
   *
   * Also requires `contacts:read`, because the answer says whether the contact is in the campaign's lists and
   * segments. Scope: `campaigns:read`. Open to agents.
   */
  explainRecipient(id: number, query: types.ExplainCampaignRecipientQuery, options: RequestOptions = {}): Promise<types.AudienceExplanation> {
    return this.#transport.call("GET", `/v1/my/campaigns/${segment(id)}/explain`, { query, ...options });
  }

  /**
   * List the dates of a repeating campaign that are over, latest first.
   *
   * Scope: `campaigns:read`. Open to agents.
   */
  listOccurrences(id: number, query: types.ListCampaignOccurrencesQuery = {}): Paginator<types.Occurrence> {
    return new Paginator<types.Occurrence>(this.#transport, `/v1/my/campaigns/${segment(id)}/occurrences`, query);
  }
}
