// A tour of the API with the official `openai` package for Node, unchanged.
//
// Two gateways are given by the environment: SIMULATED_* draws its own images, SCRIPTED_* has a fake upstream behind it
// that obeys a directive in the prompt. Each call against the second carries its own `user`, so that the test which
// starts this script can count what each call cost. PICTURES is a folder with files to edit. One line per check; exit 1
// when one failed.

import OpenAI, { APIError, AuthenticationError, BadRequestError, InternalServerError, NotFoundError, RateLimitError, toFile } from "openai";
import { VERSION } from "openai/version";
import assert from "node:assert/strict";
import { createReadStream, readFileSync } from "node:fs";
import { check, each, finish, made, pooled, probe, setting } from "./kit.mjs";

/** A client that counts what it sends from now on: the SDK tries again by itself where it may. */
function client(which, options = {}) {
  const counted = made(() => counting(which, options), which, options);
  counted.requests = 0;
  return counted;
}

function counting(which, options) {
  const counted = {};
  counted.sdk = new OpenAI({
    baseURL: setting(which, "BASE_URL"),
    apiKey: setting(which, "API_KEY"),
    fetch: (address, ...rest) => {
      // The SDK also fetches `data:,` to find out what this fetch can do.
      if (String(address?.url ?? address).startsWith("http")) counted.requests++;
      return pooled(address, ...rest);
    },
    ...options,
  });
  return counted;
}

const simulated = each(() => client("SIMULATED").sdk);
const model = "gpt-image-2";
const prompt = "a red cube on a table";

async function generate(options = {}) {
  const { data, response, request_id } = await simulated.images.generate({ model, prompt, ...options }).withResponse();
  assert.ok(request_id, "no request id");
  assert.equal(data._request_id, request_id);
  assert.equal(response.headers.get("x-imagate-simulated"), "true");
  return data;
}

function isGood(answer, format, size, count = 1) {
  assert.equal(answer.data.length, count);
  for (const image of answer.data) {
    assert.equal(probe(Buffer.from(image.b64_json, "base64")), `${format} ${size}`);
    assert.ok(image.revised_prompt, "no revised prompt");
    assert.equal(image.url, undefined);
  }
  assert.deepEqual([answer.size, answer.output_format, answer.background], [size, format, "opaque"]);
  assert.ok(["low", "medium", "high"].includes(answer.quality), answer.quality);
  const { usage } = answer;
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
  assert.equal(usage.input_tokens, usage.input_tokens_details.text_tokens + usage.input_tokens_details.image_tokens);
  assert.ok(Number.isInteger(answer.created) && answer.created > 1_700_000_000, String(answer.created));
}

for (const output_format of ["png", "jpeg", "webp"]) {
  await check(`generate ${output_format}`, async () => {
    isGood(await generate({ output_format, size: "1024x1024", quality: "low" }), output_format, "1024x1024");
  });
}

for (const size of ["1024x640", "1536x1024", "2048x1152"]) {
  await check(`generate ${size}`, async () => isGood(await generate({ size, quality: "medium" }), "png", size));
}

await check("generate two, compressed", async () => {
  const options = { n: 2, output_format: "webp", output_compression: 60, size: "1024x1024", moderation: "low", background: "opaque", user: "tour" };
  isGood(await generate(options), "webp", "1024x1024", 2);
});

await check("generate with nothing but what is required", async () => {
  const answer = await generate();
  isGood(answer, "png", answer.size);
});

await check("generate with automatic values", async () => {
  const answer = await generate({ size: "auto", quality: "auto", background: "auto" });
  isGood(answer, "png", answer.size);
});

await check("generate with nulls for what is left open", async () => {
  const nulls = ["n", "quality", "size", "background", "moderation", "output_format", "output_compression", "response_format", "stream", "partial_images"];
  const answer = await generate(Object.fromEntries(nulls.map((name) => [name, null])));
  isGood(answer, "png", answer.size);
});

await check("generate with the dated snapshot, and response_format b64_json", async () => {
  const answer = await generate({ model: "gpt-image-2-2026-04-21", size: "1024x1024", response_format: "b64_json" });
  assert.equal(answer.model, "gpt-image-2-2026-04-21");
});

