"use strict";
// Only comfort: tables sort by a click on a heading, long ones can be filtered, commands copy. The page is
// whole without it.
const FILTER_FROM = 15;
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (row) => row.cells[column].textContent.trim().replace(/(\d),(?=\d{3})/g, "$1");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => text(a).localeCompare(text(b), "en", { numeric: true }) * (down ? -1 : 1));
      table.tBodies[0].append(...rows);
    });
  });
}
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < FILTER_FROM) continue;
  const line = document.createElement("p");
  const label = document.createElement("label");
  const input = document.createElement("input");
  const told = document.createElement("output");
  line.className = "filter";
  input.type = "search";
  input.autocomplete = "off";
  label.append("Filter ", input);
  line.append(label, told);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    told.textContent = words.length ? `${shown} of ${rows.length} rows` : "";
  });
  table.before(line);
}
if (navigator.clipboard) {
  for (const code of document.querySelectorAll("[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the command");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    });
    code.after(button);
  }
}
