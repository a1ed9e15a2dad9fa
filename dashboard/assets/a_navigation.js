/* URL state, links, theme: what every page shares. The state of a view is its URL; see dashboard/state.py. */
"use strict";
(function () {
  const DEFAULTS = { units: "cycles", color: "kind", count: "bare" };

  function params() {
    return new URLSearchParams(window.location.search);
  }

  /* Returns the present URL with some parameters changed; null or a default removes one. */
  function withParams(changes) {
    const now = params();
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "" || DEFAULTS[name] === value) now.delete(name);
      else now.set(name, value);
    }
    const query = now.toString();
    return window.location.pathname + (query ? "?" + query : "");
  }

  /* Opens a page of this application without loading it anew. */
  function go(href) {
    const url = new URL(href, window.location.href);
    /* With `href`: `note` may have changed the address since, and Dash's own old one would win over the other parts. */
    window.dash_clientside.set_props("url", {
      href: url.href,
      pathname: url.pathname,
      search: url.search,
      hash: url.hash,
    });
    window.setTimeout(() => window.dispatchEvent(new Event("mgpu:url")), 0);
  }

  /* Changes the URL without asking the server for the page again. */
  function note(changes, push) {
    const href = withParams(changes);
    if (href === window.location.pathname + window.location.search) return;
    window.history[push ? "pushState" : "replaceState"](null, "", href);
  }

  function theme() {
    const chosen = params().get("theme") || window.localStorage.getItem("mgpu-theme");
    if (chosen === "dark" || chosen === "light") return chosen;
    return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  function applyTheme(name) {
    document.documentElement.dataset.theme = name;
    window.dispatchEvent(new Event("mgpu:theme"));
  }

  function toggleTheme() {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    window.localStorage.setItem("mgpu-theme", next);
    applyTheme(next);
  }

  /* Shows durations in the units that a button names, or else in the other ones. */
  function toggleUnits(button) {
    const next = button ? button.dataset.units : params().get("units") === "ns" ? "cycles" : "ns";
    go(withParams({ units: next }));
  }

  function isPlainClick(event) {
    return event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  }

  document.addEventListener("click", (event) => {
    const action = event.target.closest("[data-action]");
    if (action) {
      const actions = { theme: toggleTheme, units: toggleUnits, copy: copyLink, help: window.mgpu.toggleHelp };
      const act = actions[action.dataset.action];
      if (act) act(action);
      return;
    }
    const link = event.target.closest("a.nav-link");
    if (!link || !isPlainClick(event)) return;
    event.preventDefault();
    /* Navigation keeps what is looked at now, which may have changed since the page was made. */
    if (link.classList.contains("keep-view")) {
      const url = new URL(link.href);
      url.search = window.location.search;
      go(url.href);
    } else go(link.href);
  });

  document.addEventListener("change", (event) => {
    changeField(event.target);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.tagName === "INPUT") changeField(event.target);
  });

  /* A control inside an element with data-field changes that field of the URL. */
  function changeField(control) {
    const holder = control.closest("[data-field]");
    if (!holder) return;
    const field = holder.dataset.field;
    if ((params().get(field) || "") === control.value) return;
    const changes = { [field]: control.value };
    if (field === "launch") Object.assign(changes, { sel: null, t0: null, t1: null, sm: null, cta: null });
    go(withParams(changes));
  }

  function copyLink(button) {
    const text = button.textContent;
    window.navigator.clipboard.writeText(window.location.href).then(
      () => { button.textContent = "Copied"; },
      () => { button.textContent = "Copy from the address bar"; },
    );
    window.setTimeout(() => { button.textContent = text; }, 1500);
  }

  window.mgpu = Object.assign(window.mgpu || {}, { go, note, params, withParams, toggleTheme, toggleUnits });
  applyTheme(theme());
})();
