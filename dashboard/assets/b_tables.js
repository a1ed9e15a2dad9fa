/* Tables of class "sortable" sort when a heading is clicked: by data-value if cells have it, else by text. */
"use strict";
(function () {
  function key(row, column) {
    const cell = row.cells[column];
    const value = cell.dataset.value === undefined ? cell.textContent.trim() : cell.dataset.value;
    const number = Number(value.replace(/[,%]/g, ""));
    return value !== "" && !Number.isNaN(number) ? number : value;
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b));
  }

  function sortBy(heading) {
    const table = heading.closest("table");
    const column = heading.cellIndex;
    const descending = heading.getAttribute("aria-sort") !== "descending";
    const body = table.tBodies[0];
    const rows = Array.from(body.rows).map((row, place) => ({ row, place, key: key(row, column) }));
    rows.sort((a, b) => (descending ? compare(b.key, a.key) : compare(a.key, b.key)) || a.place - b.place);
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
    body.append(...rows.map((one) => one.row));
  }

  document.addEventListener("click", (event) => {
    const heading = event.target.closest("table.sortable th");
    if (heading && heading.textContent) sortBy(heading);
  });
})();
