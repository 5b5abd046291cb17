// The live parts of the playground. The form works without them: it is then sent as a whole, and a page shows the outcome.
// The history is in a database of the browser. The address of the page is that of the last request.
(() => {
  "use strict";

  const playground = document.getElementById("playground");
  const form = document.getElementById("playground-form");
  if (!playground || !form) return;
  const words = playground.dataset;
  const part = (id) => document.getElementById(id);
  const say = (text) => { part("progress").textContent = text; };

  // === The size: typed or dragged ===

  const rules = {
    grid: Number(words.grid),
    maxEdge: Number(words.maxEdge),
    maxRatio: Number(words.maxRatio),
    minPixels: Number(words.minPixels),
    maxPixels: Number(words.maxPixels),
  };

  /** The rules that a size breaks. */
  const brokenRules = (width, height) => {
    const [long, short] = width > height ? [width, height] : [height, width];
    const broken = [];
    if (width % rules.grid || height % rules.grid || !short) broken.push("grid");
    if (long > rules.maxEdge) broken.push("edge");
    if (long > rules.maxRatio * short) broken.push("ratio");
    if (width * height < rules.minPixels || width * height > rules.maxPixels) broken.push("pixels");
    return broken;
  };

  const parseSize = (text) => {
    const found = /^([1-9]\d{0,5})x([1-9]\d{0,5})$/.exec(text.trim());
    return found && [Number(found[1]), Number(found[2])];
  };

  const checkSize = () => {
    const field = part("size");
    const size = parseSize(field.value);
    const isAuto = ["", "auto"].includes(field.value.trim());
    const broken = size ? brokenRules(...size) : [];
    for (const rule of part("size-rules").children) {
      rule.dataset.state = isAuto || !size ? "open" : broken.includes(rule.dataset.rule) ? "bad" : "good";
    }
    const isValid = isAuto || (size && !broken.length);
    field.toggleAttribute("aria-invalid", false);
    if (!isValid) field.setAttribute("aria-invalid", "true");
    drawPad(size, isValid);
    return isValid;
  };

  const pad = part("size-pad").querySelector("canvas");
  let legalArea;

  /** A picture of all sizes: the legal ones are marked. It is drawn once for each color. */
  const drawLegalArea = (color) => {
    const area = document.createElement("canvas");
    area.width = pad.width;
    area.height = pad.height;
    const brush = area.getContext("2d");
    brush.fillStyle = color;
    brush.globalAlpha = 0.2;
    for (let x = 0; x < pad.width; x += 1) {
      for (let y = 0; y < pad.height; y += 1) {
        const size = sizeAt(x, pad.height - y);
        if (!brokenRules(...size).length) brush.fillRect(x, y, 1, 1);
      }
    }
    return { area, color };
  };

  const sizeAt = (x, y) => [x, y].map((at, index) => {
    const length = index ? pad.height : pad.width;
    return Math.round((Math.min(Math.max(at, 0), length) / length) * rules.maxEdge / rules.grid) * rules.grid;
  });

  const drawPad = (size, isValid) => {
    const brush = pad.getContext("2d");
    const { color, caretColor } = getComputedStyle(pad);
    if (legalArea?.color !== color) legalArea = drawLegalArea(color);
    brush.clearRect(0, 0, pad.width, pad.height);
    brush.drawImage(legalArea.area, 0, 0);
    if (!size) return;
    const [width, height] = size.map((edge) => (Math.min(edge, rules.maxEdge) / rules.maxEdge) * pad.width);
    brush.lineWidth = 2;
    brush.strokeStyle = isValid ? color : caretColor;
    brush.fillStyle = brush.strokeStyle;
    brush.strokeRect(1, pad.height - height, Math.max(width - 1, 1), Math.max(height - 1, 1));
    brush.fillRect(width - 4, pad.height - height - 4, 8, 8);
  };

  pad.addEventListener("pointerdown", (event) => {
    pad.setPointerCapture(event.pointerId);
    dragSize(event);
  });
  pad.addEventListener("pointermove", (event) => { if (event.buttons) dragSize(event); });

  const dragSize = (event) => {
    const box = pad.getBoundingClientRect();
    const scale = pad.width / box.width;
    const [width, height] = sizeAt((event.clientX - box.left) * scale, (box.bottom - event.clientY) * scale);
    part("size").value = `${Math.max(width, rules.grid)}x${Math.max(height, rules.grid)}`;
    checkSize();
    previewLater();
  };

  // === The words that a model has ===

  const offerWords = () => {
    const model = part("model").value;
    for (const option of form.querySelectorAll("option[data-models]")) {
      option.disabled = option.hidden = !option.dataset.models.split(" ").includes(model);
    }
    for (const select of form.querySelectorAll("select")) {
      if (select.selectedOptions[0]?.disabled) {
        const offered = [...select.options].filter((option) => !option.disabled);
        select.value = (offered.find((option) => option.value === "auto") ?? offered[0])?.value ?? "";
      }
    }
    part("n").max = part("model").selectedOptions[0]?.dataset.images ?? "1";
    part("output_compression").disabled = part("output_format").value === "png";
  };

  // === What it would cost, and the request as code ===

  let previewTimer;
  let previewRequest;

  const cancelPreview = () => {
    window.clearTimeout(previewTimer);
    previewRequest?.abort();
  };

  const previewLater = () => {
    window.clearTimeout(previewTimer);
    previewTimer = window.setTimeout(preview, 400);
  };

  const preview = async () => {
    if (!part("prompt").value.trim()) return;
    previewRequest?.abort();
    previewRequest = new AbortController();
    const fields = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (typeof value === "string") fields.append(name, value);
      else if (value.size) fields.append(name, value.name);
    }
    if (painter.isPainted()) fields.append("mask", "mask.png");
    try {
      const answer = await fetch("/studio/preview", {
        method: "POST", body: fields, credentials: "same-origin", signal: previewRequest.signal,
      });
      const page = parse(await answer.text());
      replaceContent("cost", page);
      const chosen = part("call-code").querySelector("input:checked")?.id;
      replaceContent("call-code", page);
      if (chosen && part(chosen)) part(chosen).checked = true;
      part("call").hidden = !part("call-code").children.length;
    } catch {
      // The next change asks again.
    }
  };

  const parse = (html) => new DOMParser().parseFromString(html, "text/html");

  const replaceContent = (id, page) => {
    const from = page.getElementById(id);
    if (!from) return;
    part(id).replaceChildren(...[...from.childNodes].map((node) => document.adoptNode(node)));
    part(id).dispatchEvent(new CustomEvent("imagate:content", { bubbles: true }));
  };

  // === The mask, painted on the picture ===

  const painter = (() => {
    const canvas = part("paint");
    const strokes = [];
    let picture;
    let cursor = [0.5, 0.5];

    const radius = () => Number(part("brush").value) / 400;

    const draw = () => {
      const brush = canvas.getContext("2d");
      brush.clearRect(0, 0, canvas.width, canvas.height);
      brush.drawImage(picture, 0, 0, canvas.width, canvas.height);
      brush.fillStyle = "rgb(200 40 120 / 45%)";
      brush.beginPath();
      for (const [x, y, size] of strokes) dot(brush, canvas, x, y, size);
      brush.fill();
      brush.beginPath();
      brush.strokeStyle = "#fff";
      brush.lineWidth = 2;
      dot(brush, canvas, ...cursor, radius());
      brush.stroke();
    };

    const dot = (brush, on, x, y, size) => {
      const length = size * Math.max(on.width, on.height);
      brush.moveTo(x * on.width + length, y * on.height);
      brush.arc(x * on.width, y * on.height, length, 0, 2 * Math.PI);
    };

    const paintAt = (x, y) => {
      cursor = [x, y];
      strokes.push([x, y, radius()]);
      draw();
    };

    const open = async () => {
      strokes.length = 0;
      const [file] = part("image").files;
      picture?.close();
      picture = undefined;
      try {
        if (file) picture = await createImageBitmap(file);
      } catch {
        // The gateway says what is wrong with the picture.
      }
      part("painter").hidden = !picture;
      if (!picture) return;
      const scale = Math.min(1, 768 / Math.max(picture.width, picture.height));
      canvas.width = Math.round(picture.width * scale);
      canvas.height = Math.round(picture.height * scale);
      draw();
    };

    const pointer = (event) => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      paintAt(...pointer(event));
    });
    canvas.addEventListener("pointermove", (event) => { if (event.buttons) paintAt(...pointer(event)); });
    canvas.addEventListener("pointerup", () => previewLater());
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      const move = moves[event.key];
      if (move) cursor = cursor.map((at, index) => Math.min(1, Math.max(0, at + move[index] * 0.04)));
      else if (event.key === " ") strokes.push([...cursor, radius()]);
      else return;
      event.preventDefault();
      draw();
    });
    part("image").addEventListener("change", open);
    part("paint-clear").addEventListener("click", () => { strokes.length = 0; draw(); });

    return {
      isPainted: () => Boolean(picture && strokes.length),
      /** The mask: opaque where the picture stays, transparent where it changes. */
      blob: () => {
        const mask = document.createElement("canvas");
        mask.width = picture.width;
        mask.height = picture.height;
        const brush = mask.getContext("2d");
        brush.fillRect(0, 0, mask.width, mask.height);
        brush.globalCompositeOperation = "destination-out";
        brush.beginPath();
        for (const [x, y, size] of strokes) dot(brush, mask, x, y, size);
        brush.fill();
        return new Promise((resolve) => { mask.toBlob(resolve, "image/png"); });
      },
    };
  })();

  // === The request and its events ===

  let running;

  const showError = (text) => {
    const notice = part("playground-error");
    notice.hidden = !text;
    notice.querySelector("p").textContent = text;
    if (text) notice.scrollIntoView({ block: "nearest" });
  };

  const markField = (name) => {
    for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
    const field = name && form.elements.namedItem(name);
    if (!field?.setAttribute) return;
    field.setAttribute("aria-invalid", "true");
    field.closest("details")?.setAttribute("open", "");
    field.focus();
  };

  const showFailure = (failure) => {
    showError(failure.message);
    markField(failure.param);
  };

  const bytesOf = (base64) => {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let index = 0; index < text.length; index += 1) bytes[index] = text.charCodeAt(index);
    return bytes;
  };

  const typeOf = (bytes) => bytes[0] === 0x89 ? "image/png" : bytes[0] === 0xff ? "image/jpeg" : "image/webp";

  const blobOf = (base64) => {
    const bytes = bytesOf(base64);
    return new Blob([bytes], { type: typeOf(bytes) });
  };

  /** Calls `take` with the data of each event. Only new bytes are searched, however large an event is. */
  const readEvents = async (body, take) => {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let line = [];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const pieces = value.split("\n");
      for (let index = 0; index < pieces.length; index += 1) {
        line.push(pieces[index]);
        if (index === pieces.length - 1) break;
        const whole = line.join("").replace(/\r$/, "");
        line = [];
        if (whole.startsWith("data:") && whole.trim() !== "data: [DONE]") await take(JSON.parse(whole.slice(5)));
      }
    }
  };

  /** Calls `take` with each event, or with each image of a JSON answer. */
  const readAnswer = async (answer, take) => {
    const kind = answer.headers.get("content-type") ?? "";
    if (kind.startsWith("text/event-stream")) return readEvents(answer.body, take);
    if (!kind.startsWith("application/json")) throw await refusal(answer);
    for (const image of (await answer.json()).data ?? []) await take(image);
  };

  /** Draws an image, at most as large as a screen. */
  const draw = async (canvas, blob) => {
    const bitmap = await createImageBitmap(blob);
    const scale = Math.min(1, 2048 / Math.max(bitmap.width, bitmap.height));
    canvas.width = Math.round(bitmap.width * scale);
    canvas.height = Math.round(bitmap.height * scale);
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    bitmap.close();
  };

  const figures = (count) => {
    const made = Array.from({ length: count }, (_, index) => {
      const figure = document.createElement("figure");
      const canvas = document.createElement("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${words.picture} ${index + 1}`);
      figure.append(canvas);
      return figure;
    });
    for (const link of part("pictures").querySelectorAll("a[download]")) URL.revokeObjectURL(link.href);
    part("pictures").replaceChildren(...made);
    part("stage").hidden = false;
    part("stage-empty").hidden = true;
    return made;
  };

  const finish = async (figure, blob, index) => {
    const canvas = figure.querySelector("canvas");
    await draw(canvas, blob);
    figure.classList.remove("partial");
    const link = document.createElement("a");
    link.className = "button slim";
    link.href = URL.createObjectURL(blob);
    link.download = `imagate-${index + 1}.${blob.type.split("/")[1]}`;
    link.textContent = part("make").dataset.download;
    const caption = document.createElement("figcaption");
    caption.append(link);
    figure.append(caption);
  };

  const make = async () => {
    showError("");
    markField();
    const data = new FormData(form);
    const sent = { path: outcomePath(data), isAnswered: false };
    // From now on, a reload of the page shows this request.
    remember(sent.path, data);
    if (painter.isPainted()) data.set("mask", await painter.blob(), "mask.png");
    part("report").replaceChildren();
    await watch(data, sent, Date.now(), (take) => send(data, sent, take));
  };

  /** Shows the progress of a request, which `request` sends, and its outcome. */
  const watch = async (data, sent, begun, request) => {
    const count = Number(data.get("n")) || 1;
    const shown = figures(count);
    const figureAt = (index) => shown[Math.min(index, count - 1)];
    let word = words.waiting;
    const tick = () => { say(`${word} ${Math.max(0, Math.round((Date.now() - begun) / 1000))} ${words.seconds}`); };
    tick();
    const clock = window.setInterval(tick, 1000);
    running = new AbortController();
    setRunning(true);
    const images = [];
    const finishNext = async (blob) => {
      images.push(blob);
      await finish(figureAt(images.length - 1), blob, images.length - 1);
    };
    let failure;
    try {
      await request(async (blob, isPartial) => {
        if (!isPartial) return finishNext(blob);
        word = words.partial;
        figureAt(images.length).classList.add("partial");
        return draw(figureAt(images.length).querySelector("canvas"), blob);
      });
    } catch (error) {
      failure = error;
      if (failure.isFinal) showFailure(failure);
    }
    const outcome = await report(sent, failure);
    if (failure && !failure.isFinal && await recover(outcome, images, finishNext)) failure = undefined;
    const isStopped = running.signal.aborted;
    word = !failure ? words.done : isStopped ? words.stopped : words.broken;
    if (failure && !isStopped && !failure.isInProgress && !failure.isFinal) showFailure(failure);
    window.clearInterval(clock);
    tick();
    setRunning(false);
    for (const figure of shown) {
      if (!figure.querySelector("figcaption") && !figure.classList.contains("partial")) figure.remove();
    }
    const state = outcome?.getElementById("stage")?.dataset.state;
    if (images.length) await keep(data, images);
    else if (!part("report").childElementCount) part("stage").hidden = true;
    else if (state === "unknown") say("");
    const isRefused = failure?.isFinal && !sent.isAnswered;
    // Before the history is drawn: a reload meanwhile would wait for the request again, and keep its pictures twice.
    if (images.length || isRefused || state === "ended") remember(isRefused ? "/studio" : sent.path, data, false);
    if (images.length) await showHistory();
  };

  /** The address of the outcome of a form. */
  const outcomePath = (data) => `/studio/${data.get("key")}/${data.get("nonce")}`;

  /** Makes this the address of the page, and keeps the fields of the form with it, so that a reload has both. */
  const remember = (path, data, isOpen = true) => {
    const fields = [...data].filter(([name, value]) => typeof value === "string" && !["csrf", "nonce"].includes(name));
    const begun = isOpen ? Date.now() : history.state?.begun;
    history.replaceState({ path, fields, begun, isOpen }, "", path);
  };

  /** Fills in the form as it was before a reload, and shows the request to which the address of the page leads. */
  const resume = async () => {
    const { run: path, state } = part("stage").dataset;
    // The address of the first request of a new user changes when its key is made.
    const isSame = !path || history.state?.path?.split("/").at(-1) === path.split("/").at(-1);
    const kept = isSame ? history.state : undefined;
    const data = new FormData();
    for (const [name, value] of kept?.fields ?? []) {
      data.append(name, value);
      const field = form.elements.namedItem(name);
      if (field && name !== "key") field.value = value;
    }
    offerWords();
    checkSize();
    if (!path) return;
    if (kept) history.replaceState({ ...kept, path }, "", path);
    // The pictures of an ended request are on the page. This browser keeps those that it has waited for.
    if (state !== "running" && !kept?.isOpen) return;
    // A request that this page has sent a moment ago may not be known yet.
    const sent = { path, isAnswered: true, looks: kept?.isOpen ? LOOKS_FOR_UNKNOWN : 0 };
    const lost = Object.assign(new Error(words.broken), { isInProgress: true });
    await watch(data, sent, kept?.begun ?? Date.now(), () => Promise.reject(lost));
    // It ended while nobody waited.
    if (state === "ended") say("");
  };

  /** Sends the form, and calls `take` with each picture of the answer. */
  const send = async (data, sent, take) => {
    const answer = await fetch("/studio", {
      method: "POST", body: data, credentials: "same-origin", signal: running.signal,
      headers: { accept: "text/event-stream" },
    });
    const path = answer.headers.get("content-location");
    if (path) {
      Object.assign(sent, { path, isAnswered: true });
      history.replaceState({ ...history.state, path }, "", path);
    }
    if (!answer.ok) throw await refusal(answer);
    await readAnswer(answer, async (event) => {
      if (event.error) throw Object.assign(new Error(event.error.message), { param: event.error.param });
      if (event.b64_json) await take(blobOf(event.b64_json), event.type?.endsWith(".partial_image"));
    });
  };

  /** The error of an answer. It is final if the gateway has made it: the request does not go on. */
  const refusal = async (answer) => {
    const text = await answer.text();
    try {
      const { error } = JSON.parse(text);
      const isInProgress = error.code === "image_in_progress";
      return Object.assign(new Error(error.message), { param: error.param, isInProgress, isFinal: !isInProgress });
    } catch {
      const page = parse(text);
      const isFinal = Boolean(page.getElementById("playground-error"));
      const said = page.querySelector(isFinal ? "#playground-error p" : "main p, h1")?.textContent.trim();
      return Object.assign(new Error(said || words.broken), { isFinal });
    }
  };

  const setRunning = (isRunning) => {
    part("make").disabled = isRunning;
    part("stop").hidden = !isRunning;
    part("pictures").classList.toggle("waiting", isRunning);
  };

  const LOOK_AGAIN_MS = 2000;
  /** How often the script looks for a request that the gateway does not know yet. */
  const LOOKS_FOR_UNKNOWN = 3;

  /** Reads a page; `undefined` if it cannot be read. While `looksAgain`, waits until its request has ended. */
  const readPage = async (path, looksAgain) => {
    try {
      for (;;) {
        const answer = await fetch(path, { credentials: "same-origin", cache: "no-store" });
        if (!answer.ok) return undefined;
        const page = parse(await answer.text());
        if (!looksAgain(page.getElementById("stage")?.dataset.state)) return page;
        await pause();
      }
    } catch {
      // The page can be loaded again.
      return undefined;
    }
  };

  /** Waits, or until the user stops. */
  const pause = () => new Promise((resolve) => {
    const timer = window.setTimeout(resolve, LOOK_AGAIN_MS);
    running.signal.addEventListener("abort", () => { window.clearTimeout(timer); resolve(); }, { once: true });
  });

  /**
   * Shows the outcome of a request, and takes the nonce for the next one. A request whose answer was lost may go on and be
   * paid for. So its nonce stays until its outcome is known: the same form again is then the same request.
   */
  const report = async (sent, failure) => {
    const isStopped = () => running.signal.aborted;
    const isRefused = failure?.isFinal && !sent.isAnswered;
    let looks = sent.looks ?? 0;
    const looksAgain = (state) => {
      if (!failure || isStopped()) return false;
      if (state === "unknown") looks -= 1;
      return state === "running" || (state === "unknown" && looks >= 0);
    };
    const page = isRefused ? undefined : await readPage(sent.path, looksAgain);
    const isKnown = page?.getElementById("report") && (sent.isAnswered || page.querySelector("#report dl, #running"));
    if (isKnown) {
      replaceContent("report", page);
      renew(page);
    } else if (!failure || failure.isFinal || isStopped()) {
      renew(await readPage("/studio", () => false));
    }
    return page;
  };

  /** Takes the nonce and the keys of a page. */
  const renew = (page) => {
    const nonce = page?.getElementById("nonce");
    if (!nonce) return;
    part("nonce").value = nonce.value;
    replaceContent("recent-items", page);
    part("recent").hidden = !part("recent-items").childElementCount;
    const key = part("key").value;
    replaceContent("key", page);
    // A new key has replaced the choice of a new one.
    if ([...part("key").options].some((option) => option.value === key)) part("key").value = key;
  };

  /** Shows the pictures of an outcome whose answer was lost. True if all are shown. */
  const recover = async (page, images, finishNext) => {
    const kept = [...(page?.querySelectorAll("#pictures img") ?? [])].map((image) => image.getAttribute("src"));
    try {
      for (const path of kept.slice(images.length)) {
        const answer = await fetch(path, { credentials: "same-origin" });
        if (!answer.ok) return false;
        await finishNext(await answer.blob());
      }
    } catch {
      return false;
    }
    return kept.length > 0;
  };

  // === The history, in the browser ===

  const HISTORY_MAX = 40;

  const database = () => new Promise((resolve, reject) => {
    const opening = indexedDB.open(`imagate-playground-${part("history").dataset.user}`, 1);
    opening.onupgradeneeded = () => { opening.result.createObjectStore("runs", { autoIncrement: true }); };
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });

  const settled = (request) => new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

  const withRuns = async (mode, work) => {
    try {
      const opened = await database();
      const result = await work(opened.transaction("runs", mode).objectStore("runs"));
      opened.close();
      return result;
    } catch {
      // A browser in private mode may have no database. The pictures stay on the page.
      return undefined;
    }
  };

  const keep = async (data, images) => {
    const facts = [...part("report").querySelectorAll("dl > div")].map((row) =>
      [row.querySelector("dt")?.textContent ?? "", row.querySelector("dd")?.textContent ?? ""]);
    const run = { at: Date.now(), prompt: data.get("prompt") ?? "", size: data.get("size"), model: data.get("model"), images, facts };
    await withRuns("readwrite", async (runs) => {
      await settled(runs.add(run));
      const keys = await settled(runs.getAllKeys());
      for (const key of keys.slice(0, Math.max(0, keys.length - HISTORY_MAX))) runs.delete(key);
    });
  };

  const compared = [];

  const showHistory = async () => {
    const runs = (await withRuns("readonly", (store) => settled(store.getAll()))) ?? [];
    part("history").hidden = !runs.length;
    const images = runs.reverse().flatMap((run) => run.images.map((blob) => ({ run, blob })));
    const items = images.map(({ run, blob }) => thumb(run, blob));
    part("thumbs").replaceChildren(...items);
    // One after the other, so that only one large image is decoded at a time.
    for (const [index, { blob }] of images.entries()) await drawSmall(items[index].querySelector("canvas"), blob);
  };

  const thumb = (run, blob) => {
    const item = document.createElement("li");
    const open = document.createElement("button");
    open.type = "button";
    open.className = "thumb";
    open.title = run.prompt;
    open.setAttribute("aria-label", `${run.prompt}, ${new Date(run.at).toLocaleString(document.documentElement.lang)}`);
    open.append(document.createElement("canvas"));
    open.addEventListener("click", () => { showRun(run); });
    const pick = document.createElement("button");
    pick.type = "button";
    pick.className = "button slim";
    pick.textContent = words.pick;
    pick.addEventListener("click", () => { compare(blob); });
    item.append(open, pick);
    return item;
  };

  const drawSmall = async (canvas, blob) => {
    canvas.width = canvas.height = 160;
    const bitmap = await createImageBitmap(blob);
    const scale = Math.max(160 / bitmap.width, 160 / bitmap.height);
    const [width, height] = [bitmap.width * scale, bitmap.height * scale];
    canvas.getContext("2d").drawImage(bitmap, (160 - width) / 2, (160 - height) / 2, width, height);
    bitmap.close();
  };

  const showRun = async (run) => {
    const shown = figures(run.images.length);
    for (const [index, blob] of run.images.entries()) await finish(shown[index], blob, index);
    const facts = document.createElement("dl");
    facts.className = "facts";
    for (const [name, value] of run.facts) {
      const row = document.createElement("div");
      const term = document.createElement("dt");
      const text = document.createElement("dd");
      term.textContent = name;
      text.textContent = value;
      row.append(term, text);
      facts.append(row);
    }
    part("report").replaceChildren(facts);
    if (run.prompt) part("prompt").value = run.prompt;
    say("");
    part("stage").scrollIntoView({ block: "nearest" });
  };

  const compare = async (blob) => {
    compared.push(blob);
    if (compared.length > 2) compared.shift();
    part("compare").hidden = false;
    await draw(part("compare-left"), compared[0]);
    await draw(part("compare-right"), compared.at(-1));
    divide();
    part("compare").scrollIntoView({ block: "nearest" });
  };

  const divide = () => {
    part("compare-right").style.clipPath = `inset(0 0 0 ${part("compare-at").value}%)`;
  };

  // === The page begins ===

  part("size-pad").hidden = false;
  part("look").hidden = true;
  part("compare-at").addEventListener("input", divide);
  part("compare-close").addEventListener("click", () => {
    compared.length = 0;
    part("compare").hidden = true;
  });
  part("history-clear").addEventListener("click", async () => {
    await withRuns("readwrite", (runs) => settled(runs.clear()));
    await showHistory();
  });
  part("stop").addEventListener("click", () => { running?.abort(); });
  form.addEventListener("submit", (event) => {
    if (event.submitter?.id === "look") return;
    event.preventDefault();
    if (!part("make").disabled) make();
  });
  // Another form, such as "Sign out", leaves the page: a preview that came after it would be refused.
  document.addEventListener("submit", (event) => { if (event.target !== form) cancelPreview(); });
  form.addEventListener("input", (event) => {
    if (event.target.id === "size") checkSize();
    if (["model", "output_format"].includes(event.target.id)) offerWords();
    previewLater();
  });
  part("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(part("make"));
  });
  offerWords();
  // The pad is drawn in the colours of the theme.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", checkSize);
  checkSize();
  previewLater();
  showHistory();
  resume();
})();
