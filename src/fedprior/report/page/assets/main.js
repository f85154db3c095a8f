// The page comes to life: choices, their effects, and, where it is served, newer numbers.

let data = null;
let lastView = null;
const state = {
  task: 0, choice: {}, hidden: new Set(), sort: { key: "value", down: false }, method: null, client: null,
  zoom: true, along: "rounds", cost: "gradients", part: "all",
};
const SECTIONS = {
  sentences: drawSentences, summary: drawSummary, curves: drawCurves, gains: drawGains,
  slope: drawSlope, worst: drawWorst, holdings: drawHoldings, cost: drawCost,
};
const CAPTIONED = ["sentences", "summary", "curves"];

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const articleOf = (k) => document.getElementById(`task-${k}`);

function draw(...names) {
  const task = data.tasks[state.task];
  const article = articleOf(state.task);
  for (const section of article.querySelectorAll("section[data-part]")) {
    const part = section.getAttribute("data-part");
    if (!(part in SECTIONS) || (names.length && !names.includes(part))) continue;
    if (CAPTIONED.includes(part)) section.querySelector(".caption").textContent = part === "curves" ? curveWords(lastView) : choiceWords(lastView.choice, lastView.info);
    section.hidden = part === "holdings" && !task.holdings;
    keepingFocus(section, () => SECTIONS[part](section.querySelector(".body"), task, lastView));
  }
  pointAt(null);
}

/** A control that is drawn anew keeps the focus. */
function keepingFocus(section, act) {
  const active = document.activeElement;
  const inside = active && section.contains(active);
  const path = inside ? focusPath(active) : null;
  const open = [...section.querySelectorAll("details[open][data-fold]")].map((each) => each.getAttribute("data-fold"));
  act();
  for (const name of open) {
    const details = section.querySelector(`details[data-fold="${name}"]`);
    if (details) details.open = true;
  }
  const again = path && section.querySelector(path);
  if (again) again.focus({ preventScroll: true });
}

function focusPath(active) {
  if (active.id) return `#${active.id}`;
  if (active.classList.contains("stage")) return ".stage";
  if (active.matches("details[data-fold] > summary")) return `details[data-fold="${active.parentElement.getAttribute("data-fold")}"] > summary`;
  if (active.hasAttribute("data-sort")) return `button[data-sort="${active.getAttribute("data-sort")}"]`;
  if (active.hasAttribute("data-head")) return `button[data-head="${active.getAttribute("data-head")}"]`;
  const row = active.closest("[data-method],[data-client]");
  if (active.classList.contains("name") && row) {
    return row.hasAttribute("data-method") ? `[data-method="${row.getAttribute("data-method")}"] button.name` : `[data-client="${row.getAttribute("data-client")}"] button.name`;
  }
  return active.hasAttribute("data-method") ? `button[data-method="${active.getAttribute("data-method")}"]` : null;
}

/** Everything again: after a choice that changes all numbers. */
function drawAll() {
  const task = data.tasks[state.task];
  if (!task) return;
  state.choice = settled(task, state.choice);
  if (state.client !== null && state.client >= task.clients.length) state.client = null;
  if (state.method !== null && state.method >= task.methods.length) state.method = null;
  lastView = viewOf(task, state.choice);
  document.querySelectorAll("article.task").forEach((article) => (article.hidden = article.getAttribute("data-task") !== String(state.task)));
  drawBar(task);
  const overview = document.querySelector('section[data-part="overview"]');
  if (overview) keepingFocus(overview, () => drawOverview(overview.querySelector(".body"), overview.querySelector(".caption")));
  draw();
  remember();
}

function choose(change) {
  state.choice = { ...state.choice, ...change };
  drawAll();
  tell(choiceWords(lastView.choice, lastView.info));
}

function chooseTask(k) {
  for (const section of articleOf(state.task).querySelectorAll("section[data-part]")) {
    if (section.getAttribute("data-part") in SECTIONS) section.querySelector(".body").replaceChildren(); // its names of controls are those of the next
  }
  state.task = k;
  state.method = state.client = null;
  drawAll();
  tell(data.tasks[k].name);
}

function chooseMethod(i) {
  state.method = state.method === i ? null : i;
  draw("summary", "gains", "slope", "worst");
}

function followClient(c) {
  state.client = state.client === c ? null : c;
  draw("summary", "gains", "slope", "worst", "holdings");
  remember();
  tell(state.client === null ? "no client is followed" : clientWords(data.tasks[state.task], lastView, state.client).join("; "));
}

/** Mark a client everywhere while it is pointed at; otherwise the one that is followed. */
function pointAt(c) {
  const marked = c === null ? state.client : c;
  const article = articleOf(state.task);
  article.classList.toggle("following", marked !== null);
  for (const node of article.querySelectorAll(".followed")) node.classList.remove("followed");
  if (marked === null) return;
  for (const node of article.querySelectorAll(`[data-client="${marked}"]`)) node.classList.add("followed");
}

function highlight(i) {
  const article = articleOf(state.task);
  for (const node of article.querySelectorAll("figure [data-method]")) {
    const own = i !== null && node.getAttribute("data-method") === String(i);
    node.classList.toggle("strong", own);
    node.classList.toggle("weak", i !== null && !own);
  }
}

