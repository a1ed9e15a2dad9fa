/* Builds the plain parts of a page from the trees that dashboard/markup.py sends. Text stays text, never markup. */
"use strict";
(function () {
  const TAGS = new Set(("a aside b button canvas code dd div dl dt em h1 h2 h3 header i iframe input kbd label li main nav option p pre " +
    "section select small span table tbody td th thead tr ul").split(" "));

  function isAllowed(name, value) {
    if (name.startsWith("on") || name === "srcdoc") return false;
    if (name !== "href" && name !== "src") return true;
    return /^(\/|#|https:\/\/)/.test(value) && !value.startsWith("//");
  }

  function build(tree) {
    if (typeof tree === "string") return document.createTextNode(tree);
    const [tag, attributes, ...children] = tree;
    const made = document.createElement(TAGS.has(tag) ? tag : "span");
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") made.style.cssText = value;
      else if (isAllowed(name, String(value))) made.setAttribute(name, value);
    }
    made.append(...children.map(build));
    return made;
  }

  function fill(host) {
    const text = host.dataset.light;
    if (host.builtFrom === text) return;
    host.builtFrom = text;
    host.replaceChildren(build(JSON.parse(text)));
  }

  function scrollToAnchor() {
    const target = window.location.hash && document.getElementById(decodeURIComponent(window.location.hash.slice(1)));
    if (!target) return;
    for (const other of document.querySelectorAll(".anchored")) other.classList.remove("anchored");
    target.classList.add("anchored");
    target.scrollIntoView({ block: "center" });
  }

  function start() {
    const hosts = document.querySelectorAll("[data-light]");
    let isNew = false;
    for (const host of hosts) {
      isNew = isNew || host.builtFrom === undefined;
      fill(host);
    }
    if (isNew) scrollToAnchor();
  }

  new MutationObserver(start).observe(document.documentElement, {
    childList: true, subtree: true, attributes: true, attributeFilter: ["data-light"],
  });
})();
