// A tour of `/v1/responses` with the official `openai` package for Node, unchanged.
//
// SIMULATED_* answers by itself, SCRIPTED_* has a fake upstream behind it that speaks `/responses` and obeys a
// directive in the task. Each call against the second carries its own `user`. One line per check; exit 1 when one
// failed.

import OpenAI, { APIError, BadRequestError, InternalServerError } from "openai";
import { VERSION } from "openai/version";
import assert from "node:assert/strict";
import { check, each, finish, made, pooled, probe, setting } from "./kit.mjs";

const client = (which) => new OpenAI({ baseURL: setting(which, "BASE_URL"), apiKey: setting(which, "API_KEY"), fetch: pooled });
const [simulated, scripted] = ["SIMULATED", "SCRIPTED"].map((which) => each(() => made(() => client(which), which)));
const tool = { type: "image_generation", size: "1024x640", quality: "low", output_format: "png", partial_images: 1 };
const task = (options = {}) => ({ model: "gpt-5.5", input: "a red cube on a table", tools: [tool], ...options });

function isGood(response) {
  const call = response.output.find((item) => item.type === "image_generation_call");
  assert.equal(call.status, "completed");
  assert.equal(probe(Buffer.from(call.result, "base64")), "png 1024x640");
  return response;
}

await check("create with the image tool", async () => {
  const response = isGood(await simulated.responses.create(task()));
  assert.ok(response._request_id && response.output_text);
});

await check("a second turn that replays the first", async () => {
  const first = await simulated.responses.create(task());
  isGood(await simulated.responses.create(task({ input: [...first.output, { role: "user", content: "now blue" }] })));
});

await check("create with events", async () => {
  const kinds = [];
  let last;
  for await (const event of await simulated.responses.create(task({ stream: true }))) {
    assert.equal(event.sequence_number, kinds.length);
    kinds.push(event.type);
    last = event;
  }
  assert.deepEqual(kinds.slice(0, 3), ["response.created", "response.in_progress", "response.output_item.added"]);
  assert.equal(last.type, "response.completed");
  isGood(last.response);
});

const order = `created in_progress output_item.added image_generation_call.in_progress
  image_generation_call.generating image_generation_call.partial_image image_generation_call.completed
  output_item.done output_item.added content_part.added output_text.delta output_text.done content_part.done
  output_item.done completed`.split(/\s+/);

// The values that the helper for streams makes of the events, which come in the order of the contract.
async function helped(sdk, input, user) {
  const stream = sdk.responses.stream(task({ input, user }), { headers: { Cookie: "caller-canary=1" } });
  const kinds = [];
  for await (const event of stream) kinds.push(event.type.replace("response.", ""));
  // However many pieces the text has.
  assert.deepEqual(kinds.filter((kind, at) => kind !== "output_text.delta" || kinds[at - 1] !== kind), order);
  return isGood(await stream.finalResponse());
}

for (const [name, sdk] of Object.entries({ simulated, scripted })) {
  await check(`the helper for streams, one turn and another: ${name}`, async () => {
    const asked = { role: "user", content: "a red cube on a table" };
    const first = await helped(sdk, [asked], "helper-1");
    await helped(sdk, [asked, ...first.output, { role: "user", content: "now blue" }], "helper-2");
  });
}

await check("what the upstream says comes through", async () => {
  isGood(await scripted.responses.create(task({ user: "plain" })));
  isGood(await scripted.responses.stream(task({ user: "events" })).finalResponse());
});

for (const [name, param, options] of [
  ["an image model", "model", { model: "gpt-image-2" }],
  ["a size off the grid", "tools[0].size", { tools: [{ type: "image_generation", size: "1000x1000" }] }],
  ["an unknown quality", "tools[1].quality", { tools: [{ type: "web_search" }, { type: "image_generation", quality: "hd" }] }],
]) {
  await check(`400 names ${param}: ${name}`, async () => {
    await assert.rejects(simulated.responses.create(task(options)), (error) => {
      assert.ok(error instanceof BadRequestError, String(error));
      assert.deepEqual([error.code, error.param], ["invalid_request_error", param]);
      return true;
    });
  });
}

for (const [user, script, kind, code, stream] of [
  ["parameter", "status=400 body=parameter", BadRequestError, "invalid_request_error", false],
  ["policy", "status=400 body=policy", InternalServerError, "upstream_error", false],
  ["broken", "cut=40", InternalServerError, "upstream_error", false],
  ["fails-at-once", "events=created,failed-policy", InternalServerError, "upstream_error", true],
  ["breaks-between", "events=created,added,eof", APIError, "upstream_error", true],
  ["breaks-within", "events=created,added,half,cut b64=2000000", APIError, "upstream_error", true],
  ["fails-within", "events=created,added,failed", APIError, "upstream_error", true],
]) {
  const failing = (error) => {
    assert.ok(error instanceof kind, String(error));
    assert.equal(error.code, code, String(error));
    assert.ok(!String(error).includes("canary"), String(error));
    return true;
  };
  await check(`${code} ${user}`, async () => {
    const options = task({ input: `a cube [[${script}]]`, user, stream });
    await assert.rejects(async () => {
      const answer = await scripted.responses.create(options);
      if (stream) for await (const _ of answer);
    }, failing);
  });
}

finish(`openai ${VERSION}`);