await check("eight at once on one client", async () => {
  const all = await Promise.all(Array.from({ length: 8 }, () => generate({ size: "1024x640", quality: "low" })));
  for (const answer of all) isGood(answer, "png", "1024x640");
});

await check("models.list", async () => {
  const models = [];
  for await (const one of simulated.models.list()) models.push(one);
  assert.ok(models.length > 0, "no model");
  assert.ok(models.every((one) => one.object === "model" && one.id && one.owned_by && Number.isInteger(one.created)));
});

for (const id of [model, "gpt-image-2-2026-04-21"]) {
  await check(`models.retrieve ${id}`, async () => assert.equal((await simulated.models.retrieve(id)).id, id));
}

/** The call must throw exactly this class, with all that a program needs from it, after so many requests. */
async function throws(counted, kind, call, status, code, param = null, requests = 1) {
  const error = await call(counted.sdk).then(() => assert.fail("nothing was thrown"), (error) => error);
  assert.ok(error instanceof APIError, String(error));
  assert.equal(error.constructor, kind, error.constructor.name);
  assert.deepEqual([error.status, error.code, error.param], [status, code, param], String(error));
  assert.ok(error.requestID, "no request id");
  assert.ok(error.error.message && error.message.includes(error.error.message), error.message);
  assert.equal(counted.requests, requests, `${counted.requests} requests`);
  return error;
}

await check("404 for an unknown model", async () => {
  await throws(client("SIMULATED"), NotFoundError, (sdk) => sdk.models.retrieve("no-such-model"), 404, "model_not_found", "model");
});

await check("404 for an operation that is not here", async () => {
  await throws(client("SIMULATED"), NotFoundError, (sdk) => sdk.embeddings.create({ model, input: "a" }), 404, "unknown_url");
});

await check("404 for a base URL with its version twice", async () => {
  const doubled = client("SIMULATED", { baseURL: `${setting("SIMULATED", "BASE_URL")}/v1` });
  await throws(doubled, NotFoundError, (sdk) => sdk.images.generate({ model, prompt }), 404, "unknown_url");
});

for (const [field, value] of [["size", "1000x1000"], ["n", 11], ["quality", "hd"], ["background", "transparent"], ["output_format", "gif"], ["response_format", "url"], ["input_fidelity", "high"], ["sise", "1024x1024"]]) {
  await check(`400 names ${field}`, async () => {
    const call = (sdk) => sdk.images.generate({ model, prompt, [field]: value });
    const error = await throws(client("SIMULATED"), BadRequestError, call, 400, "invalid_request_error", field);
    assert.equal(error.type, "invalid_request_error");
  });
}

