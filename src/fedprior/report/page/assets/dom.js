// Elements, and what is shared by all charts. Names are data: they become text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : typeof value === "number" ? Math.round(value * 10) / 10 : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const colourOf = (method) => (method.colour === null ? "rest" : `c${method.colour}`);

/** Words of a bounded length: what is left out is in the middle, since long names often differ at their ends. */
function cut(words, most) {
  if (words.length <= most) return words;
  const end = Math.floor((most - 1) / 2);
  return `${words.slice(0, most - 1 - end)}\u2026${words.slice(words.length - end)}`;
}

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

function scaleOf(low, high, start, end) {
  const span = high - low || 1;
  return (x) => start + ((x - low) / span) * (end - start);
}

function chart(width, height, about, ...children) {
  const size = { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": about };
  return s("svg", size, ...children);
}

const label = (x, y, words, attributes = {}) => s("text", { x, y, class: "label", ...attributes }, words);

/** A select with its label; `options` are [value, words] pairs. */
function chooser(words, ident, options, chosen, onchange) {
  const select = h("select", { id: ident, onchange: () => onchange(select.value) });
  for (const [value, shown, disabled] of options) {
    select.append(h("option", { value, selected: value === chosen, disabled }, shown));
  }
  return h("label", { class: "choice" }, h("span", {}, words), select);
}

/** A little box beside the pointer; lines are [text, class] pairs. */
function tip(figure, x, lines) {
  let box = figure.querySelector(".tip");
  if (!box) figure.append((box = h("div", { class: "tip", "aria-hidden": "true" })));
  box.replaceChildren(...lines.map(([words, kind]) => h("div", { class: kind }, words)));
  box.hidden = false;
  const room = figure.clientWidth - box.offsetWidth;
  box.style.left = `${clamp(x > figure.clientWidth / 2 ? x - box.offsetWidth - 14 : x + 14, 0, Math.max(0, room))}px`;
  return box;
}

function untip(figure) {
  const box = figure.querySelector(".tip");
  if (box) box.hidden = true;
}

/** Tell those who do not see the page. */
function tell(words) {
  document.getElementById("told").textContent = words;
}

/** A table that is made when it is first unfolded, for those who would rather read than look. */
function unfoldable(words, name, make) {
  const details = h("details", { class: "folded", "data-fold": name }, h("summary", {}, words));
  const build = () => {
    if (details.open && details.children.length === 1) details.append(make());
  };
  details.addEventListener("toggle", build);
  return details;
}

function tableOf(kind, head, rows, caption) {
  return h(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      { class: kind },
      h("thead", {}, h("tr", {}, ...head.map((words) => h("th", { scope: "col" }, words)))),
      h("tbody", {}, ...rows.map(([first, ...rest]) => h("tr", {}, h("th", { scope: "row" }, first), ...rest.map((cell) => h("td", {}, cell))))),
    ),
  );
}
