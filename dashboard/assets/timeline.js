/* The timeline page: window, selection, mouse and keys. Drawing is in timeline_draw.js, data in timeline_data.js. */
"use strict";
(function () {
  const FETCH_AFTER_MS = 60;
  const NOTE_AFTER_MS = 450;
  const MARGIN = 0.5; /* windows are fetched this much wider on both sides, so that panning shows boxes at once */
  const ZOOM_STEP = 1.35;
  const KNOWN_AFTER_MS = 1000;

  function makeUnits(name, clockHz) {
    const ns = (cycles) => (cycles * 1e9) / clockHz;
    const time = (value) => {
      for (const [limit, factor, unit] of [[1e3, 1, "ns"], [1e6, 1e3, "µs"], [1e9, 1e6, "ms"]]) {
        if (Math.abs(value) < limit) return `${Number((value / factor).toPrecision(4))} ${unit}`;
      }
      return `${Number((value / 1e9).toPrecision(4))} s`;
    };
    const cycles = (value) => `${Math.round(value).toLocaleString("en-US")} cycles`;
    return {
      name, clockHz,
      text: (value) => (name === "ns" ? time(ns(value)) : cycles(value)),
      both: (value) => `${cycles(value)} = ${time(ns(value))}`,
      tick: (value) => Number(value.toPrecision(9)).toLocaleString("en-US"),
    };
  }

  class Timeline {
    constructor(root) {
      this.root = root;
      this.base = root.dataset.base;
      this.canvas = root.querySelector(".timeline-canvas");
      this.tip = root.querySelector(".timeline-tip");
      this.details = root.querySelector(".timeline-details");
      this.status = root.parentElement.querySelector(".timeline-status");
      this.source = new window.mgpu.TimelineSource(this.base, root.dataset.launch, root.dataset.units);
      this.painter = new window.mgpu.TimelinePainter(this.canvas);
      this.sequence = root.dataset.sequence.split(" ");
      this.view = { t0: 0, t1: 1 };
      this.scroll = 0;
      this.marks = [];
      this.cursor = null;
      this.measure = null;
      this.selection = null;
      this.data = null;
      this.history = [];
      this.missing = ""; /* what the status says of analyses that are not there yet */
    }

    async start() {
      this.status.textContent = "Loading…";
      const answer = await this.source.rows();
      this.styles = answer.styles;
      this.end = Math.max(answer.end, 1);
      this.total = answer.boxes;
      this.units = makeUnits(this.root.dataset.units, answer.clock_hz);
      this.layout = new window.mgpu.TimelineLayout(answer.rows);
      this.search = new window.mgpu.TimelineSearch(this, this.root.parentElement);
      this.color = this.search.dim(this.coloring(this.root.dataset.color));
      window.mgpu.listenToTimeline(this);
      this.painter.resize();
      this.overview = new window.mgpu.TimelineOverview(this, this.root.querySelector(".timeline-overview"));
      await this.readUrl();
      this.canvas.dataset.ready = "true";
      await Promise.all([this.search.start(), this.overview.start()]);
      await this.awaitAnalyses();
    }

    /* Draws and describes anew what analyses find while the timeline is open already. */
    async awaitAnalyses() {
      for (let known = await this.source.known(); ; ) {
        this.missing = known.bubbles ? "" : "; bubbles are still being found";
        this.canvas.dataset.complete = known.bubbles && known.barrier_waits;
        if (known.bubbles && known.barrier_waits) return;
        await this.fetch();
        await new Promise((resolve) => { window.setTimeout(resolve, KNOWN_AFTER_MS); });
        if (!this.canvas.isConnected) return;
        const before = known;
        known = await this.source.known();
        if (known.bubbles === before.bubbles && known.barrier_waits === before.barrier_waits) continue;
        this.missing = "";
        if (this.selection) await this.select(this.selection.key);
        await this.readUrl();
      }
    }

    /* Returns the function that gives box i its colour. */
    coloring(by) {
      const pick = (number) => (number < 0 ? "#9aa0a8" : this.sequence[number % this.sequence.length]);
      if (by === "slot") return (data, i) => pick(data.slot[i]);
      if (by === "phase") return (data, i) => pick(data.phase[i]);
      if (by === "line") {
        const lines = [...new Set(this.styles.map((style) => style.line).filter(Boolean))];
        const ofStyle = this.styles.map((style) => pick(lines.indexOf(style.line)));
        return (data, i) => ofStyle[data.style[i]];
      }
      const ofStyle = this.styles.map((style) => style.color);
      return (data, i) => ofStyle[data.style[i]];
    }

    /* Takes window and selection from the URL. */
    async readUrl() {
      const params = window.mgpu.params();
      const t0 = Number(params.get("t0") || 0);
      const t1 = Number(params.get("t1") || this.end);
      this.view = t1 > t0 ? { t0, t1 } : { t0: 0, t1: this.end };
      const sm = params.has("sm") ? Number(params.get("sm")) : this.layout.rows.length ? this.layout.rows[0].sm : -1;
      const first = !this.layout.open.size;
      if (first && sm >= 0) {
        this.layout.openSm(sm, params.has("cta") ? Number(params.get("cta")) : undefined);
        this.reveal("sm:" + sm);
      }
      const key = params.get("sel");
      if (key && (!this.selection || this.selection.key !== key)) await this.select(key, { show: true });
      else if (!key) this.clear();
      this.clamp();
      await this.fetch();
    }

    paint() {
      if (this.frame) return;
      this.frame = window.requestAnimationFrame(() => {
        this.frame = null;
        if (!this.canvas.isConnected) return;
        this.painter.paint(this);
        this.overview.paint();
      });
    }

    clamp() {
      const least = 8;
      const span = Math.min(Math.max(this.view.t1 - this.view.t0, least), this.end * 1.1);
      const slack = span * 0.1;
      const t0 = Math.min(Math.max(this.view.t0, -slack), this.end + slack - span);
      this.view = { t0, t1: t0 + span };
      this.scroll = Math.max(Math.min(this.scroll, this.layout.total - this.painter.plotHeight), 0);
    }

    /* After any change of window, scroll or open rows: draw what is there, then fetch what is missing. */
    changed({ keep = false } = {}) {
      this.clamp();
      this.paint();
      window.clearTimeout(this.fetchTimer);
      /* The first step of a zoom is fetched at once; while an answer is awaited, further steps are gathered. */
      this.fetchTimer = window.setTimeout(() => this.fetch(), this.source.pending ? FETCH_AFTER_MS : 0);
      if (keep) return;
      window.clearTimeout(this.noteTimer);
      this.noteTimer = window.setTimeout(() => this.noteWindow(), NOTE_AFTER_MS);
    }

    noteWindow() {
      const whole = this.view.t0 <= 0 && this.view.t1 >= this.end;
      const t0 = Math.max(Math.round(this.view.t0), 0);
      window.mgpu.note({ t0: whole ? null : t0, t1: whole ? null : Math.round(this.view.t1) }, true);
    }

    async fetch() {
      const { t0, t1 } = this.view;
      const margin = (t1 - t0) * MARGIN;
      const low = Math.max(t0 - margin, -this.end * 0.2);
      const high = Math.min(t1 + margin, this.end * 1.2);
      const extra = this.painter.plotHeight;
      const rows = this.layout.between(this.scroll - extra / 2, this.scroll + this.painter.plotHeight + extra / 2);
      const width = Math.round((this.painter.plotWidth * (high - low)) / (t1 - t0));
      const started = performance.now();
      try {
        const data = await this.source.window(low, high, width, rows);
        if (!data) return;
        this.data = data;
        this.canvas.dataset.boxes = data.n;
        this.canvas.dataset.window = `${Math.round(t0)} ${Math.round(t1)}`;
        const merged = data.standsFor > data.n ? ` for ${data.standsFor.toLocaleString("en-US")}, narrow ones merged` : "";
        this.status.textContent =
          `${data.n.toLocaleString("en-US")} boxes drawn${merged}; ${this.total.toLocaleString("en-US")} in the launch ` +
          `(${Math.round(performance.now() - started)} ms)${this.missing}`;
      } catch (error) {
        this.status.textContent = `The timeline could not be loaded: ${error.message}`;
      }
      this.paint();
    }

    zoom(factor, at) {
      const { t0, t1 } = this.view;
      const center = at === undefined || at === null ? (t0 + t1) / 2 : at;
      this.remember();
      this.view = { t0: center - (center - t0) / factor, t1: center + (t1 - center) / factor };
      this.changed();
    }

    pan(share) {
      const shift = (this.view.t1 - this.view.t0) * share;
      this.view = { t0: this.view.t0 + shift, t1: this.view.t1 + shift };
      this.changed();
    }

    show(t0, t1) {
      this.remember();
      this.view = { t0, t1 };
      this.changed();
    }

    /* Keeps a window that was looked at for a while, so that zooming back skips the steps between. */
    remember() {
      const now = performance.now();
      if (now - (this.remembered || -1e9) > 700) this.history.push({ ...this.view });
      this.remembered = now;
    }

    back() {
      const view = this.history.pop();
      if (!view) return;
      this.view = view;
      this.changed();
    }

    fitSelection() {
      if (!this.selection) return;
      const margin = Math.max((this.selection.end - this.selection.begin) * 0.6, 60);
      this.show(this.selection.begin - margin, this.selection.end + margin);
    }

    reveal(key) {
      const i = this.layout.index.get(key);
      if (i === undefined) return;
      const row = this.layout.rows[i];
      if (!this.layout.isVisible(row)) this.layout.openSm(row.sm, row.cta);
      const y = this.layout.top.get(i);
      const height = this.painter.plotHeight;
      if (y < this.scroll || y + this.layout.height(row) > this.scroll + height) this.scroll = Math.max(y - height / 5, 0);
    }

    /* Returns the box under a point of the canvas, -1 if there is none. */
    hit(x, y) {
      const { data, layout } = this;
      if (!data || x < window.mgpu.TIMELINE_GUTTER || y < window.mgpu.TIMELINE_AXIS) return -1;
      const inRows = y - window.mgpu.TIMELINE_AXIS + this.scroll;
      const row = layout.rowAt(inRows);
      if (row < 0) return -1;
      const slack = ((this.view.t1 - this.view.t0) / this.painter.plotWidth) * 1.5;
      const time = this.painter.time(x, this.view) - data.t0;
      let best = -1;
      for (let i = 0; i < data.n; i += 1) {
        if (data.row[i] !== row) continue;
        const [offset, height] = layout.lane(layout.rows[row], data.depth[i]);
        const top = layout.top.get(row) + offset;
        if (inRows < top - 1 || inRows > top + height + 1) continue;
        if (time < data.begin[i] - slack || time > data.begin[i] + data.length[i] + slack) continue;
        if (best < 0 || data.length[i] < data.length[best]) best = i;
      }
      return best;
    }

    /* Returns the key by which the server knows box i, "" if it is not one thing. */
    keyOf(i) {
      const { data } = this;
      const row = this.layout.rows[data.row[i]];
      if (row.kind === "counter" || data.id[i] === 0xffffffff) return "";
      if (data.depth[i] === window.mgpu.TIMELINE_TICKS) return `instant:${data.id[i]}`;
      return `${{ sm: "loss", unit: "async", cta: "cta", track: "span" }[row.kind]}:${data.id[i]}`;
    }

    async select(key, { show = false } = {}) {
      const found = await this.source.select(key);
      if (!found) return;
      this.selection = found;
      window.mgpu.note({ sel: found.key }, false);
      this.reveal(found.row);
      if (show && (found.end < this.view.t0 || found.begin > this.view.t1)) this.fitSelection();
      window.mgpu.showSelection(this.details, found, (next) => this.select(next, { show: true }));
      this.changed({ keep: true });
    }

    clear() {
      this.measure = null;
      if (!this.selection) return this.paint();
      this.selection = null;
      window.mgpu.note({ sel: null }, false);
      window.mgpu.showSelection(this.details, null);
      return this.paint();
    }

    /* Selects the next or previous box of the selected one's lane. */
    step(direction) {
      if (!this.selection || !this.data) return;
      const { data } = this;
      const row = this.layout.index.get(this.selection.row);
      const own = [];
      let depth = -1;
      for (let i = 0; i < data.n; i += 1) {
        if (data.row[i] !== row || !this.keyOf(i)) continue;
        own.push(i);
        if (this.keyOf(i) === this.selection.key) depth = data.depth[i];
      }
      const lane = own.filter((i) => data.depth[i] === depth);
      const next = lane[lane.findIndex((i) => this.keyOf(i) === this.selection.key) + direction];
      if (next !== undefined) this.select(this.keyOf(next), { show: true });
    }
  }

  function start() {
    for (const root of document.querySelectorAll("#timeline:not([data-started])")) {
      root.dataset.started = "true";
      const timeline = new Timeline(root);
      window.mgpu.timeline = timeline;
      timeline.start().catch((error) => { timeline.status.textContent = error.message; });
    }
  }

  window.mgpu = Object.assign(window.mgpu || {}, { TIMELINE_ZOOM_STEP: ZOOM_STEP });
  new MutationObserver(start).observe(document.documentElement, { childList: true, subtree: true });
})();
