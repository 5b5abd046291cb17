// The AI SDK. The argument names the provider: `openai`, or `compatible` for servers with an OpenAI-compatible API.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateImage } from "ai";

import { apiKey, baseURL, error, feature, picture, png, prompt, retryPrompt, wrongSize } from "./kit.mjs";

const model =
  process.argv[2] === "openai"
    ? createOpenAI({ baseURL, apiKey }).image("gpt-image-2")
    : createOpenAICompatible({ name: "imagate", baseURL, apiKey }).imageModel("gpt-image-2");
const generate = async (size, text = prompt) =>
  png((await generateImage({ model, prompt: text, size })).image.uint8Array, size);

await feature("generation", () => generate("1536x1024"));
await feature("edit", () => generate("1024x1024", { text: "add a boat", images: [picture] }));
await error(["size"], () => generate(wrongSize));
await feature("retry", () => generate("1024x1024", retryPrompt));
