/* Zooms of charts over time go into the URL as the window of the launch, so that other pages show the same stretch. */
"use strict";
(function () {
  const AXIS = /^xaxis\.(range\[[01]\]|autorange)$/;

  function note(host, change) {
    if (!Object.keys(change).some((name) => AXIS.test(name))) return;
    if (change["xaxis.autorange"]) return window.mgpu.note({ t0: null, t1: null }, true);
    const cycles = (name) => Math.max(Math.round(Number(change[name]) * Number(host.dataset.cycles)), 0);
    const [t0, t1] = [cycles("xaxis.range[0]"), cycles("xaxis.range[1]")];
    return t1 > t0 ? window.mgpu.note({ t0, t1 }, true) : undefined;
  }

  function start() {
    for (const plot of document.querySelectorAll("[data-cycles] .js-plotly-plot")) {
      if (plot.followsZoom || !plot.on) continue;
      plot.followsZoom = true;
      plot.on("plotly_relayout", (change) => note(plot.closest("[data-cycles]"), change));
    }
  }

  new MutationObserver(start).observe(document.documentElement, { childList: true, subtree: true });
})();
