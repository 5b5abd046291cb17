// A tour of the API with the Vercel AI SDK, through its own provider and through the one for compatible servers.
//
// The environment is that of `openai_tour.mjs`. This SDK does not read `x-should-retry`: it sends every 429 and 5xx
// three times, six seconds in all. The expectations below say so, because it is why the gateway must be careful.
// One line per check; exit 1 when one failed.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, RetryError, generateImage, generateText, streamText } from "ai";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { check, finish, made, pooled, probe, setting } from "./kit.mjs";

const model = "gpt-image-2";
const prompt = "a red cube on a table";

/** A provider that counts what it sends from now on. */
function provider(kind, which, options = {}) {
  const counted = made(() => counting(kind, which, options), kind, which, options);
  return Object.assign(counted, { requests: 0, sent: [] });
}

function counting(kind, which, options) {
  const counted = {};
  const shared = {
    baseURL: setting(which, "BASE_URL"),
    apiKey: setting(which, "API_KEY"),
    fetch: (address, init) => {
      counted.requests++;
      if (typeof init?.body === "string") counted.sent.push(JSON.parse(init.body));
      return pooled(address, init);
    },
    ...options,
  };
  counted.sdk = kind === "openai" ? createOpenAI(shared) : createOpenAICompatible({ name: "gateway", ...shared });
  counted.image = kind === "openai" ? counted.sdk.image(model) : counted.sdk.imageModel(model);
  counted.options = (values) => ({ providerOptions: { [kind === "openai" ? "openai" : "gateway"]: values } });
  return counted;
}

