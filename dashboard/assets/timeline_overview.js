/* The strip above the timeline: the whole launch, SM by SM, with the visible window, which can be dragged. */
"use strict";
(function () {
  const HEADER_BYTES = 12;
  const EDGE = 6; /* pixels within which an edge of the window is taken hold of */

  /* Unpacks the answer of /api/timeline/LAUNCH/overview into a picture, one pixel per SM and time slice. */
  function decodeOverview(buffer) {
    const view = new DataView(buffer);
    if (String.fromCharCode(...new Uint8Array(buffer, 0, 4)) !== "MGO1") throw new Error("not an overview");
    const [height, width] = [view.getUint32(4, true), view.getUint32(8, true)];
    if (!height || !width) return null;
    const picture = document.createElement("canvas");
    picture.width = width;
    picture.height = height;
    const pixels = new ImageData(width, height);
    new Uint8Array(buffer, HEADER_BYTES).forEach((share, i) => pixels.data.set([68, 119, 170, share], 4 * i));
    picture.getContext("2d").putImageData(pixels, 0, 0);
    return picture;
  }

  class TimelineOverview {
    constructor(timeline, canvas) {
      this.timeline = timeline;
      this.canvas = canvas;
      this.pen = canvas.getContext("2d");
      this.picture = null;
      this.listen();
    }

    async start() {
      this.picture = decodeOverview(await this.timeline.source.overview());
      this.canvas.dataset.ready = "true";
      this.paint();
    }

    get left() { return window.mgpu.TIMELINE_GUTTER; }
    get width() { return this.canvas.clientWidth - this.left; }
    x(time) { return this.left + (time / this.timeline.end) * this.width; }
    time(x) { return ((x - this.left) / this.width) * this.timeline.end; }

    paint() {
      const { pen, canvas, timeline } = this;
      const ratio = window.devicePixelRatio || 1;
      const [width, height] = [canvas.clientWidth, canvas.clientHeight];
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
      }
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      const { colors } = timeline.painter;
      pen.fillStyle = colors.ground;
      pen.fillRect(0, 0, width, height);
      pen.fillStyle = colors.muted;
      pen.font = `11px ${colors.font}`;
      pen.textBaseline = "middle";
      pen.fillText("whole launch, all SMs", 8, height / 2);
      if (this.picture) pen.drawImage(this.picture, this.left, 3, this.width, height - 6);
      const from = Math.max(this.x(timeline.view.t0), this.left);
      const to = Math.max(Math.min(this.x(timeline.view.t1), width), from + 2);
      pen.globalAlpha = 0.62;
      pen.fillStyle = colors.ground;
      pen.fillRect(this.left, 0, from - this.left, height);
      pen.fillRect(to, 0, width - to, height);
      pen.globalAlpha = 1;
      pen.strokeStyle = colors.accent;
      pen.lineWidth = 1.5;
      pen.strokeRect(from + 0.75, 1, Math.max(to - from - 1.5, 1), height - 2);
      pen.fillStyle = colors.line;
      pen.fillRect(this.left - 1, 0, 1, height);
    }

    /* Says what a pointer at x takes hold of: the window, one of its edges, or nothing. */
    grip(x) {
      const from = this.x(this.timeline.view.t0);
      const to = this.x(this.timeline.view.t1);
      const isWide = to - from > 4 * EDGE;
      if (isWide && Math.abs(x - from) < EDGE) return "t0";
      if (isWide && Math.abs(x - to) < EDGE) return "t1";
      return x > from && x < to ? "window" : "";
    }

    listen() {
      const { canvas, timeline } = this;
      const at = (event) => event.clientX - canvas.getBoundingClientRect().left;
      let drag = null;
      canvas.addEventListener("pointerdown", (event) => {
        const x = at(event);
        if (x < this.left) return;
        canvas.setPointerCapture(event.pointerId);
        timeline.remember();
        const grip = this.grip(x);
        if (!grip) {
          const half = (timeline.view.t1 - timeline.view.t0) / 2;
          timeline.view = { t0: this.time(x) - half, t1: this.time(x) + half };
          timeline.changed();
        }
        drag = { x, grip: grip || "window", view: { ...timeline.view } };
      });
      canvas.addEventListener("pointermove", (event) => {
        const x = at(event);
        if (!drag) {
          canvas.style.cursor = { window: "grab", t0: "ew-resize", t1: "ew-resize" }[this.grip(x)] || "pointer";
          return;
        }
        const shift = ((x - drag.x) / this.width) * timeline.end;
        const { t0, t1 } = drag.view;
        if (drag.grip === "t0") timeline.view = { t0: Math.min(t0 + shift, t1 - 8), t1 };
        else if (drag.grip === "t1") timeline.view = { t0, t1: Math.max(t1 + shift, t0 + 8) };
        else timeline.view = { t0: t0 + shift, t1: t1 + shift };
        timeline.changed();
      });
      canvas.addEventListener("pointerup", () => { drag = null; });
      canvas.addEventListener("dblclick", () => timeline.show(0, timeline.end));
    }
  }

  window.mgpu = Object.assign(window.mgpu || {}, { TimelineOverview, decodeOverview });
})();
