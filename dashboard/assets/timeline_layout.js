/* Which rows of the timeline are open, and where each is drawn. */
"use strict";
(function () {
  const HEIGHT = { sm: 22, cta: 18, unit: 0, track: 0, counter: 30 };
  const LANE = { unit: 8, track: 17 };
  const TICKS = 255;

  class TimelineLayout {
    constructor(rows) {
      this.rows = rows;
      this.open = new Set();
      this.index = new Map(rows.map((row, i) => [row.key, i]));
      this.place();
    }

    /* Opens an SM, and its CTAs if they are few; `cta` is opened in any case. */
    openSm(sm, cta) {
      this.open.add("sm:" + sm);
      const ctas = this.rows.filter((row) => row.kind === "cta" && row.sm === sm);
      for (const row of ctas) if (ctas.length <= 2 || row.cta === cta) this.open.add(row.key);
      if (ctas.length && cta === undefined) this.open.add(ctas[0].key);
      this.place();
    }

    toggle(row) {
      if (this.open.has(row.key)) this.open.delete(row.key);
      else if (row.kind === "sm") this.openSm(row.sm);
      else this.open.add(row.key);
      this.place();
    }

    openAll() {
      for (const row of this.rows) if (row.kind === "sm" || row.kind === "cta") this.open.add(row.key);
      this.place();
    }

    closeAll() {
      this.open.clear();
      this.place();
    }

    isVisible(row) {
      if (row.level === 0) return true;
      if (!this.open.has("sm:" + row.sm)) return false;
      return row.level === 1 || this.open.has("cta:" + row.cta);
    }

    place() {
      this.top = new Map();
      this.visible = [];
      let y = 0;
      this.rows.forEach((row, i) => {
        if (!this.isVisible(row)) return;
        this.top.set(i, y);
        this.visible.push(i);
        y += this.height(row);
      });
      this.total = y;
    }

    height(row) {
      const lane = LANE[row.kind];
      return lane ? Math.max(lane * row.lanes + 6, 18) : HEIGHT[row.kind];
    }

    /* Returns [y offset, height] of a lane within its row. */
    lane(row, depth) {
      const height = this.height(row);
      if (depth === TICKS) return [height - 5, 5];
      if (row.kind === "cta") return [6, 6];
      if (row.kind === "counter" || row.kind === "sm") return [3, height - 6];
      const each = (height - 5) / row.lanes;
      return [2 + depth * each, each - 1];
    }

    rowAt(y) {
      let low = 0;
      let high = this.visible.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.top.get(this.visible[middle]) <= y) low = middle;
        else high = middle - 1;
      }
      return y < this.total && this.visible.length ? this.visible[low] : -1;
    }

    /* Returns the numbers of the rows between two heights. */
    between(top, bottom) {
      return this.visible.filter((i) => {
        const y = this.top.get(i);
        return y < bottom && y + this.height(this.rows[i]) > top;
      });
    }
  }

  window.mgpu = Object.assign(window.mgpu || {}, { TimelineLayout, TIMELINE_TICKS: TICKS });
})();
