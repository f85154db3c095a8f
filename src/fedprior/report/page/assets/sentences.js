// What the numbers say, in the same sentences as the library writes where no script runs.

const MOST = 6;
const ALONE = "*"; // marks a difference that could be told if it were the only one
const ONLY_ALONE = "This interval excludes 0 on its own; after adjustment for the number of comparisons the difference cannot be told from 0.";

/** The sentences at a view: [{tone, parts: [[text, whether it is a name], ...]}, ...]. */
function sentencesOf(view) {
  const name = (i) => [view.lines[i].name, true];
  const said = [];
  const say = (tone, ...parts) => said.push({ tone, parts: parts.map((p) => (Array.isArray(p) ? p : [p, false])) });
  bestSentence(view, name, say);
  againstSentences(view, say);
  for (const group of view.equal) say("plain", "The same value for every client: ", ...listed(group, name, " and "), ".");
  seedSentences(view, name, say);
  roundSentence(view, name, say);
  if (view.few && view.choice.data === "own") {
    const verb = view.few === 1 ? "has" : "have";
    say("plain", `${view.few} of ${view.clients} clients ${verb} fewer than ${FEW} test samples: for these, one sample is worth more than 5 points.`);
  }
  if (view.lines.some((line) => line.apart && line.apart.low !== null)) {
    say("plain", "Intervals are over seeds, with the clients as they are: they do not say what other clients would show.");
  }
  return said;
}

function bestSentence(view, name, say) {
  const known = view.lines.filter((line) => line.number);
  if (!view.best.length) return view.lines.some((line) => line.infinite.length) ? undefined : say("plain", "There is no such number in these records.");
  const [others, several] = [known.length - view.best.length, view.best.length > 1];
  const value = valueText(view.lines[view.best[0]].number.mean, view.info) + (view.info.unit === "%" ? " %" : "");
  const names = listed(view.best, name, " and ");
  if (known.length === 1) {
    return say("plain", ...names, ` has ${view.info.words} ${value}, and there is nothing to compare it with.`);
  }
  const which = !others ? "the same" : view.info.higher ? "the highest" : "the lowest";
  const parts = [...names, ` ${several ? "have" : "has"} ${which} ${view.info.words}, ${value}.`];
  if (Math.max(...known.map((line) => line.number.seeds.length)) === 1) {
    parts.push(` With one seed there are no intervals: another seed may ${several ? "tell them apart" : "reverse this"}.`);
  } else {
    const them = several ? "all of them" : "it";
    if (view.ahead.length) parts.push(` Over the seeds that both have, ${several ? "one of them" : "it"} is worse than `, ...listed(view.ahead, name, " and "), ".");
    const begin = (word) => (view.pairs > 1 ? ` With ${view.pairs} pairs judged together, ${word.toLowerCase()}` : ` ${word}`);
    if (view.untold.length === others && others > MOST) parts.push(`${begin("The")} seeds cannot tell ${them} from any of the ${others} others.`);
    else if (view.untold.length) parts.push(`${begin("The")} seeds cannot tell ${them} from `, ...listed(view.untold, name, " or "), ".");
    if (others && view.beaten.length === others) parts.push(`${begin(several ? "They" : "It")} can be told from ${others === 1 ? "the other method" : `each of the ${others} others`}.`);
  }
  return say("plain", ...parts);
}

function againstSentences(view, say) {
  const compared = view.lines.filter((line) => line.apart && line.number);
  const gain = (line) => (view.info.higher ? 1 : -1) * line.apart.mean;
  const told = compared.filter((line) => line.adjusted !== null && line.adjusted < LEVEL);
  const open = compared.filter((line) => line.adjusted !== null && line.adjusted >= LEVEL);
  const without = compared.filter((line) => line.adjusted === null);
  const single = without.filter((line) => line.apart.seeds.length === 1);
  const agreeing = without.filter((line) => line.apart.seeds.length > 1);
  const tested = told.length + open.length;
  const together = `${tested > 1 ? ` (${tested} comparisons judged together)` : ""}; differences`;
  const unit = view.info.unit === "%" ? "points" : view.info.words;
  for (const [tone, before, after, lines] of [
    ["good", "Better than ", together, told.filter((line) => gain(line) > 0)],
    ["bad", "Worse than ", together, told.filter((line) => gain(line) <= 0)],
    ["plain", "Cannot be told apart from ", together, open],
    ["plain", "One seed says nothing about other seeds; differences from ", "", single],
    ["plain", "All seeds have the very same difference, so there is no interval; differences from ", "", agreeing],
  ]) {
    if (!lines.length) continue;
    const ordered = [...lines].sort((a, b) => (tone === "bad" ? 1 : -1) * (inOrder(gain(a)) - inOrder(gain(b))));
    const parts = [before, [view.lines[view.against].name, true], `${after} in ${unit}: `];
    ordered.slice(0, MOST).forEach((line, k) => {
      if (k) parts.push("; ");
      parts.push([line.name, true], ` ${differenceText(line, view.info)}`);
    });
    const rest = ordered.length - MOST;
    parts.push(rest > 0 ? `; and ${rest} more, in the table below.` : ".");
    if (ordered.slice(0, MOST).some(onlyAlone)) parts.push(` ${ALONE} ${ONLY_ALONE}`);
    say(tone, ...parts);
  }
}

