// One method's clients: from the reference to it, and those that fare worst.

const WORST = 8;

/** The method whose clients are shown: the one that was chosen, or the best. */
function methodShown(view) {
  const line = state.method === null ? null : view.lines[state.method];
  if (line && line.clients && line.i !== view.against) return line;
  const others = view.lines.filter((each) => each.clients && each.i !== view.against);
  return others.find((each) => view.best.includes(each.i)) || others[0] || null;
}

function methodChooser(view, ident) {
  const options = view.lines.filter((line) => line.clients && line.i !== view.against).map((line) => [String(line.i), cut(line.name, 40)]);
  const shown = methodShown(view);
  return chooser("method", ident, options, shown ? String(shown.i) : "", (value) => chooseMethod(Number(value)));
}

function drawSlope(body, task, view) {
  const line = methodShown(view);
  const pairs = line && line.differences ? line.differences.map((d, c) => (d === null ? null : [line.clients[c] - d, line.clients[c], c])).filter(Boolean) : [];
  body.closest("section").hidden = !pairs.length;
  if (!pairs.length) return;
  const figure = h("figure", { class: pairs.length > 40 ? "many" : null });
  body.replaceChildren(h("div", { class: "controls" }, methodChooser(view, "slope-method")), figure);
  const width = Math.max(250, figure.clientWidth);
  const [left, right, height] = [44, width - 24, 300];
  const every = pairs.flatMap(([a, b]) => [a, b]);
  const [low, high] = extent(every);
  const y = scaleOf(low, high, height - 34, 12);
  const parts = [];
  for (const t of ticks(low, high, 5)) {
    parts.push(s("line", { x1: left, x2: right, y1: y(t), y2: y(t), class: "grid" }), label(left - 8, y(t) + 4, String(t), { "text-anchor": "end" }));
  }
  for (const [a, b, c] of pairs) {
    const kind = gainKind(b - a, view.info);
    parts.push(
      s("g", { "data-client": c, class: `slope ${kind}` }, s("line", { x1: left, x2: right, y1: y(a), y2: y(b) }),
        s("circle", { cx: left, cy: y(a), r: 3 }), s("circle", { cx: right, cy: y(b), r: 3 })),
    );
  }
  const reference = view.lines[view.against].name;
  parts.push(label(left, height - 12, cut(reference, 18), { "text-anchor": "start" }), label(right, height - 12, cut(line.name, 22), { "text-anchor": "end" }));
  const counts = line.counts ? ` ${line.counts.wins} are better off, ${line.counts.losses} worse.` : "";
  figure.replaceChildren(chart(width, height, `A line for each client from ${reference} to ${line.name}.${counts}`, ...parts));
  pointable(figure, task, view);
}

function drawWorst(body, task, view) {
  const line = methodShown(view) || view.lines.find((each) => each.clients);
  body.closest("section").hidden = !line;
  if (!line) return;
  const sign = view.info.higher ? 1 : -1;
  const known = line.clients.map((value, c) => [value, c]).filter(([value]) => value !== null).sort((a, b) => sign * (a[0] - b[0]) || a[1] - b[1]);
  const shown = known.slice(0, WORST);
  const followed = state.client === null ? undefined : known.find(([, c]) => c === state.client);
  if (followed && !shown.includes(followed)) shown.push(followed);
  const compared = line.differences !== null && line.i !== view.against;
  const head = ["client", "test samples", ...(compared ? [cut(view.lines[view.against].name, 18)] : []), cut(line.name, 18), ...(view.info.share ? ["95 % from samples"] : [])];
  const rows = shown.map(([value, c]) => {
    const before = compared && line.differences[c] !== null ? value - line.differences[c] : null;
    const tone = before === null ? null : { better: "good", worse: "bad", same: null }[gainKind(value - before, view.info)];
    const [low, high] = view.info.share ? wilson(value, task.samples[c]) : [];
    const cells = [String(task.samples[c]), ...(compared ? [before === null ? "\u2013" : valueText(before, view.info)] : []),
      h("span", { class: tone }, valueText(value, view.info)), ...(view.info.share ? [wilsonNode(value, low, high)] : [])];
    const name = h("button", { type: "button", class: "name", "aria-pressed": String(c === state.client) }, cut(task.clients[c], 30));
    return h("tr", { "data-client": c }, h("th", { scope: "row" }, name), ...cells.map((cell, k) => h("td", { "data-label": head[k + 1] }, cell)));
  });
  const table = h("table", { class: "worst" }, h("thead", {}, h("tr", {}, ...head.map((words) => h("th", { scope: "col" }, words)))), h("tbody", {}, ...rows));
  const words = view.info.share
    ? `The ${Math.min(WORST, known.length)} clients that fare worst with ${line.name}. The last column is Wilson\u2019s interval: what so few test samples can tell.`
    : `The ${Math.min(WORST, known.length)} clients that fare worst with ${line.name}.`;
  const figure = h("figure", {}, table); // made anew, so that each click is heard once
  body.replaceChildren(h("p", { class: "quiet hint" }, words), figure);
  pointable(figure, task, view);
}

function wilsonNode(value, low, high) {
  const x = scaleOf(0, 100, 3, 87);
  return [
    s("svg", { viewBox: "0 0 90 14", class: "glyph small", "aria-hidden": "true" },
      s("line", { x1: x(0), x2: x(100), y1: 7, y2: 7, class: "grid" }), s("line", { x1: x(low), x2: x(high), y1: 7, y2: 7, class: "range same" }),
      s("circle", { cx: x(value), cy: 7, r: 3, class: "dot same" })),
    h("span", { class: "figure" }, `${fixed(low, 0)}\u2013${fixed(high, 0)}`),
  ];
}
