/* Mouse, wheel, buttons and URL events of the timeline, and the panel of its selection. */
"use strict";
(function () {
  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  /* Fills the panel with what is known about the selection; null empties it. */
  function showSelection(panel, selection, select) {
    panel.replaceChildren();
    if (!selection) {
      panel.append(element("h3", "Nothing selected"), element("p", "Click a box for its numbers and arrows."));
      return;
    }
    panel.append(element("h3", selection.title));
    const list = element("dl");
    for (const [name, value] of selection.facts) list.append(element("dt", name), element("dd", value));
    panel.append(list);
    for (const [text, key] of selection.related) {
      const button = element("button", `Go to ${text}`, "button small");
      button.addEventListener("click", () => select(key));
      panel.append(button);
    }
  }

  function describe(timeline, i) {
    const { data, styles, units } = timeline;
    const row = timeline.layout.rows[data.row[i]];
    const style = styles[data.style[i]];
    if (row.kind === "counter") return [`${row.label}: ${data.id[i].toLocaleString("en-US")} ${row.note}`];
    const lines = [style.name + (data.slot[i] >= 0 ? ` [${data.slot[i]}]` : "")];
    lines.push(data.length[i] ? units.both(data.length[i]) : `at ${units.text(data.t0 + data.begin[i])}`);
    if (data.phase[i] >= 0) lines.push(`phase ${data.phase[i]}`);
    if (style.line) lines.push(style.line);
    if (data.count[i] > 1) lines.push(`${data.count[i].toLocaleString("en-US")} boxes too narrow to tell apart`);
    return lines;
  }

  function showTip(timeline, event, i) {
    const { tip } = timeline;
    tip.style.display = i < 0 ? "none" : "block";
    if (i < 0) return;
    tip.replaceChildren(...describe(timeline, i).map((line) => element("div", line)));
    const box = timeline.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    tip.style.left = `${Math.min(x + 14, box.width - tip.offsetWidth - 8)}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > box.height ? y - tip.offsetHeight - 10 : y + 18}px`;
  }

  function listenToTimeline(timeline) {
    const { canvas } = timeline;
    let drag = null;

    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };

    canvas.addEventListener("pointerdown", (event) => {
      const [x, y] = point(event);
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      drag = { x, y, view: { ...timeline.view }, scroll: timeline.scroll, moved: false };
      drag.measures = event.shiftKey || event.button === 2;
      if (drag.measures) timeline.measure = { from: timeline.painter.time(x, timeline.view), to: timeline.painter.time(x, timeline.view) };
    });

    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = point(event);
      timeline.cursor = x > window.mgpu.TIMELINE_GUTTER ? timeline.painter.time(x, timeline.view) : null;
      if (!drag) {
        const i = timeline.hit(x, y);
        canvas.style.cursor = i >= 0 || x < window.mgpu.TIMELINE_GUTTER ? "pointer" : "default";
        showTip(timeline, event, i);
        return timeline.paint();
      }
      if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 4) drag.moved = true;
      if (drag.measures) {
        timeline.measure.to = timeline.cursor === null ? timeline.measure.to : timeline.cursor;
        return timeline.paint();
      }
      if (!drag.moved) return undefined;
      showTip(timeline, event, -1);
      canvas.style.cursor = "grabbing";
      const shift = ((x - drag.x) / timeline.painter.plotWidth) * (drag.view.t1 - drag.view.t0);
      timeline.view = { t0: drag.view.t0 - shift, t1: drag.view.t1 - shift };
      timeline.scroll = drag.scroll - (y - drag.y);
      return timeline.changed();
    });

    canvas.addEventListener("pointerup", (event) => {
      const was = drag;
      drag = null;
      canvas.style.cursor = "default";
      if (!was || was.moved) return;
      if (was.measures) timeline.measure = null;
      click(timeline, ...point(event));
    });

    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("pointerleave", (event) => {
      timeline.cursor = null;
      showTip(timeline, event, -1);
      timeline.paint();
    });
    canvas.addEventListener("dblclick", () => timeline.fitSelection());

    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x] = point(event);
      const steps = (event.deltaY || event.deltaX) / (event.deltaMode ? 3 : 100);
      if (x < window.mgpu.TIMELINE_GUTTER) {
        timeline.scroll += steps * 60;
        timeline.changed({ keep: true });
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) timeline.pan(steps * 0.12);
      else timeline.zoom(window.mgpu.TIMELINE_ZOOM_STEP ** -steps, timeline.painter.time(x, timeline.view));
    }, { passive: false });

    listenToPage(timeline);
  }

  function click(timeline, x, y) {
    const row = timeline.layout.rows[timeline.layout.rowAt(y - window.mgpu.TIMELINE_AXIS + timeline.scroll)];
    if (x < window.mgpu.TIMELINE_GUTTER) {
      if (row && y > window.mgpu.TIMELINE_AXIS && (row.kind === "sm" || row.kind === "cta")) {
        timeline.layout.toggle(row);
        timeline.changed({ keep: true });
      }
      return;
    }
    const i = timeline.hit(x, y);
    if (i < 0) timeline.clear();
    else if (timeline.data.count[i] > 1) {
      /* A merged box is not one thing: a click goes closer until it is. */
      const at = timeline.data.t0 + timeline.data.begin[i] + timeline.data.length[i] / 2;
      const half = Math.max(timeline.data.length[i] * 3, (timeline.view.t1 - timeline.view.t0) / 40);
      timeline.show(at - half, at + half);
    } else if (timeline.keyOf(i)) timeline.select(timeline.keyOf(i));
  }

  function saveCanvas(canvas, name) {
    canvas.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = name;
      link.click();
      window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }

  function listenToPage(timeline) {
    const actions = {
      fit: () => timeline.show(0, timeline.end),
      back: () => timeline.back(),
      expand: () => { timeline.layout.openAll(); timeline.changed({ keep: true }); },
      save: () => saveCanvas(timeline.canvas, `${timeline.root.dataset.launch}-timeline.png`),
      collapse: () => { timeline.layout.closeAll(); timeline.scroll = 0; timeline.changed({ keep: true }); },
    };
    for (const button of document.querySelectorAll("[data-timeline]")) {
      button.addEventListener("click", actions[button.dataset.timeline]);
    }
    const whileShown = (target, name, react) => {
      const listener = () => {
        if (timeline.canvas.isConnected) react();
        else target.removeEventListener(name, listener);
      };
      target.addEventListener(name, listener);
    };
    whileShown(window, "popstate", () => timeline.readUrl());
    whileShown(window, "mgpu:url", () => timeline.readUrl());
    whileShown(window, "mgpu:theme", () => { timeline.painter.readTheme(); timeline.paint(); });
    new ResizeObserver(() => {
      if (!timeline.canvas.isConnected) return;
      timeline.painter.resize();
      timeline.changed({ keep: true });
    }).observe(timeline.canvas.parentElement);
  }

  window.mgpu = Object.assign(window.mgpu || {}, { listenToTimeline, showSelection });
})();
