// A provider of OpenID Connect for the tests: the certified package `oidc-provider`, with a login form of its own that
// asks only for a user name, and a small table of accounts.
//
// The environment variable SETTINGS has the settings as JSON: `client_id`, `redirect_uris`, and optionally
// `client_secret` (without it, the client is public), `token_endpoint_auth_method` and `port`. One line of JSON with the
// issuer is printed when the provider is ready. It ends when its standard input is closed.
//
// The redirect addresses are those of a native client (RFC 8252), so that every port of 127.0.0.1 matches.
//
// PATCH /accounts/NAME with JSON changes the claims of an account; a claim that is `null` is removed.
// GET /grants says how many tokens were issued.

import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import process from "node:process";

import Provider, { errors, interactionPolicy } from "oidc-provider";

/** The claims of each account. Its `sub` is not a name that anybody sees. */
const accounts = new Map(
  Object.entries({
    kim: { preferred_username: "kim", name: "Kim Example", email: "kim@people.example", groups: ["painters", "staff"] },
    ada: { preferred_username: "ada", name: "Ada Example", email: "ada@people.example", groups: ["staff"] },
    noor: { preferred_username: "noor", name: "Noor Example", email: "noor@people.example", groups: "painters" },
  }),
);

const subject = (name) => `subject-of-${name}`;

function findAccount(_, sub) {
  const found = [...accounts].find(([name]) => subject(name) === sub);
  return found && { accountId: sub, claims: () => ({ ...found[1], sub }) };
}

const HOUR = 60 * 60;

/** Everything that the provider stores. */
class Store {
  static #entries = new Map();
  static #keysOfGrants = new Map();

  constructor(kind) {
    this.kind = kind;
  }