for (const [name, apiKey] of [["an unknown key", "sk-img-nonsense"], ["a login token", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"]]) {
  await check(`401 for ${name}`, async () => {
    const error = await throws(client("SIMULATED", { apiKey }), AuthenticationError, (sdk) => sdk.images.generate({ model, prompt }), 401, "INVALID_API_KEY");
    assert.equal(error.message, "401 Invalid API key");
  });
}

const picture = (name) => `${process.env.PICTURES}/${name}`;
const file = (name, type) => toFile(readFileSync(picture(name)), name, type && { type });
const edit = async (options) => simulated.images.edit({ model, prompt: "add a hat", image: await file("first.png"), size: "1024x1024", ...options });

for (const [name, image] of [
  ["a buffer with a type", () => file("first.png", "image/png")],
  ["a buffer without a type", () => file("second.jpeg")],
  ["a buffer with a wrong type", () => file("third.webp", "image/gif")],
  ["a file stream", () => createReadStream(picture("first.png"))],
  ["a list of one", async () => [await file("first.png")]],
  ["a list of three kinds", () => Promise.all(["first.png", "second.jpeg", "third.webp"].map((name) => file(name)))],
  ["a list of sixteen", () => Promise.all(Array.from({ length: 16 }, () => file("first.png")))],
]) {
  await check(`edit ${name}`, async () => isGood(await edit({ image: await image() }), "png", "1024x1024"));
}

await check("edit two with a mask and every option", async () => {
  const options = { n: 2, quality: "low", output_format: "webp", output_compression: 60, background: "opaque", user: "tour" };
  const image = [await file("first.png"), await file("second.jpeg")];
  isGood(await edit({ image, mask: await file("mask.png"), ...options }), "webp", "1024x1024", 2);
});

/** At most so many partial images, counted from 0, and exactly one final image as the last event. */
async function isStream(stream, family, format, size, partials) {
  const events = [];
  for await (const event of stream) events.push(event);
  const last = events.at(-1);
  const types = events.map((event) => event.type);
  assert.deepEqual(types, [...Array(events.length - 1).fill(`${family}.partial_image`), `${family}.completed`]);
  assert.ok(events.length - 1 <= partials, types.join());
  assert.equal(last.usage.total_tokens, last.usage.input_tokens + last.usage.output_tokens);
  for (const [index, event] of events.entries()) {
    assert.equal(event.partial_image_index, event === last ? undefined : index);
    assert.equal(probe(Buffer.from(event.b64_json, "base64")), `${format} ${size}`);
    assert.deepEqual([event.size, event.output_format, event.background], [size, format, "opaque"]);
    assert.ok(["low", "medium", "high"].includes(event.quality), event.quality);
    assert.ok(Number.isInteger(event.created_at) && event.created_at > 1_700_000_000);
  }
  return events.length;
}

for (const partial_images of [0, 1, 3]) {
  await check(`stream a generation with ${partial_images} partial images`, async () => {
    const stream = await simulated.images.generate({ model, prompt, stream: true, partial_images, size: "1024x1024", output_format: "jpeg" });
    await isStream(stream, "image_generation", "jpeg", "1024x1024", partial_images);
  });
}

await check("stream an edit of two images with a mask", async () => {
  const image = [await file("first.png"), await file("second.jpeg")];
  const stream = await edit({ image, mask: await file("mask.png"), stream: true, partial_images: 2 });
  await isStream(stream, "image_edit", "png", "1024x1024", 2);
});

await check("a stream from a scripted upstream arrives event by event", async () => {
  const stream = await client("SCRIPTED").sdk.images.generate({ model, prompt: "a cube", size: "1024x1024", stream: true, partial_images: 3, user: "stream" });
  assert.equal(await isStream(stream, "image_generation", "png", "1024x1024", 3), 4);
});

await check("a stream that is left in the middle", async () => {
  const stream = await client("SCRIPTED").sdk.images.generate({ model, prompt: "a cube [[events=p,murmur]]", stream: true, partial_images: 1, user: "left" });
  for await (const event of stream) {
    assert.equal(event.partial_image_index, 0);
    break;
  }
});

for (const [user, script] of [
  ["break-clean", "events=p,eof"],
  ["break-cut", "events=p,cut"],
  ["break-in-the-image", "events=p,half,cut b64=800000"],
  ["break-said", "events=p,e"],
]) {
  await check(`a stream that breaks: ${user}`, async () => {
    const counted = client("SCRIPTED");
    const stream = await counted.sdk.images.generate({ model, prompt: `a cube [[${script}]]`, stream: true, partial_images: 1, user });
    const seen = [];
    const error = await (async () => {
      for await (const event of stream) seen.push(event.type);
    })().then(() => assert.fail(`nothing was thrown after ${seen}`), (error) => error);
    assert.ok(error instanceof APIError, String(error?.stack));
    assert.deepEqual([error.code, error.param, error.type], ["upstream_error", null, "upstream_error"]);
    assert.deepEqual(seen, ["image_generation.partial_image"]);
    assert.equal(counted.requests, 1);
  });
}

const text = () => toFile(Buffer.from("a red cube"), "a.png", { type: "image/png" });
for (const [name, param, options] of [
  ["an image that is none", "image", async () => ({ image: await text() })],
  ["a second image that is none", "image[]", async () => ({ image: [await file("first.png"), await text()] })],
  ["a mask without alpha", "mask", async () => ({ mask: await file("opaque.png") })],
  ["a mask of another size", "mask", async () => ({ mask: await file("small.png") })],
  ["input_fidelity", "input_fidelity", async () => ({ input_fidelity: "high" })],
  ["a stream of two", "n", async () => ({ stream: true, n: 2 })],
]) {
  await check(`400 of an edit names ${param}: ${name}`, async () => {
    const given = { model, prompt, image: await file("first.png"), ...(await options()) };
    await throws(client("SIMULATED"), BadRequestError, (sdk) => sdk.images.edit(given), 400, "invalid_request_error", param);
  });
}

await check("413 for an image of 50 MiB", async () => {
  const image = await toFile(Buffer.concat([readFileSync(picture("first.png")), Buffer.alloc(52_428_800)]), "a.png");
  await throws(client("SIMULATED"), APIError, (sdk) => sdk.images.edit({ model, prompt, image }), 413, "request_too_large", "image");
});

/** A call that the fake upstream fails; the SDK keeps its default of two retries. */
async function fails(user, script, kind, status, code, param = null, requests = 1, behind = "SCRIPTED") {
  await check(`${status} ${user}`, async () => {
    const call = (sdk) => sdk.images.generate({ model, prompt: `a cube [[${script}]]`, user });
    const error = await throws(client(behind), kind, call, status, code, param, requests);
    assert.ok(!JSON.stringify(error.error).includes("canary"), "the upstream's own words came through");
  });
}

await fails("refused", "status=400 body=policy", InternalServerError, 502, "upstream_error");
await fails("no-image", "data=empty", InternalServerError, 502, "upstream_error");
await fails("html", "body=html", InternalServerError, 502, "upstream_error");
await fails("front-proxy", "status=524 body=html", InternalServerError, 502, "upstream_error");
await fails("cut-before-the-image", "cut=30", InternalServerError, 502, "upstream_error");
await fails("usage-limit", "status=429 body=usage-limit resets-in=3600 retry-after=3600", RateLimitError, 429, "usage_limit_reached", null, 1, "RESTING1");
await fails("parameter", "status=400 body=parameter", BadRequestError, 400, "invalid_request_error", "quality");
// Another try cannot help before the operator has acted, and the SDK is told so.
await fails("key-of-the-account", "status=401", InternalServerError, 502, "upstream_error", null, 1, "RESTING2");
// Nothing was made, so trying again is right, and the SDK does: three requests in all.
await fails("plain-failure", "status=500", InternalServerError, 502, "upstream_error", null, 3);

await check("an answer that breaks off after the image began is an error, and is not paid twice", async () => {
  const counted = client("SCRIPTED");
  const call = counted.sdk.images.generate({ model, prompt: "a cube [[cut=80%]]", user: "cut-after-the-image" });
  await assert.rejects(Promise.resolve(call));
  assert.equal(counted.requests, 1);
});

await check("a throttled account: the wait is short and the SDK tries again", async () => {
  const counted = client("RESTING3");
  const begun = Date.now();
  const call = (sdk) => sdk.images.generate({ model, prompt: "a cube [[status=429 retry-after=1]]", user: "throttled" });
  await throws(counted, RateLimitError, call, 429, "rate_limit_exceeded", null, 3);
  assert.ok(Date.now() - begun < 60_000, "it slept too long"); // this SDK obeys any wait that it is told
});

for (const [user, script, kind, status, code, param] of [
  ["refused", "events=e-policy", InternalServerError, 502, "upstream_error", null],
  ["no-image", "events=blank", InternalServerError, 502, "upstream_error", null],
  ["parameter", "status=400 body=parameter", BadRequestError, 400, "invalid_request_error", "quality"],
]) {
  await check(`${status} stream-${user}`, async () => {
    const call = (sdk) => sdk.images.generate({ model, prompt: `a cube [[${script}]]`, user: `stream-${user}`, stream: true });
    await throws(client("SCRIPTED"), kind, call, status, code, param);
  });
}

await check("an edit through a scripted upstream", async () => {
  const image = [await file("first.png"), await file("second.jpeg")];
  const given = { model, prompt: "a hat", image, mask: await file("mask.png"), size: "1024x1024", user: "edit" };
  isGood(await client("SCRIPTED").sdk.images.edit(given), "png", "1024x1024");
});

await check("a scripted upstream that answers well", async () => {
  const answer = await client("SCRIPTED").sdk.images.generate({ model, prompt: "a cube", size: "1536x1024", user: "well" });
  isGood(answer, "png", "1536x1024");
});

finish(`openai for Node ${VERSION}, Node ${process.version}`);
