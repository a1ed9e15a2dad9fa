/* Draws the timeline on its canvas. Knows nothing of events or requests. */
"use strict";
(function () {
  const GUTTER = 176;
  const AXIS = 26;
  const LABEL_FROM = 34; /* pixels a box needs before it gets a label */
  const HATCH_FROM = 5;

  function cssColors(element) {
    const style = window.getComputedStyle(element);
    const read = (name) => style.getPropertyValue(name).trim();
    return {
      ground: read("--canvas"), stripe: read("--canvas-stripe"), line: read("--line"), text: read("--text"),
      muted: read("--muted"), accent: read("--accent"), label: read("--on-color"), font: style.fontFamily,
    };
  }

  function hatchPattern(context, color) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.strokeStyle = color;
    pen.lineWidth = 1.2;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) {
      pen.moveTo(shift, 6);
      pen.lineTo(shift + 6, 0);
    }
    pen.stroke();
    return context.createPattern(tile, "repeat");
  }

  /* Returns a step of 1, 2 or 5 times a power of ten that is at least `least`. */
  function niceStep(least) {
    const power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
  }

  class TimelinePainter {
    constructor(canvas) {
      this.canvas = canvas;
      this.pen = canvas.getContext("2d");
      this.readTheme();
    }

    readTheme() {
      this.colors = cssColors(this.canvas);
      this.hatch = hatchPattern(this.pen, "rgba(255,255,255,0.42)");
    }

    resize() {
      const ratio = window.devicePixelRatio || 1;
      const box = this.canvas.parentElement.getBoundingClientRect();
      this.width = Math.max(Math.floor(box.width), 200);
      this.height = Math.max(Math.floor(box.height), 100);
      this.canvas.width = this.width * ratio;
      this.canvas.height = this.height * ratio;
      this.canvas.style.width = this.width + "px";
      this.canvas.style.height = this.height + "px";
      this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    }

    get plotWidth() { return this.width - GUTTER; }
    get plotHeight() { return this.height - AXIS; }

    x(time, view) { return GUTTER + ((time - view.t0) / (view.t1 - view.t0)) * this.plotWidth; }
    time(x, view) { return view.t0 + ((x - GUTTER) / this.plotWidth) * (view.t1 - view.t0); }

    paint(scene) {
      const { pen, colors } = this;
      pen.fillStyle = colors.ground;
      pen.fillRect(0, 0, this.width, this.height);
      this.paintRows(scene);
      pen.save();
      pen.beginPath();
      pen.rect(GUTTER, AXIS, this.plotWidth, this.plotHeight);
      pen.clip();
      this.paintGrid(scene);
      if (scene.data) this.paintBoxes(scene);
      this.paintMarks(scene);
      pen.restore();
      this.paintLabels(scene);
      this.paintAxis(scene);
      this.paintScrollbar(scene);
    }

    paintRows({ layout, scroll }) {
      const { pen, colors } = this;
      for (const i of layout.between(scroll, scroll + this.plotHeight)) {
        const row = layout.rows[i];
        const y = AXIS + layout.top.get(i) - scroll;
        if (row.kind === "sm" || row.kind === "cta") {
          pen.fillStyle = colors.stripe;
          pen.fillRect(0, y, this.width, layout.height(row));
        }
        pen.fillStyle = colors.line;
        pen.fillRect(0, y + layout.height(row) - 1, this.width, 1);
      }
    }

    ticks({ view, units }) {
      const cyclesPerUnit = units.name === "ns" ? units.clockHz / 1e9 : 1;
      const span = (view.t1 - view.t0) / cyclesPerUnit;
      const step = niceStep(Math.max((span * 96) / this.plotWidth, 1e-3));
      const ticks = [];
      for (let k = Math.ceil(view.t0 / cyclesPerUnit / step); k * step * cyclesPerUnit <= view.t1; k += 1) {
        ticks.push({ time: k * step * cyclesPerUnit, value: k * step });
      }
      return ticks;
    }

    paintGrid(scene) {
      this.pen.fillStyle = this.colors.line;
      for (const tick of this.ticks(scene)) this.pen.fillRect(Math.round(this.x(tick.time, scene.view)), AXIS, 1, this.plotHeight);
    }

    paintBoxes(scene) {
      const { pen } = this;
      const { data, view, layout, scroll, color } = scene;
      const scale = this.plotWidth / (view.t1 - view.t0);
      const shift = GUTTER + (data.t0 - view.t0) * scale;
      const labels = [];
      for (let i = 0; i < data.n; i += 1) {
        const top = layout.top.get(data.row[i]);
        if (top === undefined) continue;
        const row = layout.rows[data.row[i]];
        const [offset, height] = layout.lane(row, data.depth[i]);
        const y = AXIS + top - scroll + offset;
        if (y + height < AXIS || y > this.height) continue;
        const x0 = Math.max(shift + data.begin[i] * scale, GUTTER - 2);
        const x1 = Math.min(shift + (data.begin[i] + data.length[i]) * scale, this.width + 2);
        if (x1 < GUTTER || x0 > this.width) continue;
        const width = Math.max(x1 - x0, data.depth[i] === window.mgpu.TIMELINE_TICKS ? 1.5 : 0.8);
        this.paintBox(scene, i, row, x0, y, width, height, labels);
      }
      this.paintBoxLabels(labels);
      if (scene.selection) this.paintSelection(scene, scale);
    }

    paintBox(scene, i, row, x, y, width, height, labels) {
      const { pen } = this;
      const { data, color, styles } = scene;
      const style = styles[data.style[i]];
      pen.fillStyle = color(data, i);
      if (row.kind === "counter") {
        const filled = (data.id[i] / Math.max(row.peak, 1)) * height;
        pen.globalAlpha = 0.75;
        pen.fillRect(x, y + height - filled, width, filled);
        pen.globalAlpha = 1;
        return;
      }
      pen.globalAlpha = style.kind === "scope" ? 0.45 : 1;
      pen.fillRect(x, y, width > 3 ? width - 0.6 : width, height);
      pen.globalAlpha = 1;
      if (style.hatched && width > HATCH_FROM) {
        pen.fillStyle = this.hatch;
        pen.fillRect(x, y, width - 0.6, height);
      }
      if (width > LABEL_FROM && height >= 11 && data.count[i] === 1 && row.kind === "track") {
        labels.push([x, y, width, height, data.slot[i] >= 0 ? `${style.name} [${data.slot[i]}]` : style.name]);
      }
    }

    paintBoxLabels(labels) {
      const { pen, colors } = this;
      pen.font = `11px ${colors.font}`;
      pen.textBaseline = "middle";
      pen.textAlign = "left";
      for (const [x, y, width, height, text] of labels) {
        const left = Math.max(x, GUTTER) + 4;
        const room = x + width - left - 3;
        const letters = Math.floor(room / 5.9);
        if (letters < 4) continue;
        const shown = text.length > letters ? text.slice(0, letters - 1) + "…" : text;
        const y0 = y + height / 2 + 0.5;
        /* A dark edge keeps white letters readable on every colour and hatch. */
        pen.lineWidth = 2.5;
        pen.strokeStyle = "rgba(15,22,32,0.55)";
        pen.strokeText(shown, left, y0);
        pen.fillStyle = "#ffffff";
        pen.fillText(shown, left, y0);
      }
    }

    paintSelection(scene, scale) {
      const { pen, colors } = this;
      const { selection, layout, scroll, view } = scene;
      const place = (key) => {
        const top = layout.top.get(layout.index.get(key));
        return top === undefined ? null : AXIS + top - scroll + layout.height(layout.rows[layout.index.get(key)]) / 2;
      };
      const y = place(selection.row);
      if (y !== null) {
        const row = layout.rows[layout.index.get(selection.row)];
        const x0 = this.x(selection.begin, view);
        const width = Math.max((selection.end - selection.begin) * scale, 3);
        pen.strokeStyle = colors.text;
        pen.lineWidth = 2;
        pen.strokeRect(x0, y - layout.height(row) / 2 + 1, width, layout.height(row) - 3);
      }
      for (const arrow of selection.arrows) {
        const from = place(arrow.from_row);
        const to = place(arrow.to_row);
        if (from !== null && to !== null) this.paintArrow(this.x(arrow.from_time, view), from, this.x(arrow.to_time, view), to);
      }
    }

    paintArrow(x0, y0, x1, y1) {
      const { pen, colors } = this;
      const bend = Math.max(Math.abs(x1 - x0) / 2, 14);
      pen.strokeStyle = pen.fillStyle = colors.accent;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.moveTo(x0, y0);
      pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
      pen.stroke();
      pen.beginPath();
      pen.arc(x0, y0, 3, 0, 7);
      pen.moveTo(x1, y1);
      pen.lineTo(x1 - 8, y1 - 4.5);
      pen.lineTo(x1 - 8, y1 + 4.5);
      pen.fill();
    }

    paintMarks({ view, marks, cursor, measure, units }) {
      const { pen, colors } = this;
      for (const mark of marks) {
        pen.fillStyle = colors.accent;
        pen.fillRect(this.x(mark, view) - 1, AXIS, 2, this.plotHeight);
      }
      if (measure) {
        const x0 = this.x(Math.min(measure.from, measure.to), view);
        const x1 = this.x(Math.max(measure.from, measure.to), view);
        pen.globalAlpha = 0.16;
        pen.fillStyle = colors.accent;
        pen.fillRect(x0, AXIS, x1 - x0, this.plotHeight);
        pen.globalAlpha = 1;
        pen.font = `600 12px ${colors.font}`;
        pen.textAlign = "center";
        pen.fillStyle = colors.text;
        pen.fillText(units.both(Math.abs(measure.to - measure.from)), (x0 + x1) / 2, AXIS + 12);
      } else if (cursor !== null) {
        pen.fillStyle = colors.muted;
        pen.globalAlpha = 0.5;
        pen.fillRect(Math.round(this.x(cursor, view)), AXIS, 1, this.plotHeight);
        pen.globalAlpha = 1;
      }
    }

    paintLabels({ layout, scroll }) {
      const { pen, colors } = this;
      pen.save();
      pen.beginPath();
      pen.rect(0, AXIS, GUTTER - 4, this.plotHeight);
      pen.clip();
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      for (const i of layout.between(scroll, scroll + this.plotHeight)) {
        const row = layout.rows[i];
        const middle = AXIS + layout.top.get(i) - scroll + Math.min(layout.height(row), 40) / 2;
        const left = 8 + row.level * 12;
        const opens = row.kind === "sm" || row.kind === "cta";
        pen.font = `${row.kind === "sm" ? 600 : 400} 12px ${colors.font}`;
        pen.fillStyle = opens ? colors.text : colors.muted;
        if (opens) this.paintTriangle(left, middle, layout.open.has(row.key));
        pen.fillText(row.label, left + 13, middle);
      }
      pen.restore();
      pen.fillStyle = colors.line;
      pen.fillRect(GUTTER - 1, 0, 1, this.height);
    }

    paintTriangle(x, y, isOpen) {
      const { pen } = this;
      pen.beginPath();
      if (isOpen) {
        pen.moveTo(x, y - 2);
        pen.lineTo(x + 8, y - 2);
        pen.lineTo(x + 4, y + 3);
      } else {
        pen.moveTo(x + 2, y - 4);
        pen.lineTo(x + 7, y);
        pen.lineTo(x + 2, y + 4);
      }
      pen.fill();
    }

    paintAxis(scene) {
      const { pen, colors } = this;
      pen.fillStyle = colors.ground;
      pen.fillRect(0, 0, this.width, AXIS);
      pen.fillStyle = colors.line;
      pen.fillRect(0, AXIS - 1, this.width, 1);
      pen.font = `11px ${colors.font}`;
      pen.textBaseline = "middle";
      pen.textAlign = "center";
      pen.fillStyle = colors.muted;
      for (const tick of this.ticks(scene)) {
        const x = this.x(tick.time, scene.view);
        if (x > GUTTER + 20) pen.fillText(scene.units.tick(tick.value), Math.min(x, this.width - 30), AXIS / 2);
      }
      pen.textAlign = "left";
      const text = scene.cursor === null ? `time in ${scene.units.name}` : scene.units.text(scene.cursor);
      pen.fillText(text, 8, AXIS / 2);
    }

    paintScrollbar({ layout, scroll }) {
      if (layout.total <= this.plotHeight) return;
      const length = Math.max((this.plotHeight * this.plotHeight) / layout.total, 24);
      const y = AXIS + (scroll / (layout.total - this.plotHeight)) * (this.plotHeight - length);
      this.pen.globalAlpha = 0.45;
      this.pen.fillStyle = this.colors.muted;
      this.pen.fillRect(this.width - 6, y, 5, length);
      this.pen.globalAlpha = 1;
    }
  }

  window.mgpu = Object.assign(window.mgpu || {}, { TimelinePainter, TIMELINE_GUTTER: GUTTER, TIMELINE_AXIS: AXIS });
})();