  #key(id) {
    return `${this.kind}:${id}`;
  }

  async upsert(id, payload) {
    Store.#entries.set(this.#key(id), payload);
    if (payload.grantId) {
      const keys = Store.#keysOfGrants.get(payload.grantId) ?? new Set();
      Store.#keysOfGrants.set(payload.grantId, keys.add(this.#key(id)));
    }
  }

  async find(id) {
    const found = Store.#entries.get(this.#key(id));
    return found && (found.exp === undefined || found.exp > Date.now() / 1000) ? found : undefined;
  }

  async findByUid(uid) {
    const keys = [...Store.#entries.keys()].filter((key) => key.startsWith(`${this.kind}:`));
    return keys.map((key) => Store.#entries.get(key)).find((entry) => entry.uid === uid);
  }

  async consume(id) {
    Store.#entries.get(this.#key(id)).consumed = Math.floor(Date.now() / 1000);
  }

  async destroy(id) {
    Store.#entries.delete(this.#key(id));
  }

  async revokeByGrantId(grantId) {
    for (const key of Store.#keysOfGrants.get(grantId) ?? []) Store.#entries.delete(key);
  }
}

function signingKeys() {
  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({ format: "jwk" });
  const curve = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" });
  return [
    { ...rsa, alg: "RS256", use: "sig", kid: "rsa-1" },
    { ...curve, alg: "ES256", use: "sig", kid: "curve-1" },
  ];
}

function client(settings) {
  const { client_id, client_secret, redirect_uris } = settings;
  const method = settings.token_endpoint_auth_method ?? (client_secret ? "client_secret_basic" : "none");
  return {
    client_id,
    ...(client_secret ? { client_secret } : {}),
    redirect_uris,
    token_endpoint_auth_method: method,
    application_type: "native",
    grant_types: ["authorization_code"],
    response_types: ["code"],
  };
}

/** The usual rules for questions, without the question for a consent, which is always given. */
function policy() {
  const rules = interactionPolicy.base();
  rules.get("consent").checks.remove("native_client_prompt");
  return rules;
}

async function grant(context) {
  const { client: asking, provider, session } = context.oidc;
  const known = session.grantIdFor(asking.clientId);
  const found = known && (await provider.Grant.find(known));
  if (found) return found;
  const made = new provider.Grant({ clientId: asking.clientId, accountId: session.accountId });
  made.addOIDCScope("openid profile email");
  await made.save();
  return made;
}

function configuration(settings) {
  return {
    adapter: Store,
    clients: [client(settings)],
    jwks: { keys: signingKeys() },
    cookies: { keys: ["a-key-that-signs-the-cookies-of-the-tests"] },
    claims: { openid: ["sub"], profile: ["preferred_username", "name", "groups"], email: ["email"], auth_time: null },
    conformIdTokenClaims: false,
    features: { devInteractions: { enabled: false } },
    findAccount,
    interactions: { policy: policy(), url: (_, interaction) => `/interaction/${interaction.uid}` },
    loadExistingGrant: grant,
    pkce: { methods: ["S256"], required: () => true },
    renderError: (context, out) => {
      context.type = "html";
      context.body = page("Error", `<p>${escaped(`${out.error}: ${out.error_description}`)}</p>`);
    },
    ttl: {
      AccessToken: HOUR,
      AuthorizationCode: 60,
      Grant: HOUR,
      IdToken: HOUR,
      Interaction: HOUR,
      Session: HOUR,
    },
  };
}

function escaped(text) {
  return text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

function page(title, content) {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>${title}</title><link rel="icon" href="data:,">
</head><body><main><h1>${title}</h1>${content}</main></body></html>`;
}

function loginPage(uid, message) {
  return page(
    "Example accounts",
    `<p>${escaped(message)}</p>
<form method="post" action="/interaction/${uid}">
<label for="login">Account</label> <input id="login" name="login" value=""> <button type="submit">Continue</button></form>
<form method="post" action="/interaction/${uid}/abort"><button type="submit">Cancel</button></form>`,
  );
}

async function bodyOf(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return Buffer.concat(pieces).toString("utf8");
}

function answer(response, status, type, body) {
  response.writeHead(status, { "content-type": type, "cache-control": "no-store" }).end(body);
}

/** The questions of the provider: for the name of the account, and nothing else. */
async function interact(provider, request, response, [uid, action]) {
  const show = (status, message) => answer(response, status, "text/html; charset=utf-8", loginPage(uid, message));
  const finish = (result) =>
    provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
  await provider.interactionDetails(request, response);
  if (request.method !== "POST") return show(200, "Which account?");
  if (action === "abort") return finish({ error: "access_denied", error_description: "the person cancelled" });
  const login = new URLSearchParams(await bodyOf(request)).get("login") ?? "";
  if (!accounts.has(login)) return show(422, "There is no such account.");
  return finish({ login: { accountId: subject(login), remember: true } });
}

async function changeAccount(request, response, [name]) {
  const claims = { ...accounts.get(name), ...JSON.parse(await bodyOf(request)) };
  accounts.set(name, Object.fromEntries(Object.entries(claims).filter(([, value]) => value !== null)));
  answer(response, 200, "application/json", JSON.stringify(accounts.get(name)));
}

function serve(provider, issued) {
  const others = provider.callback();
  const routes = {
    interaction: (request, response, rest) => interact(provider, request, response, rest),
    accounts: changeAccount,
    grants: (_, response) => answer(response, 200, "application/json", JSON.stringify(issued)),
  };
  return async (request, response) => {
    const [first, ...rest] = new URL(request.url, provider.issuer).pathname.slice(1).split("/");
    try {
      await (routes[first] ?? others)(request, response, rest);
    } catch (error) {
      const status = error instanceof errors.SessionNotFound ? 400 : 500;
      answer(response, status, "text/plain; charset=utf-8", `${error.name}: ${error.message}`);
    }
  };
}

const settings = JSON.parse(process.env.SETTINGS);
const server = createServer();
server.listen(settings.port ?? 0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, configuration(settings));
  const issued = { tokens: 0 };
  provider.on("grant.success", () => issued.tokens++);
  provider.on("server_error", (_, error) => console.error(error));
  server.on("request", serve(provider, issued));
  console.log(JSON.stringify({ issuer }));
});
process.stdin.resume().on("end", () => process.exit(0));
