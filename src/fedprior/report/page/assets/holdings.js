// Who holds what: clients across, classes down; the stronger, the more samples.

const MOST_CLIENTS = 300;

function drawHoldings(body, task, view) {
  const held = task.holdings;
  if (!held) return;
  const parts = Object.keys(held.parts);
  const part = parts.includes(state.part) ? state.part : "all";
  const count = (name, i, j) => (name === "all" ? sum(parts.map((each) => held.parts[each][i][j])) : held.parts[name][i][j]);
  const options = [["all", "all samples"], ...parts.map((name) => [name, `${name} samples`])];
  const shown = Math.min(held.clients.length, MOST_CLIENTS);
  const figure = h("figure", {});
  const less = shown < held.clients.length ? ` The first ${shown} of ${held.clients.length} clients are shown.` : "";
  const words = `Clients across, classes down; the stronger, the more samples (log scale), blank is none.${less}`;
  body.replaceChildren(
    h("div", { class: "controls" }, chooser("samples", "part", options, part, choosePart), h("p", { class: "quiet hint" }, words)),
    figure,
    unfoldable("Who holds what as a table", "held-table", () =>
      tableOf("about", ["client", ...held.classes], held.clients.map((name, i) => [name, ...held.classes.map((_, j) => String(count(part, i, j)))]), "label counts")),
  );
  const width = Math.max(280, figure.clientWidth);
  const left = Math.min(110, 14 + 6.5 * Math.max(...held.classes.map((name) => Math.min(name.length, 14))));
  const row = clamp(330 / held.classes.length, 7, 17);
  const step = (width - left - 4) / shown;
  let most = 1;
  for (let i = 0; i < shown; i++) held.classes.forEach((_, j) => (most = Math.max(most, count(part, i, j))));
  const marks = [];
  for (let i = 0; i < shown; i++) {
    const column = s("g", { class: "column", "data-client": i < task.clients.length ? i : null }); // the others have no results
    column.append(s("rect", { x: left + i * step, y: 2, width: step, height: row * held.classes.length, class: "ground" }));
    held.classes.forEach((name, j) => {
      const n = count(part, i, j);
      if (!n) return;
      const strength = 0.16 + (0.84 * Math.log1p(n)) / Math.log1p(most);
      column.append(s("rect", { x: left + i * step + 0.4, y: 2 + j * row + 0.4, width: Math.max(step - 0.8, 0.6), height: row - 0.8, class: "held", "fill-opacity": strength.toFixed(2), "data-held": `${i},${j}` }));
    });
    marks.push(column);
  }
  held.classes.forEach((name, j) => {
    if (row >= 9 || j % 2 === 0) marks.push(label(left - 5, 2 + j * row + row / 2 + 4, cut(name, 14), { "text-anchor": "end" }));
  });
  const bottom = 2 + row * held.classes.length + 15;
  const longest = Math.max(...held.clients.slice(0, shown).map((name) => Math.min(name.length, 12)));
  const every = Math.max(1, Math.ceil((longest * 6.6 + 4) / step));
  for (let i = 0; i < shown; i += every) marks.push(label(left + (i + 0.5) * step, bottom, cut(held.clients[i], 12), { "text-anchor": every > 1 && i === 0 ? "start" : "middle" }));
  marks.push(label(width - 4, bottom + 16, "client", { "text-anchor": "end", class: "label quiet" }));
  const total = sum(held.clients.map((_, i) => sum(held.classes.map((__, j) => count(part, i, j)))));
  figure.replaceChildren(chart(width, bottom + 22, `${held.clients.length} clients hold ${total} samples of ${held.classes.length} classes; no cell has more than ${most}.`, ...marks));
  pointable(figure, task, view);
  figure.addEventListener("pointerover", (event) => {
    const place = event.target.getAttribute("data-held");
    if (!place) return;
    const [i, j] = place.split(",").map(Number);
    const lines = parts.map((name) => [`${held.parts[name][i][j]}  ${name}`, "value"]);
    const box = figure.getBoundingClientRect();
    tip(figure, event.clientX - box.left, [[`client ${held.clients[i]}, class ${held.classes[j]}`, "title"], ...lines]);
  });
}
