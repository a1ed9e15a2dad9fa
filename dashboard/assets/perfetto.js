/* Hands the launch's trace to the Perfetto UI: the one in the page's frame, or ui.perfetto.dev if asked to. */
"use strict";
(function () {
  const PING_MS = 200;
  const API_WAIT_MS = 20000;
  const SELECTION_WAIT_MS = 10000;
  const SIGN_WAIT_MS = 3000; /* a UI that shows no sign of an interface by then has none */
  const ONLINE = "https://ui.perfetto.dev";

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

  function say(text) {
    const status = document.querySelector(".perfetto-status");
    if (status) status.textContent = text;
  }

  /* The file's ns are cycles: show bare numbers, unless the user has chosen something else before. Light or dark is
   * the dashboard's. */
  function chooseSettings() {
    const key = "perfettoSettings";
    const settings = JSON.parse(window.localStorage.getItem(key) || "{}");
    const theme = document.documentElement.dataset.theme;
    window.localStorage.setItem(key, JSON.stringify({ timestampFormat: "traceNs", ...settings, theme }));
  }

  async function fill(frame) {
    say("Writing the trace …");
    const buffer = await fetchTrace(frame.dataset.trace);
    say(`Loading the trace, ${(buffer.byteLength / 1e6).toFixed(1)} MB …`);
    const options = { keepApiOpen: true, localOnly: true };
    await handOver(frame.contentWindow, window.location.origin, frame.dataset.title, buffer, options);
    say("");
    frame.dataset.loaded = "true";
    if (frame.dataset.target) say(await showTarget(frame));
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
      if (!(await isSelected(inside, id.id))) return `Zoomed to ${target}: the Perfetto UI has not selected its slice.`;
      frame.dataset.selected = id.id;
      return `Selected: ${target}`;
    } catch (error) {
      return `Zoomed to ${target}: this build of the Perfetto UI does not let a page select (${error.message}).`;
    }
  }

  /* The UI looks a slice up before it selects it, and tells nobody when it has. */
  async function isSelected(inside, id) {
    const began = performance.now();
    while (performance.now() - began < SELECTION_WAIT_MS) {
      const { selection } = inside.selection;
      if (selection && Number(selection.eventId) === Number(id)) return true;
      await new Promise((resolve) => { window.setTimeout(resolve, PING_MS / 4); });
    }
    return false;
  }

  /* Returns the interface that the UI gives to bookmarklets once its trace is loaded, null if it has none. It is not
   * documented, so everything used is looked for. */
  async function readyApi(inside) {
    const began = performance.now();
    for (let waited = 0; waited < API_WAIT_MS; waited = performance.now() - began) {
      const api = inside.ctx;
      if (!api && !inside.app && waited > SIGN_WAIT_MS) return null;
      const loads = inside.app && inside.app.isLoadingTrace;
      if (api && !loads && api.engine && api.selection && api.selection.selectSqlEvent) return api;
      await new Promise((resolve) => { window.setTimeout(resolve, PING_MS); });
    }
    return null;
  }

  /* The trace goes from this page to the other one inside the browser; the site does not get it. */
  async function openOnline(button) {
    const opened = window.open(ONLINE);
    if (!opened) return say("The browser stopped the new tab: allow pop-ups for this page, or save the trace and open it there.");
    say("Writing the trace …");
    const buffer = await fetchTrace(button.dataset.trace);
    say("Waiting for ui.perfetto.dev …");
    await handOver(opened, ONLINE, button.dataset.title, buffer, { localOnly: true });
    return say("Opened in ui.perfetto.dev");
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest('[data-action="perfetto-online"]');
    if (button) openOnline(button).catch((error) => say(error.message));
  });

  function start() {
    const frame = document.querySelector("iframe#perfetto:not([data-started])");
    if (!frame) return;
    frame.dataset.started = "true";
    chooseSettings();
    frame.src = frame.dataset.source;
    fill(frame).catch((error) => say(error.message));
  }
  new MutationObserver(start).observe(document.documentElement, { childList: true, subtree: true });
})();
