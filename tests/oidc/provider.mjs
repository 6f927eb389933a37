// A certified OpenID Connect provider (oidc-provider) with one person, for the tests of sign-in.
// `node provider.mjs PORT REDIRECT_URI AFTER_SIGN_OUT` prints `ready` when it listens on 127.0.0.1.
import Provider from "oidc-provider";

const [port, redirectUri, afterSignOut] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "campanero",
      client_secret: "a secret: with + and %",
      redirect_uris: [redirectUri],
      post_logout_redirect_uris: [afterSignOut],
      grant_types: ["authorization_code"],
      response_types: ["code"],
    },
  ],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
  cookies: { keys: ["of a test"] },
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
  pkce: { required: () => true },
  findAccount: (_context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@bakery.example`, email_verified: true, name: "Ana Baker" }),
  }),
});

provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
