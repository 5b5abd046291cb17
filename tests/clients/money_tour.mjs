// Many user actions with the official `openai` package for Node, unchanged and with its default retries.
//
// PLAN in the environment says what to do: `actions` different generations at `base_url` with `api_key`, `parallel` at
// once, each made `times` times one after the other, with `prompt`, a client `timeout` in seconds or null, and `key`:
// whether an action carries an `Idempotency-Key` of its own. With `twins` all actions send the same body. One line of
// JSON per call says what came of it; the last line says how many requests the package sent.

import OpenAI, { APIError } from "openai";
import { createHash } from "node:crypto";

const plan = JSON.parse(process.env.PLAN);
let sent = 0;

const client = new OpenAI({
  baseURL: plan.base_url,
  apiKey: plan.api_key,
  fetch: (address, ...rest) => {
    // The SDK also fetches `data:,` to find out what this fetch can do.
    if (String(address?.url ?? address).startsWith("http")) sent++;
    return fetch(address, ...rest);
  },
  ...(plan.timeout === null ? {} : { timeout: plan.timeout * 1000 }),
});

async function call(action) {
  const told = { action, image: null, status: null, code: null, reason: null, should_retry: null, error: null };
  const user = plan.twins ? "twins" : `action-${action}`;
  const more = plan.key ? { headers: { "Idempotency-Key": `key-${action}` } } : {};
  try {
    const answer = await client.images.generate({ model: "gpt-image-2", prompt: plan.prompt, user, size: "1024x1024" }, more);
    told.image = createHash("sha256").update(answer.data[0].b64_json).digest("hex");
  } catch (error) {
    told.error = error.constructor.name;
    if (error instanceof APIError) {
      Object.assign(told, { status: error.status ?? null, code: error.code ?? null, reason: error.error?.reason ?? null });
      told.should_retry = error.headers?.get?.("x-should-retry") ?? null;
    }
  }
  return told;
}

let next = 0;

async function worker() {
  for (let action = next++; action < plan.actions; action = next++) {
    for (let time = 0; time < plan.times; time++) {
      console.log(JSON.stringify(await call(action)));
    }
  }
}

await Promise.all(Array.from({ length: plan.parallel }, worker));
console.log(JSON.stringify({ sent }));
