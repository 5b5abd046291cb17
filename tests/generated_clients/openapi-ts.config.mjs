// Node needs the ending of a file in an import.
export default {
    input: "./document.json",
    output: { path: "hey_api_client", module: { extension: ".js" } },
    plugins: ["@hey-api/client-fetch", "@hey-api/typescript", "@hey-api/sdk"],
};
