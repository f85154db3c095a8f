// Who gains, who loses: a dot for every client and method; a client that is pointed at is found everywhere.

function gainKind(d, info) {
  const gain = info.higher ? d : -d;
  return gain > EQUAL ? "better" : gain < -EQUAL ? "worse" : "same";
}

function drawGains(body, task, view) {
  const rows = view.lines.filter((line) => line.differences && line.i !== view.against && line.differences.some((d) => d !== null));
  if (!rows.length) {
    const infinite = view.lines[view.against].infinite.length && "The reference is infinite here, so that nothing can be compared with it.";
    const why = view.lines.length < 2 ? "There is nothing to compare with." : infinite || "These records hold no clients' own values at this choice.";
    body.replaceChildren(h("p", { class: "quiet" }, why));
    return;
  }
  const sign = view.info.higher ? 1 : -1;
  const ordered = [...rows].sort((a, b) => sign * (meanGain(b) - meanGain(a)) || a.i - b.i);
  const figure = h("figure", {});
  const options = [["", "none"], ...task.clients.map((name, c) => [String(c), cut(name, 40)])];
  const follow = chooser("follow client", "follow", options, state.client === null ? "" : String(state.client), (value) => followClient(value === "" ? null : Number(value)));
  const words = "Each dot is a client, larger with more test samples. Point at one to find it in every picture, click to follow it. \u25c6 mean of the clients" + (rows.some((line) => line.apart.low !== null) ? ", with its 95 % interval over seeds." : ".");
  body.replaceChildren(h("div", { class: "controls" }, follow, h("p", { class: "quiet hint" }, words)), figure, gainsTable(task, ordered, view));
  gainsFigure(figure, task, ordered, view);
}

const meanGain = (line) => mean(line.differences.filter((d) => d !== null));

function gainsFigure(figure, task, rows, view) {
  const width = Math.max(280, figure.clientWidth);
  const narrow = width < 560;
  const [left, right, row] = [narrow ? 74 : 150, narrow ? 62 : 128, rows.length > 12 ? 24 : 30];
  const height = row * rows.length + 44;
  const bottom = height - 36;
  const every = rows.flatMap((line) => line.differences.filter((d) => d !== null));
  const [least, largest] = extent([0, ...every]);
  const x = scaleOf(least, largest, left + 18, width - right - 12); // so that no dot looks like a part of a name
  const [, most] = extent(task.samples);
  const parts = [];
  for (const t of ticks(least, largest, narrow ? 4 : 8)) {
    parts.push(s("line", { x1: x(t), x2: x(t), y1: 2, y2: bottom, class: t === 0 ? "zero" : "grid" }));
    parts.push(label(x(t), bottom + 16, `${t > 0 ? "+" : ""}${String(t).replace("-", "\u2212")}`, { "text-anchor": "middle" }));
  }
  const unit = view.info.unit === "%" ? "points of " : "";
  parts.push(label((left + width - right) / 2, bottom + 32, `${unit}${view.info.words} against ${cut(view.lines[view.against].name, 30)}`, { "text-anchor": "middle", class: "label quiet" }));
  rows.forEach((line, k) => {
    const middle = 4 + row * (k + 0.5);
    const chosen = line.i === state.method ? " chosen" : "";
    const dots = line.differences.map((d, c) => (d === null ? null : [d, c])).filter(Boolean);
    parts.push(label(left - 6, middle + 4, cut(line.name, narrow ? 10 : 20), { "text-anchor": "end", class: `label pick${chosen}`, "data-pick": line.i }));
    for (const [d, c] of dots) {
      const r = 2.2 + 3.4 * Math.sqrt(task.samples[c] / most) * (dots.length > 150 ? 0.6 : 1);
      const offset = (((c * 7) % 5) - 2) * (row / 12);
      parts.push(s("circle", { cx: x(d), cy: middle + offset, r, class: `client ${gainKind(d, view.info)}`, "data-client": c, "data-line": line.i }));
    }
    parts.push(...meanMark(line, x, middle, task, [left, width - right]));
    if (line.counts) {
      const { wins, losses } = line.counts;
      const words = narrow ? [` ${wins}`, `/${losses}`] : [`${wins} better `, `${losses} worse`];
      parts.push(s("text", { x: width - right + 4, y: middle + 4, class: "label" }, s("tspan", { class: "good" }, words[0]), s("tspan", { class: "bad" }, words[1])));
    }
  });
  const told = rows.map((line) => `${line.name}: ${line.counts ? `${line.counts.wins} better, ${line.counts.losses} worse` : "no counts"}`);
  figure.replaceChildren(chart(width, height, `Every client\u2019s difference from ${view.lines[view.against].name}. ${told.join("; ")}.`, ...parts));
  figure.addEventListener("click", (event) => {
    const pick = event.target.getAttribute("data-pick");
    if (pick !== null) chooseMethod(Number(pick));
  });
  pointable(figure, task, view);
}

