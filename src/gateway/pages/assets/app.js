// The pages are complete without this script. It adds what only a script can: copying, local times, live ticks, and a
// word that something is under way.
(() => {
  "use strict";

  const say = (text) => {
    const live = document.getElementById("live");
    if (live && text) {
      live.textContent = "";
      window.setTimeout(() => { live.textContent = text; }, 50);
    }
  };

  // Copying. Without a secure context there is no clipboard, but a selection can still be copied.
  const copyText = async (text, from) => {
    if (navigator.clipboard && window.isSecureContext) {
      try {
        await navigator.clipboard.writeText(text);
        return true;
      } catch {
        // The browser may say no; the selection is the other way.
      }
    }
    const range = document.createRange();
    range.selectNodeContents(from);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return document.execCommand("copy");
  };

  const offerCopies = (root) => {
    for (const button of root.querySelectorAll("[data-copy]")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        const from = document.getElementById(button.dataset.copy);
        const label = button.querySelector("[data-label]");
        if (!from || !label) return;
        const before = button.dataset.before || label.textContent;
        button.dataset.before = before;
        const done = await copyText(from.textContent, from);
        const said = done ? button.dataset.done : button.dataset.failed;
        label.textContent = said;
        say(said);
        window.setTimeout(() => { label.textContent = before; }, 2500);
      });
    }
  };

  // The bars of a chart are one stop of the keyboard, and the arrow keys go from bar to bar. The first touch of a bar
  // shows its text, and the second one follows its link.
  const chartKeys = (root) => {
    for (const chart of root.querySelectorAll("svg[data-chart]")) {
      const bars = [...chart.querySelectorAll("a[data-read-out]")];
      if (bars.length === 0) continue;
      chart.removeAttribute("aria-hidden");
      chart.setAttribute("role", "group");
      chart.setAttribute("aria-labelledby", "chart-title");
      for (const text of chart.querySelectorAll("text")) text.setAttribute("aria-hidden", "true");
      const choose = (bar) => {
        for (const other of bars) other.setAttribute("tabindex", other === bar ? "0" : "-1");
      };
      let touched = null;
      bars.forEach((bar, index) => {
        bar.setAttribute("aria-label", bar.dataset.readOut);
        bar.addEventListener("focus", () => choose(bar));
        bar.addEventListener("keydown", (event) => {
          const steps = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: bars.length - 1 };
          const next = bars[steps[event.key]];
          if (!next) return;
          event.preventDefault();
          next.focus();
        });
        bar.addEventListener("click", (event) => {
          if (event.pointerType !== "touch" || touched === bar) return;
          touched = bar;
          event.preventDefault();
          bar.focus();
        });
      });
      choose(bars[bars.length - 1]);
    }
  };

  // Moments in the time of whoever reads.
  const localTimes = (root) => {
    const language = document.documentElement.lang || undefined;
    const moment = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" });
    const exact = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });
    const day = new Intl.DateTimeFormat(language, { dateStyle: "medium" });
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime()) || !time.dateTime.includes("T") || "shared" in time.dataset) continue;
      if ("ago" in time.dataset) {
        time.title = moment.format(at);
        continue;
      }
      // The text before was in UTC, and says so.
      time.title = "day" in time.dataset ? moment.format(at) : time.textContent;
      const form = "day" in time.dataset ? day : "exact" in time.dataset ? exact : moment;
      time.textContent = form.format(at);
    }
  };

  // One box for all rows of a table.
  const offerSelectAll = () => {
    for (const all of document.querySelectorAll("[data-select-all]")) {
      const boxes = [...all.closest("table").querySelectorAll("tbody input[type=checkbox]")];
      const show = () => {
        const chosen = boxes.filter((box) => box.checked).length;
        all.checked = chosen === boxes.length;
        all.indeterminate = chosen > 0 && chosen < boxes.length;
      };
      all.hidden = false;
      all.addEventListener("change", () => { for (const box of boxes) box.checked = all.checked; });
      for (const box of boxes) box.addEventListener("change", show);
      show();
    }
  };

  // A form that was sent says so, and is not sent twice by a second click.
  const markBusy = () => {
    document.addEventListener("submit", (event) => {
      const button = event.submitter;
      if (event.defaultPrevented || !button || event.target.dataset.sent) {
        if (event.target.dataset.sent) event.preventDefault();
        return;
      }
      if (event.target.method !== "post") return;
      event.target.dataset.sent = "1";
      button.setAttribute("aria-busy", "true");
      say(document.body.dataset.busy);
    });
    window.addEventListener("pageshow", () => {
      for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
      for (const button of document.querySelectorAll("[aria-busy]")) button.removeAttribute("aria-busy");
    });
  };

  // The steps of the first run: asked again until all of them are done.
  const watchSteps = () => {
    const steps = document.getElementById("steps");
    if (!steps || steps.dataset.done === "true") return;
    const look = async () => {
      if (!document.hidden) {
        try {
          const answer = await fetch(window.location.pathname, { credentials: "same-origin", cache: "no-store" });
          if (answer.redirected || !answer.ok) return;
          const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("steps");
          const now = document.getElementById("steps");
          if (!fresh || !now) return;
          if (fresh.dataset.state !== now.dataset.state) {
            now.replaceWith(fresh);
            localTimes(fresh);
      chartKeys(fresh);
            chartKeys(fresh);
            offerCopies(fresh);
            say(fresh.dataset.said);
          }
          if (fresh.dataset.done === "true") return;
        } catch {
          // The gateway may be starting anew; the next look tells.
        }
      }
      window.setTimeout(look, 2000);
    };
    window.setTimeout(look, 2000);
  };

  // Another script has added content that came with a page.
  document.addEventListener("imagate:content", (event) => {
    offerCopies(event.target);
    localTimes(event.target);
    chartKeys(event.target);
  });

  // How long it is until each moment on the board, by the clock of the gateway when the board was loaded.
  const countDown = (() => {
    let [known, skew] = [null, 0];
    const two = (number) => String(number).padStart(2, "0");
    const lengthOf = (seconds) => {
      const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
      return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
    };
    return () => {
      const board = document.getElementById("board");
      if (!board) return;
      if (board !== known) [known, skew] = [board, Date.now() - new Date(board.dataset.now).getTime()];
      for (const left of board.querySelectorAll("[data-until]")) {
        const seconds = Math.ceil((new Date(left.dataset.until).getTime() + skew - Date.now()) / 1000);
        left.textContent = seconds > 0 && seconds < 86400 ? `(${lengthOf(seconds)})` : "";
      }
    };
  })();

  // The board of accounts: asked again every few seconds while somebody looks at it. A session is not kept alive by a
  // page that nobody has touched for a while.
  const watchBoard = () => {
    if (!document.getElementById("board")) return;
    const [pause, longest] = [4000, 30 * 60 * 1000];
    let touched = Date.now();
    for (const kind of ["pointerdown", "pointermove", "keydown", "wheel"]) {
      document.addEventListener(kind, () => { touched = Date.now(); }, { passive: true });
    }
    const isInUse = (board) => {
      const selection = window.getSelection();
      const isSelected = !selection.isCollapsed && board.contains(selection.anchorNode);
      return isSelected || board.querySelector("form[data-sent]") !== null;
    };
    const replace = (board, fresh) => {
      const focused = board.contains(document.activeElement) ? document.activeElement.id : "";
      const scrolled = board.querySelector(".scroll");
      const left = scrolled ? scrolled.scrollLeft : 0;
      board.replaceWith(fresh);
      localTimes(fresh);
      chartKeys(fresh);
      countDown();
      if (fresh.querySelector(".scroll")) fresh.querySelector(".scroll").scrollLeft = left;
      const again = focused && document.getElementById(focused);
      if (again) again.focus({ preventScroll: true });
      if (fresh.dataset.state !== board.dataset.state) say(fresh.dataset.said);
    };
    const look = async () => {
      const board = document.getElementById("board");
      if (!document.hidden && Date.now() - touched < longest && !isInUse(board)) {
        try {
          const answer = await fetch(board.dataset.src, { credentials: "same-origin", cache: "no-store" });
          if (answer.redirected || !answer.ok) return;
          const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("board");
          if (!fresh) return;
          if (!isInUse(board)) replace(board, fresh);
        } catch {
          // The gateway may be starting anew; the next look tells.
        }
      }
      window.setTimeout(look, pause);
    };
    window.setTimeout(look, pause);
  };

  offerCopies(document);
  localTimes(document);
  offerSelectAll();
  chartKeys(document);
  markBusy();
  watchSteps();
  countDown();
  if (document.getElementById("board")) window.setInterval(countDown, 1000);
  watchBoard();
})();
