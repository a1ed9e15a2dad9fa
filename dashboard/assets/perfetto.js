/* Hands the launch's trace to the Perfetto UI: the one in the page's frame, or ui.perfetto.dev if asked to. */
"use strict";
(function () {
  const PING_MS = 100;

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