/** Whether a difference could be told if it were the only one. */
function onlyAlone(line) {
  return line.adjusted !== null && line.adjusted >= LEVEL && line.apart.p < LEVEL;
}

function differenceText(line, info) {
  const { apart, counts } = line;
  const texts = [];
  if (apart.low !== null) texts.push(`95 % interval ${valueText(apart.low, info, true)} to ${valueText(apart.high, info, true)}`);
  if (counts) {
    const clients = counts.wins + counts.ties + counts.losses;
    texts.push(`better for ${counts.wins} of ${clients} clients, worse for ${counts.losses}`);
  }
  return valueText(apart.mean, info, true) + (onlyAlone(line) ? ALONE : "") + (texts.length ? ` (${texts.join("; ")})` : "");
}

function seedSentences(view, name, say) {
  const known = view.lines.filter((line) => line.number);
  if (new Set(known.map((line) => line.number.seeds.join())).size > 1) {
    const parts = known.flatMap((line, k) => [...(k ? [", "] : []), name(line.i), ` ${line.number.seeds.length}`]);
    say("plain", "Seeds differ (", ...parts, "): differences are over those that both sides have.");
  }
  const lost = known.filter((line) => !line.apart && line.i !== view.against).map((line) => line.i);
  if (lost.length && view.lines[view.against].number) {
    say("plain", "No seed in common with the reference: ", ...listed(lost, name, " and "), ".");
  }
  const missing = view.lines.filter((line) => !line.number && !line.infinite.length).map((line) => line.i);
  if (missing.length) say("plain", "Not measured for: ", ...listed(missing, name, " and "), ".");
  const infinite = view.lines.filter((line) => line.infinite.length);
  if (infinite.length) {
    const parts = infinite.slice(0, MOST).flatMap((line, k) => [...(k ? [", "] : []), name(line.i), infiniteSeeds(line)]);
    say("plain", "Infinite, and so not compared: ", ...parts, `${infinite.length > MOST ? ` and ${infinite.length - MOST} more` : ""}.`);
  }
  const other = known.filter((line) => line.cell.model !== view.choice.model).map((line) => line.i);
  if (other.length) {
    say("plain", "Without a global model, so that the personal ones stand in: ", ...listed(other, name, " and "), ".");
  }
}

/** With which seeds a method is infinite, in parentheses. */
function infiniteSeeds(line) {
  const count = line.infinite.length;
  return count > 1 && count === line.cell.seeds.length ? " (all seeds)" : ` (${count === 1 ? "seed" : "seeds"} ${line.infinite.join(", ")})`;
}

/** Where some have done fewer rounds than others: they may not be finished, or have spent their budget. */
function roundSentence(view, name, say) {
  const known = view.lines.filter((line) => line.number);
  if (!["last", "last10"].includes(view.choice.round) || new Set(known.flatMap((line) => line.cell.ends)).size < 2) return;
  const told = ([first, ...others]) => ` ${first}${others.length ? ` to ${others[others.length - 1]}` : ""}`;
  say("plain", "Rounds differ (", ...known.flatMap((line, k) => [...(k ? [", "] : []), name(line.i), told(line.cell.ends)]), ").");
}

function listed(methods, name, last) {
  if (methods.length > MOST) {
    return [...listed(methods.slice(0, MOST), name, ", "), `${last}${methods.length - MOST} more`];
  }
  return methods.flatMap((i, k) => [...(k ? [k === methods.length - 1 ? last : ", "] : []), name(i)]);
}
