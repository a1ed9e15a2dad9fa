/* The timeline's data: the tree of rows, and windows of boxes in the format of dashboard/timeline/window.py. */
"use strict";
(function () {
  const HEADER_BYTES = 32;

  /* Unpacks the answer of /api/timeline/LAUNCH/window into columns. */
  function decodeWindow(buffer) {
    const view = new DataView(buffer);
    const magic = String.fromCharCode(...new Uint8Array(buffer, 0, 4));
    if (magic !== "MGT1") throw new Error("not a window of the timeline");
    const n = view.getUint32(4, true);
    let at = HEADER_BYTES;
    const take = (Type) => {
      const column = new Type(buffer.slice(at, at + n * Type.BYTES_PER_ELEMENT));
      at += n * Type.BYTES_PER_ELEMENT;
      return column;
    };
    return {
      n,
      standsFor: Number(view.getBigUint64(8, true)),
      t0: view.getFloat64(16, true),
      t1: view.getFloat64(24, true),
      begin: take(Float32Array),
      length: take(Float32Array),
      id: take(Uint32Array),
      count: take(Uint32Array),
      row: take(Uint16Array),
      style: take(Uint16Array),
      phase: take(Int16Array),
      slot: take(Int8Array),
      depth: take(Uint8Array),
    };
  }

  /* Writes 1,2,3,7 as 1-3,7. */
  function ranges(numbers) {
    const parts = [];
    for (let i = 0; i < numbers.length; ) {
      let j = i;
      while (j + 1 < numbers.length && numbers[j + 1] === numbers[j] + 1) j += 1;
      parts.push(j > i ? numbers[i] + "-" + numbers[j] : String(numbers[i]));
      i = j + 1;
    }
    return parts.join(",");
  }

  class TimelineSource {
    constructor(base, launch, units) {
      this.root = base + "api/timeline/" + encodeURIComponent(launch) + "/";
      this.units = units;
      this.pending = null;
    }

    async rows() {
      const answer = await fetch(this.root + "rows");
      if (!answer.ok) throw new Error(await answer.text());
      return answer.json();
    }

    /* Fetches a window; a request that a newer one overtakes resolves to null. */
    async window(t0, t1, width, rows) {
      if (this.pending) this.pending.abort();
      const abort = new AbortController();
      this.pending = abort;
      const query = new URLSearchParams({ t0, t1, width, rows: ranges(rows) });
      try {
        const answer = await fetch(this.root + "window?" + query, { signal: abort.signal });
        if (!answer.ok) throw new Error(await answer.text());
        const data = decodeWindow(await answer.arrayBuffer());
        data.row = Int32Array.from(data.row, (place) => rows[place]);
        return data;
      } catch (error) {
        if (error.name === "AbortError") return null;
        throw error;
      } finally {
        if (this.pending === abort) this.pending = null;
      }
    }

    /* Returns one hit of a search: number `hit` of all, or the first from row `row` and moment `t0` on. */
    async search(q, where) {
      const answer = await fetch(this.root + "search?" + new URLSearchParams({ q, ...where }));
      return answer.ok ? answer.json() : null;
    }

    /* Returns which analyses are there: {bubbles, barrier_waits}. */
    async known() {
      const answer = await fetch(this.root + "known");
      return answer.ok ? answer.json() : { bubbles: false, barrier_waits: false };
    }

    async overview() {
      const answer = await fetch(this.root + "overview");
      if (!answer.ok) throw new Error(await answer.text());
      return answer.arrayBuffer();
    }

    async select(key) {
      const query = new URLSearchParams({ sel: key, units: this.units });
      const answer = await fetch(this.root + "select?" + query);
      return answer.ok ? answer.json() : null;
    }
  }

  window.mgpu = Object.assign(window.mgpu || {}, { TimelineSource, decodeWindow });
})();
