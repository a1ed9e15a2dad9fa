/* Hands the launch's trace to the Perfetto UI: the one in the page's frame, or ui.perfetto.dev if asked to. */
"use strict";
(function () {
  const PING_MS = 100;
  const API_WAIT_MS = 20000;

  /* Asks a window with the Perfetto UI until it answers, then gives it the trace. */
  function handOver(target, origin, title, buffer, options) {
    return new Promise((resolve) => {
      const timer = window.setInterval(() => target.postMessage("PING", origin), PING_MS);
      const onAnswer = (event) => {
        if (event.source !== target || event.data !== "PONG") return;
        window.clearInterval(timer);
        window.removeEventListener("message", onAnswer);
        target.postMessage({ perfetto: { buffer, title, ...options } }, origin, [buffer]);
        resolve();
      };
      window.addEventListener("message", onAnswer);
    });
  }

  async function fetchTrace(url) {
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.arrayBuffer();
  }

  /* The file's ns are cycles: show bare numbers, unless the user has chosen something else before. */
  function showCycles() {
    const key = "perfettoSettings";
    const settings = JSON.parse(window.localStorage.getItem(key) || "{}");
    if (!settings.timestampFormat) window.localStorage.setItem(key, JSON.stringify({ ...settings, timestampFormat: "traceNs" }));
  }

  async function fill(frame) {
    const status = document.querySelector(".perfetto-status");
    status.textContent = "Writing the trace…";
    const buffer = await fetchTrace(frame.dataset.trace);
    status.textContent = "Loading the trace…";
    const options = { keepApiOpen: true, localOnly: true };
    await handOver(frame.contentWindow, window.location.origin, frame.dataset.title, buffer, options);
    status.textContent = "";
    frame.dataset.loaded = "true";
    if (frame.dataset.target) status.textContent = await showTarget(frame);
  }

  /* Shows what the URL selects: zooms by the documented message, and selects if this UI's own interface is in reach. */
  async function showTarget(frame) {
    const { target, begin, end, query } = frame.dataset;
    const inside = await readyApi(frame.contentWindow);
    const seconds = (cycles) => Number(cycles) / 1e9; /* the file's ns are cycles */
    const part = { timeStart: seconds(begin), timeEnd: seconds(end), viewPercentage: 1 };
    frame.contentWindow.postMessage({ perfetto: { ...part, keepApiOpen: true } }, window.location.origin);
    if (!query) return `Zoomed to ${target}: no slice of the trace is this alone.`;
    if (!inside) return `Zoomed to ${target}: this build of the Perfetto UI does not let a page select.`;
    try {
      const id = (await inside.engine.query(query)).maybeFirstRow({ id: 0 });
      if (!id) return `Zoomed to ${target}: the trace file does not hold its slice.`;
      inside.selection.selectSqlEvent("slice", id.id, { scrollToSelection: true });
      frame.dataset.selected = id.id;
      return `Selected: ${target}`;
    } catch (error) {
      return `Zoomed to ${target}: this build of the Perfetto UI does not let a page select (${error.message}).`;
    }
  }

  /* Returns the interface that the UI gives to bookmarklets once its trace is loaded, null if it has none. It is not
   * documented, so everything used is looked for. */
  async function readyApi(inside) {
    for (const until = performance.now() + API_WAIT_MS; performance.now() < until;) {
      const api = inside.ctx;
      const loads = inside.app && inside.app.isLoadingTrace;
      if (api && !loads && api.engine && api.selection && api.selection.selectSqlEvent) return api;
      await new Promise((resolve) => { window.setTimeout(resolve, PING_MS); });
    }
    return null;
  }

  async function openOnline(button) {
    const origin = "https://ui.perfetto.dev";
    const opened = window.open(origin);
    const buffer = await fetchTrace(button.dataset.trace);
    await handOver(opened, origin, document.title, buffer, { localOnly: true });
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest('[data-action="perfetto-online"]');
    if (button) openOnline(button);
  });

  function start() {
    const frame = document.querySelector("iframe#perfetto:not([data-started])");
    if (!frame) return;
    frame.dataset.started = "true";
    showCycles();
    frame.src = frame.dataset.source;
    fill(frame).catch((error) => { document.querySelector(".perfetto-status").textContent = error.message; });
  }
  new MutationObserver(start).observe(document.documentElement, { childList: true, subtree: true });
})();