function toggleMethod(id) {
  if (!state.hidden.delete(id)) state.hidden.add(id);
  draw("curves");
}

function hideAll(hidden) {
  const reference = lastView.lines[lastView.against].method.id;
  state.hidden = new Set(hidden ? lastView.lines.map((line) => line.method.id).filter((id) => id !== reference) : []);
  draw("curves");
}

function toggleZoom() {
  state.zoom = !state.zoom;
  draw("curves");
}

function chooseAlong(value) {
  state.along = value;
  draw("curves");
}

function chooseCost(value) {
  state.cost = value;
  draw("cost");
}

function choosePart(value) {
  state.part = value;
  draw("holdings");
}

/** Choices are part of the address, so that a view can be kept and passed on. */
function remember() {
  const words = new URLSearchParams({ ...state.choice, ...(data.tasks.length > 1 ? { task: data.tasks[state.task].name } : {}), ...(state.client === null ? {} : { client: data.tasks[state.task].clients[state.client] }) });
  try {
    history.replaceState(null, "", `#${words}`);
  } catch {
    // Some viewers of attachments do not allow it; nothing depends on it.
  }
}

function recall() {
  const words = new URLSearchParams(location.hash.slice(1));
  const named = data.tasks.findIndex((task) => task.name === words.get("task"));
  state.task = Math.max(0, named);
  const { usual, clients } = data.tasks[state.task];
  state.choice = { ...usual };
  for (const key of Object.keys(usual)) if (words.has(key)) state.choice[key] = words.get(key);
  const client = words.has("client") ? clients.indexOf(words.get("client")) : -1;
  state.client = client < 0 ? null : client;
}

// -- where the page is served: newer numbers without losing what was chosen ------------------------------------------------

async function look() {
  const note = document.getElementById("live");
  try {
    const version = (await (await fetch("version", { cache: "no-store" })).json()).version;
    if (version !== data.live) {
      const fresh = new DOMParser().parseFromString(await (await fetch("./", { cache: "no-store" })).text(), "text/html");
      await renew(fresh);
    }
    if (note) note.textContent = "";
  } catch {
    if (note) note.textContent = "the server does not answer; these are its last numbers";
  }
  window.setTimeout(look, 2000);
}

/** How to find what has the focus in the page that is to come; null if it is not in a section. */
function focusKept() {
  const active = document.activeElement;
  const section = active && active.closest("section[data-part]");
  const path = section && focusPath(active);
  return path && `section[data-part="${section.getAttribute("data-part")}"] ${path}`;
}

async function renew(fresh) {
  let focus = focusKept();
  const kept = data.tasks[state.task];
  const names = kept ? { task: kept.name, client: kept.clients[state.client], method: (kept.methods[state.method] || {}).id } : {};
  const open = [...document.querySelectorAll("details[open][data-fold]")].map((each) => each.getAttribute("data-fold"));
  const next = await unpack(fresh.getElementById("payload").textContent);
  const [x, y] = [window.scrollX, window.scrollY];
  data = next;
  for (const selector of ["header", "main", "footer"]) {
    const node = document.querySelector(selector);
    if (selector === "main") node.replaceChildren(...document.importNode(fresh.querySelector("main"), true).childNodes);
    else node.replaceChildren(...document.importNode(fresh.querySelector(selector), true).childNodes);
  }
  document.title = fresh.title;
  state.task = Math.max(0, data.tasks.findIndex((task) => task.name === names.task));
  const task = data.tasks[state.task];
  if (task) {
    if (!kept) state.choice = { ...task.usual };
    const client = names.client === undefined ? -1 : task.clients.indexOf(names.client);
    const method = task.methods.findIndex((each) => each.id === names.method);
    state.client = client < 0 ? null : client;
    state.method = method < 0 ? null : method;
    const placeNow = (i) => task.methods.findIndex((each) => each.id === kept.methods[i].id); // others may have come before it
    if (kept && focus) focus = focus.replace(/data-method="(\d+)"/, (_, i) => `data-method="${placeNow(i)}"`);
    drawAll();
  }
  for (const details of document.querySelectorAll("details[data-fold]")) {
    if (open.includes(details.getAttribute("data-fold"))) details.open = true;
  }
  const again = focus && [...document.querySelectorAll(focus)].find((node) => !node.closest("[hidden]"));
  if (again) again.focus({ preventScroll: true });
  window.scrollTo(x, y);
}

async function start() {
  data = await unpack(document.getElementById("payload").textContent);
  if (data.tasks.length) {
    recall();
    drawAll();
  }
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (data.tasks.length && window.innerWidth !== width) {
      width = window.innerWidth;
      draw();
    }
  });
  const folded = [];
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("article:not([hidden]) section[data-part=about] details:not([open])")) {
      folded.push(details);
      details.open = true;
    }
  });
  window.addEventListener("afterprint", () => folded.splice(0).forEach((details) => (details.open = false)));
  document.documentElement.setAttribute("data-ready", "");
  performance.mark("ready");
  if (data.live !== null) look();
}

if (typeof DecompressionStream === "undefined") {
  const words = "This browser is too old for choices and interaction; the tables and pictures below are complete.";
  document.getElementById("main").prepend(h("p", { class: "said plain" }, words));
} else {
  start();
}
