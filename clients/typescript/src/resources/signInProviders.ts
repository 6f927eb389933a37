// Generated from the OpenAPI document by `python -m clients.generator`; do not edit.

import { Paginator, segment, type RequestOptions, type Transport } from "../transport.js";
import type * as types from "../types.js";

/** OpenID Connect providers of the account, for its owner and admins. */
export class SignInProviders {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * List OpenID Connect providers, newest first.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  list(query: types.ListSignInProvidersQuery = {}): Paginator<types.SignInProvider> {
    return new Paginator<types.SignInProvider>(this.#transport, "/v1/my/sign_in_providers", query);
  }

  /**
   * Add an OpenID Connect provider. Register its `redirect_uri` at the provider.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  create(body: types.ProviderWrite, options: RequestOptions = {}): Promise<types.SignInProvider> {
    return this.#transport.call("POST", "/v1/my/sign_in_providers", { body, ...options });
  }

  /**
   * Get an OpenID Connect provider.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  get(id: number, options: RequestOptions = {}): Promise<types.SignInProvider> {
    return this.#transport.call("GET", `/v1/my/sign_in_providers/${segment(id)}`, { ...options });
  }

  /**
   * Update an OpenID Connect provider. `enabled: false` signs out everyone who signed in with it.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  update(id: number, body: types.ProviderPatch = {}, options: RequestOptions = {}): Promise<types.SignInProvider> {
    return this.#transport.call("PATCH", `/v1/my/sign_in_providers/${segment(id)}`, { body, ...options });
  }

  /**
   * Delete an OpenID Connect provider with its linked identities and the sessions that began with it.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  delete(id: number, options: RequestOptions = {}): Promise<types.SignInProvider> {
    return this.#transport.call("DELETE", `/v1/my/sign_in_providers/${segment(id)}`, { ...options });
  }

  /**
   * Test an OpenID Connect provider: its discovery document, its keys, and the client ID and secret.
   *
   * Only for a signed-in owner or admin: no API key has access.
   */
  test(id: number, options: RequestOptions = {}): Promise<types.SignInProviderTest> {
    return this.#transport.call("POST", `/v1/my/sign_in_providers/${segment(id)}/test`, { ...options });
  }
}
