"use strict";
// Sorting: by numbers where a cell has one, else by text; cells without a number come last in either direction.
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const body = head.closest("table").tBodies[0];
    const column = head.cellIndex;
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    const order = (one, two) => {
      const [a, b] = [one, two].map((row) => row.cells[column]);
      if (!("value" in a.dataset) && !("value" in b.dataset)) return sign * a.textContent.localeCompare(b.textContent, "en", { numeric: true });
      if (!("value" in a.dataset)) return 1;
      if (!("value" in b.dataset)) return -1;
      return sign * (a.dataset.value - b.dataset.value);
    };
    body.append(...[...body.rows].sort(order));
  });
}

// Filters: a chapter without a shown table or figure keeps its findings.
const paper = document.getElementById("paper");
const preset = document.getElementById("preset");
function filter() {
  for (const section of document.querySelectorAll("section.paper")) {
    section.hidden = paper.value !== "" && section.dataset.paper !== paper.value;
  }
  for (const article of document.querySelectorAll("article")) {
    article.hidden = preset.value !== "" && article.dataset.preset !== preset.value;
  }
}
paper.addEventListener("change", filter);
preset.addEventListener("change", filter);

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : window.matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// How a number was made, beside it.
const made = document.getElementById("made");
function show(cell) {
  made.textContent = cell.dataset.made;
  made.hidden = false;
  const place = cell.getBoundingClientRect();
  const widest = document.documentElement.clientWidth - made.offsetWidth - 8;
  made.style.left = `${Math.max(8, Math.min(place.left, widest)) + window.scrollX}px`;
  made.style.top = `${place.bottom + 4 + window.scrollY}px`;
}
for (const kind of ["mouseover", "focusin"]) {
  document.addEventListener(kind, (event) => {
    const cell = event.target.closest("td[data-made]");
    if (cell) show(cell);
    else made.hidden = true;
  });
}