for (const kind of ["openai", "compatible"]) {
  const named = (name) => `${kind}: ${name}`;

  await check(named("generate with nothing but what is required"), async () => {
    const counted = provider(kind, "SIMULATED");
    const answer = await generateImage({ model: counted.image, prompt });
    assert.equal(answer.images.length, 1);
    assert.match(probe(Buffer.from(answer.image.uint8Array)), /^png \d+x\d+$/);
    assert.equal(answer.image.mediaType, "image/png");
    assert.deepEqual(answer.warnings, []);
    assert.ok(answer.responses[0].headers["x-request-id"], "no request id");
    assert.equal(counted.requests, 1);
    // Some releases of the compatible provider always send `response_format`, which the original refuses.
    assert.ok([undefined, "b64_json"].includes(counted.sent[0].response_format), JSON.stringify(counted.sent[0]));
  });

  await check(named("generate two of a size, with every option"), async () => {
    const counted = provider(kind, "SIMULATED");
    // One provider spells its options in camel case, the other hands them through.
    const values =
      kind === "openai"
        ? { quality: "low", background: "opaque", outputFormat: "webp", outputCompression: 60, moderation: "low", user: "tour" }
        : { quality: "low", background: "opaque", output_format: "webp", output_compression: 60, moderation: "low", user: "tour" };
    const answer = await generateImage({ model: counted.image, prompt, n: 2, size: "1536x1024", ...counted.options(values) });
    assert.equal(answer.images.length, 2);
    for (const image of answer.images) {
      assert.equal(probe(Buffer.from(image.uint8Array)), "webp 1536x1024");
      assert.equal(image.mediaType, "image/webp");
    }
    assert.equal(counted.requests, 1);
    if (kind === "openai") {
      assert.ok(answer.usage.totalTokens > 0 && answer.usage.totalTokens === answer.usage.inputTokens + answer.usage.outputTokens);
      const [detail] = answer.providerMetadata.openai.images;
      assert.ok(detail.revisedPrompt, "no revised prompt");
      assert.deepEqual([detail.size, detail.quality, detail.outputFormat, detail.background], ["1536x1024", "low", "webp", "opaque"]);
    }
  });

  await check(named("more images than one request can make"), async () => {
    const counted = provider(kind, "SIMULATED");
    const values = kind === "openai" ? { outputFormat: "jpeg", quality: "low" } : { output_format: "jpeg", quality: "low" };
    const answer = await generateImage({ model: counted.image, prompt, n: 3, maxImagesPerCall: 2, size: "1024x640", ...counted.options(values) });
    assert.equal(answer.images.length, 3);
    assert.equal(counted.requests, 2);
  });

  /** The call must fail like this; a failure that was sent several times is wrapped by the SDK. */
  async function throws(counted, status, code, param, requests, call) {
    const error = await call(counted).then(() => assert.fail("nothing was thrown"), (error) => error);
    const last = RetryError.isInstance(error) ? error.lastError : error;
    assert.ok(APICallError.isInstance(last), String(error?.stack));
    assert.equal(last.statusCode, status);
    const { error: detail } = JSON.parse(last.responseBody);
    assert.deepEqual([detail.code, detail.param], [code, param]);
    assert.equal(last.message, detail.message);
    assert.ok(last.responseHeaders["x-request-id"], "no request id");
    assert.ok(!last.responseBody.includes("canary"), "the upstream's own words came through");
    assert.equal(counted.requests, requests, `${counted.requests} requests`);
  }

  await check(named("400 names the size"), async () => {
    await throws(provider(kind, "SIMULATED"), 400, "invalid_request_error", "size", 1, ({ image }) =>
      generateImage({ model: image, prompt, size: "1000x1000" }),
    );
  });

  await check(named("401 for an unknown key"), async () => {
    await throws(provider(kind, "SIMULATED", { apiKey: "sk-img-nonsense" }), 401, "INVALID_API_KEY", null, 1, ({ image }) =>
      generateImage({ model: image, prompt }),
    );
  });

  await check(named("404 for a base URL with its version twice"), async () => {
    const baseURL = `${setting("SIMULATED", "BASE_URL")}/v1`;
    await throws(provider(kind, "SIMULATED", { baseURL }), 404, "unknown_url", null, 1, ({ image }) => generateImage({ model: image, prompt }));
  });

  await check(named("edit one image, several, and with a mask"), async () => {
    const read = (name) => readFileSync(`${process.env.PICTURES}/${name}`);
    for (const parts of [
      { images: [read("first.png")] },
      { images: [read("first.png"), read("second.jpeg")] },
      { images: [read("first.png")], mask: read("mask.png") },
    ]) {
      const counted = provider(kind, "SIMULATED");
      const answer = await generateImage({ model: counted.image, prompt: { text: "a hat", ...parts }, size: "1024x1024" });
      assert.equal(probe(Buffer.from(answer.image.uint8Array)), "png 1024x1024");
      assert.equal(counted.requests, 1);
    }
  });

  await check(named("400 names the mask"), async () => {
    const read = (name) => readFileSync(`${process.env.PICTURES}/${name}`);
    await throws(provider(kind, "SIMULATED"), 400, "invalid_request_error", "mask", 1, ({ image }) =>
      generateImage({ model: image, prompt: { text: "a hat", images: [read("first.png")], mask: read("opaque.png") } }),
    );
  });

  if (kind === "openai") {
    await check(named("a response with the image tool"), async () => {
      const counted = provider(kind, "SIMULATED");
      const tools = { image_generation: counted.sdk.tools.imageGeneration({ quality: "low", size: "1024x1024" }) };
      const answer = await generateText({ model: counted.sdk.responses("gpt-5.5"), prompt, tools });
      const image = answer.toolResults.find((result) => result.toolName === "image_generation").output.result;
      assert.equal(probe(Buffer.from(image, "base64")), "png 1024x1024");
      assert.equal(counted.requests, 1);
    });

    await check(named("a response with the image tool as it comes"), async () => {
      const counted = provider(kind, "SIMULATED");
      const tools = { image_generation: counted.sdk.tools.imageGeneration({ quality: "low", size: "1024x1024", partialImages: 1 }) };
      const answer = streamText({ model: counted.sdk.responses("gpt-5.5"), prompt, tools });
      await answer.consumeStream({ onError: (error) => assert.fail(String(error)) });
      const results = await answer.toolResults;
      const image = results.find((result) => result.toolName === "image_generation").output.result;
      assert.equal(probe(Buffer.from(image, "base64")), "png 1024x1024");
      assert.equal(counted.requests, 1);
    });
  }

  /** A call that the fake upstream fails. */
  const fails = (user, script, status, code, param, requests, options = {}, behind = "SCRIPTED") =>
    check(named(`${status} ${user}`), async () => {
      await throws(provider(kind, behind), status, code, param, requests, (counted) =>
        generateImage({ model: counted.image, prompt: `a cube [[${script}]]`, ...counted.options({ user: `${kind}-${user}` }), ...options }),
      );
    });

  await fails("parameter", "status=400 body=parameter", 400, "invalid_request_error", "quality", 1);
  await fails("usage-limit", "status=429 body=usage-limit resets-in=3600 retry-after=3600", 429, "usage_limit_reached", null, 3, {}, kind === "openai" ? "RESTING1" : "RESTING2");
  await fails("refused", "status=400 body=policy", 502, "upstream_error", null, 3);
  await fails("no-image", "data=empty", 502, "upstream_error", null, 1, { maxRetries: 0 });
  await fails("html", "body=html", 502, "upstream_error", null, 1, { maxRetries: 0 });
  await fails("cut-before-the-image", "cut=30", 502, "upstream_error", null, 1, { maxRetries: 0 });

  // This SDK takes a broken 200 for a passing fault and asks again: how often that was paid is for the ledger to say.
  await check(named("an answer that breaks off after the image began is an error"), async () => {
    const counted = provider(kind, "SCRIPTED");
    const call = generateImage({ model: counted.image, prompt: "a cube [[cut=80%]]", ...counted.options({ user: `${kind}-cut-after-the-image` }) });
    await assert.rejects(call, (error) => RetryError.isInstance(error) || APICallError.isInstance(error));
  });

  await check(named("a scripted upstream that answers well"), async () => {
    const counted = provider(kind, "SCRIPTED");
    const answer = await generateImage({ model: counted.image, prompt: "a cube", size: "1536x1024", ...counted.options({ user: `${kind}-well` }) });
    assert.equal(probe(Buffer.from(answer.image.uint8Array)), "png 1536x1024");
  });
}

finish(`AI SDK, Node ${process.version}`);
