// The things that no page may do, with whatever is on it: complain, break its own policy, ask another host, open a
// dialog.

/** Hangs on to everything that a window does, and gives the list that its faults are added to. */
export async function watch(context, origins) {
  const faults = [];
  const note = (kind, text) => faults.push(`${kind}: ${text}`);
  const stays = (url) => ["data:", "blob:", "about:"].includes(new URL(url).protocol) || origins.includes(new URL(url).origin);
  await context.route("**/*", (route) => {
    const url = route.request().url();
    return stays(url) ? route.continue() : route.abort("blockedbyclient");
  });
  // Redirects do not come by the route.
  context.on("request", (request) => {
    if (!stays(request.url())) note("another host", request.url());
  });
  context.on("requestfailed", (request) => {
    const why = request.failure()?.errorText;
    // Whoever leaves a page gives up what it was waiting for; another host has been named already.
    if (why !== "net::ERR_ABORTED" && stays(request.url())) note("request", `${request.url()}: ${why}`);
  });
  context.on("response", (response) => {
    if (response.status() >= 400 && !response.request().isNavigationRequest()) {
      note("resource", `${response.url()}: ${response.status()}`);
    }
  });
  context.on("console", (message) => {
    // The test decides about the status of a document, and a resource has been named already.
    if (["error", "warning"].includes(message.type()) && !message.text().startsWith("Failed to load resource")) {
      note("console", message.text());
    }
  });
  context.on("weberror", (error) => note("script", String(error.error())));
  context.on("dialog", (dialog) => {
    note("dialog", dialog.message());
    dialog.dismiss();
  });
  return faults;
}
