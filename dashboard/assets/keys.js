/* Keys of all pages, and the help that lists them. */
"use strict";
(function () {
  const step = () => window.mgpu.TIMELINE_ZOOM_STEP;
  const TIMELINE = {
    w: (t) => t.zoom(step(), t.cursor),
    s: (t) => t.zoom(1 / step(), t.cursor),
    a: (t) => t.pan(-0.2),
    d: (t) => t.pan(0.2),
    f: (t) => t.fitSelection(),
    0: (t) => t.show(0, t.end),
    m: (t) => { if (t.cursor !== null) { t.marks.push(t.cursor); t.paint(); } },
    n: (t, event) => t.search.step(event.shiftKey ? -1 : 1),
    Backspace: (t) => t.back(),
    ArrowLeft: (t) => t.step(-1),
    ArrowRight: (t) => t.step(1),
    ArrowUp: (t) => { t.scroll -= 60; t.changed({ keep: true }); },
    ArrowDown: (t) => { t.scroll += 60; t.changed({ keep: true }); },
    Escape: (t) => { t.marks = []; t.clear(); },
  };
  let wantsPage = -Infinity;

  function toggleHelp(_, open) {
    const help = document.getElementById("help");
    if (!help) return;
    const shows = open === undefined ? help.hidden : open;
    help.hidden = !shows;
    if (shows) help.querySelector("button").focus();
  }

  function openPage(key) {
    const link = document.querySelector(`a.keep-view[data-key="${CSS.escape(key)}"]`);
    if (link) link.click();
    return Boolean(link);
  }

  document.addEventListener("keydown", (event) => {
    const writes = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (writes) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const timeline = window.mgpu.timeline && window.mgpu.timeline.canvas.isConnected ? window.mgpu.timeline : null;
    const help = document.getElementById("help");
    if (key === "Escape" && help && !help.hidden) return toggleHelp(null, false);
    if (performance.now() - wantsPage < 1500 && openPage(key)) { wantsPage = -Infinity; return event.preventDefault(); }
    if (key === "g") wantsPage = performance.now();
    else if (key === "?") toggleHelp();
    else if (key === "u") window.mgpu.toggleUnits();
    else if (key === "t") window.mgpu.toggleTheme();
    else if (key === "/") { const search = document.querySelector("input.search"); if (search) search.focus(); }
    else if (timeline && timeline.layout && TIMELINE[key]) TIMELINE[key](timeline, event);
    else return undefined;
    return event.preventDefault();
  });

  window.mgpu = Object.assign(window.mgpu || {}, { toggleHelp });
})();
