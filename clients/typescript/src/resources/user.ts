// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** The signed-in user: name, password, second factor, sessions, identities at providers. */
export class User {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Get the signed-in user.
   *
   * Only for a signed-in user: no API key has access.
   */
  get(options: RequestOptions = {}): Promise<types.User> {
    return this.#transport.call("GET", "/v1/my/user", { ...options });
  }

  /**
   * Update the signed-in user. A new password ends all sessions, including the current one.
   *
   * Only for a signed-in user: no API key has access.
   */
  update(body: types.CurrentUserPatch = {}, options: RequestOptions = {}): Promise<types.User> {
    return this.#transport.call("PATCH", "/v1/my/user", { body, ...options });
  }

  /**
   * List sessions of the signed-in user, newest first.
   *
   * Only for a signed-in user: no API key has access.
   */
  listSessions(query: types.ListOwnSessionsQuery = {}): Paginator<types.UserSession> {
    return new Paginator<types.UserSession>(this.#transport, "/v1/my/user/sessions", query);
  }

  /**
   * Name the device of a session of the signed-in user.
   *
   * Only for a signed-in user: no API key has access.
   */
  renameSession(id: number, body: types.UserSessionPatch = {}, options: RequestOptions = {}): Promise<types.UserSession> {
    return this.#transport.call("PATCH", `/v1/my/user/sessions/${segment(id)}`, { body, ...options });
  }

  /**
   * End a session of the signed-in user. Its cookie or token becomes invalid.
   *
   * Only for a signed-in user: no API key has access.
   */
  endSession(id: number, options: RequestOptions = {}): Promise<types.UserSession> {
    return this.#transport.call("DELETE", `/v1/my/user/sessions/${segment(id)}`, { ...options });
  }

  /**
   * List passkeys of the signed-in user, newest first. They are added on the profile page.
   *
   * Only for a signed-in user: no API key has access.
   */
  listPasskeys(query: types.ListOwnPasskeysQuery = {}): Paginator<types.Passkey> {
    return new Paginator<types.Passkey>(this.#transport, "/v1/my/user/passkeys", query);
  }

  /**
   * Rename a passkey of the signed-in user.
   *
   * Only for a signed-in user: no API key has access.
   */
  renamePasskey(id: number, body: types.PasskeyPatch, options: RequestOptions = {}): Promise<types.Passkey> {
    return this.#transport.call("PATCH", `/v1/my/user/passkeys/${segment(id)}`, { body, ...options });
  }

  /**
   * Remove a passkey of the signed-in user. All other sessions end, because it may have begun some of them.
   *
   * Only for a signed-in user: no API key has access.
   */
  removePasskey(id: number, body: types.PasskeyRemoval, options: RequestOptions = {}): Promise<types.Passkey> {
    return this.#transport.call("DELETE", `/v1/my/user/passkeys/${segment(id)}`, { body, ...options });
  }

  /**
   * List identities at providers that are linked to the signed-in user, newest first.
   *
   * Only for a signed-in user: no API key has access.
   */
  listIdentities(query: types.ListOwnIdentitiesQuery = {}): Paginator<types.Identity> {
    return new Paginator<types.Identity>(this.#transport, "/v1/my/user/identities", query);
  }

  /**
   * Unlink an identity of the signed-in user. The sessions that began with it end.
   *
   * Only for a signed-in user: no API key has access.
   */
  unlinkIdentity(id: number, options: RequestOptions = {}): Promise<types.Identity> {
    return this.#transport.call("DELETE", `/v1/my/user/identities/${segment(id)}`, { ...options });
  }
}
