/* Search on the timeline: finds boxes on the server, goes from hit to hit, and dims what is no hit. */
"use strict";
(function () {
  const DIMMED = "rgba(128,138,150,0.28)";

  class TimelineSearch {
    constructor(timeline, root) {
      this.timeline = timeline;
      this.field = root.querySelector(".timeline-search");
      this.count = root.querySelector(".timeline-hits");
      this.text = "";
      this.answer = null;
      this.field.addEventListener("keydown", (event) => {
        if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
        else if (event.key === "Escape") { this.field.value = ""; this.step(1); }
      });
      this.field.addEventListener("search", () => { if (!this.field.value) this.step(1); });
      for (const button of root.querySelectorAll("[data-step]")) {
        button.addEventListener("click", () => this.step(Number(button.dataset.step)));
      }
    }

    /* After the page was opened: finds what the URL names; goes there only if the URL selects nothing. */
    async start() {
      this.field.value = window.mgpu.params().get("find") || "";
      if (this.field.value) await this.step(1, window.mgpu.params().has("sel"));
    }

    /* Goes to the next or previous hit; a new text begins with the first hit in view. */
    async step(direction, stays = false) {
      const text = this.field.value.trim();
      const isNew = text !== this.text;
      this.text = text;
      window.mgpu.note({ find: text || null }, false);
      if (!text) return this.show(null);
      const known = isNew ? null : this.answer;
      if (!isNew && !known) return undefined;
      const { layout, scroll, view, source } = this.timeline;
      const where = known ? { hit: (known.hit + direction + known.total) % known.total } : { row: layout.rowAt(scroll), t0: view.t0 };
      const answer = await source.search(text, where);
      if (text !== this.text) return undefined;
      this.show(answer);
      return answer && answer.key && !stays ? this.timeline.select(answer.key, { show: true }) : undefined;
    }

    show(answer) {
      this.answer = answer && answer.total ? answer : null;
      const found = this.answer ? `${(answer.hit + 1).toLocaleString("en-US")} of ${answer.total.toLocaleString("en-US")}` : "no hits";
      this.count.textContent = this.text ? found : "";
      this.hits = new Set(this.answer ? answer.styles : []);
      this.timeline.paint();
    }

    /* Returns the function that gives box i its colour: `color`, or grey where it is no hit. */
    dim(color) {
      return (data, i) => (this.hits && this.hits.size && !this.hits.has(data.style[i]) ? DIMMED : color(data, i));
    }
  }

  window.mgpu = Object.assign(window.mgpu || {}, { TimelineSearch });
})();