/** The plain mean over clients, and its interval over seeds. */
function meanMark(line, x, middle, task, [from, to]) {
  const own = apartOf(task, meansOf(task, line.cell), meansOf(task, lastView.lines[lastView.against].cell));
  if (!own) return [];
  const at = x(own.mean);
  const range = own.low === null ? null : s("line", { x1: clamp(x(own.low), from, to), x2: clamp(x(own.high), from, to), y1: middle, y2: middle, class: "mean" });
  return [range, s("path", { d: `M${(at - 4.5).toFixed(1)} ${middle}l4.5 -4.5l4.5 4.5l-4.5 4.5Z`, class: "mean" })];
}

function meansOf(task, cell) {
  const stored = cell && cell.averages.mean;
  const values = {};
  if (stored !== undefined && stored !== null) {
    task.arrays[stored].forEach((value, k) => {
      if (value !== null) values[cell.seeds[k]] = value;
    });
  }
  return values;
}

/** What a client's marks say when they are pointed at. */
function clientWords(task, view, c) {
  const known = view.lines.filter((line) => line.clients && line.clients[c] !== null);
  const said = known.map((line) => {
    const d = line.differences && line.differences[c] !== null && line.i !== view.against ? ` (${valueText(line.differences[c], view.info, true)})` : "";
    return `${valueText(line.clients[c], view.info)}${d}  ${cut(line.name, 26)}`;
  });
  return [`client ${task.clients[c]}, ${task.samples[c]} test samples`, ...said];
}

function pointable(figure, task, view) {
  const point = (event) => {
    const given = event.target.getAttribute && event.target.closest("[data-client]");
    const c = given ? Number(given.getAttribute("data-client")) : null;
    if (c === null) {
      pointAt(null);
      untip(figure);
      return;
    }
    pointAt(c);
    const [first, ...rest] = clientWords(task, view, c);
    const more = rest.length > 12 ? [[`and ${rest.length - 12} more`, "quiet"]] : [];
    const box = figure.getBoundingClientRect();
    const shown = tip(figure, event.clientX - box.left, [[first, "title"], ...rest.slice(0, 12).map((words) => [words, "value"]), ...more]);
    if (given.matches("tr")) shown.style.top = `${given.getBoundingClientRect().bottom - box.top + 4}px`; // the row itself stays to be read
  };
  figure.addEventListener("pointerover", point);
  figure.addEventListener("pointerleave", () => {
    pointAt(null);
    untip(figure);
  });
  figure.addEventListener("click", (event) => {
    const given = event.target.closest("[data-client]");
    if (given) followClient(Number(given.getAttribute("data-client")));
  });
}

function gainsTable(task, rows, view) {
  return unfoldable("Every client\u2019s differences as a table", "gain-table", () => {
    const cell = (d) => (d === null ? "\u2013" : valueText(d, view.info, true));
    const body = task.clients.map((name, c) => [name, String(task.samples[c]), ...rows.map((line) => cell(line.differences[c]))]);
    return tableOf("about", ["client", "test samples", ...rows.map((line) => line.name)], body, "differences of every client");
  });
}
