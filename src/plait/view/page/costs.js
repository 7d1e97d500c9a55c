// Costs, tokens, runs and success over time, by agent, model, user or tag: a picture and a table, to click at.
import { select } from "./acts.js";
import { flat, money, number, shown } from "./dom.js";
import { html } from "./html.js";
import { addressOf } from "./runs.js";

const SVG = "http://www.w3.org/2000/svg";
const BY = ["agent", "model", "user", "tag"];
const SINCE = [
  ["1d", "the last day"],
  ["7d", "the last 7 days"],
  ["30d", "the last 30 days"],
  ["90d", "the last 90 days"],
  ["", "all time"],
];
const SERIES = 6;
const [HEIGHT, LEFT, BOTTOM] = [240, 84, 26];
const percent = (part) => `${Math.round(100 * part)} %`;
// What is drawn: its name, the sum of a group, and how a sum reads.
const MEASURES = {
  cost: ["Costs", (group) => group.cost_usd, money],
  tokens: ["Tokens", (group) => group.input_tokens + group.output_tokens, number],
  runs: ["Runs", (group) => group.runs, number],
  success: ["Success", (group) => group.succeeded / group.runs, percent],
};

const svg = (tag, attributes = {}, ...inside) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside.flat(Infinity).filter(Boolean));
  return made;
};
const add = (sum, group) => {
  for (const [name, value] of Object.entries(group))
    if (typeof value === "number") sum[name] = (sum[name] || 0) + value;
  return sum;
};
const sumOf = (groups) => groups.reduce(add, {});

// The first days of all periods from the first to the last that has a run, also of those that have none.
const periodsOf = (groups, over) => {
  const known = [...new Set(groups.map((group) => group.period))].sort();
  const all = [];
  for (let at = known[0]; at && at <= known.at(-1) && all.length < 400; ) {
    all.push(at);
    const [year, month, day = 1] = at.split("-").map(Number);
    const next = new Date(Date.UTC(year, month - 1 + (over === "month" ? 1 : 0), over === "month" ? 1 : day));
    if (over !== "month") next.setUTCDate(next.getUTCDate() + (over === "week" ? 7 : 1));
    at = next.toISOString().slice(0, over === "month" ? 7 : 10);
  }
  return all.length < 400 ? all : known;
};
// The first and the last day of a period, as filters of the runs.
const daysOf = (period, over) => {
  const from = period.length === 7 ? `${period}-01` : period;
  const end = new Date(`${from}T00:00:00Z`);
  if (over === "month") end.setUTCMonth(end.getUTCMonth() + 1, 0);
  else if (over === "week") end.setUTCDate(end.getUTCDate() + 6);
  return { since: from, until: end.toISOString().slice(0, 10) };
};

// A bar or a dot in the picture. A click leads to the runs. For the keyboard, the table has the same links.
const mark = (tag, attributes, words, address) => {
  const made = svg(tag, attributes, svg("title", {}, words));
  made.addEventListener("click", () => {
    location.hash = address;
  });
  return made;
};

const chart = (periods, series, measure, address, width) => {
  const [name, value, words] = MEASURES[measure];
  const isShare = measure === "success";
  const sums = periods.map((period) => series.map((each) => each.over.get(period)).filter(Boolean).map(value));
  const most = isShare ? 1 : Math.max(...sums.map((each) => each.reduce((sum, part) => sum + part, 0))) || 1;
  const wide = (width - LEFT) / periods.length;
  const y = (part) => 12 + (HEIGHT - BOTTOM - 12) * (1 - part / most);
  const middle = (i) => LEFT + wide * (i + 0.5);
  const axis = [0, most / 2, most].map((part) => [
    svg("line", { x1: LEFT, x2: width, y1: y(part), y2: y(part), class: "axis" }),
    svg("text", { x: LEFT - 6, y: y(part) + 4, "text-anchor": "end" }, words(part)),
  ]);
  const every = Math.ceil(periods.length / ((width - LEFT) / 75));
  const labels = periods.map((period, i) =>
    i % every ? null : svg("text", { x: middle(i), y: HEIGHT - 6, "text-anchor": "middle" }, period.slice(2)),
  );
  const below = periods.map(() => 0);
  const drawn = series.map((each, s) => {
    const points = periods.flatMap((period, i) => {
      const group = each.over.get(period);
      return group && (isShare || value(group)) ? [{ i, part: value(group), period }] : [];
    });
    const shapes = points.map(({ i, part, period }) => {
      const about = [`${flat(each.name, 60)}, ${period}: ${words(part)}`, address(each, period)];
      const color = { class: `color-${s}` };
      if (isShare) return mark("circle", { ...color, cx: middle(i), cy: y(part), r: 4 }, ...about);
      const [bar, to] = [Math.min(wide * 0.72, 64), y(below[i])];
      below[i] += part;
      const [from, height] = [y(below[i]), Math.max(1, to - y(below[i]) - 1)];
      return mark("rect", { ...color, x: middle(i) - bar / 2, width: bar, y: from, height }, ...about);
    });
    const line = points.map(({ i, part }) => `${middle(i)},${y(part)}`).join(" ");
    return [isShare && svg("polyline", { points: line, class: `line color-${s}` }), shapes];
  });
  const label = `${name} over time. The table below has the numbers.`;
  return svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label }, axis, labels, drawn);
};

const tableOf = (caption, heads, rows) =>
  html`<div class="box" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
    <tbody>${rows.map(([name, ...cells]) => html`<tr><th scope="row">${name}</th>
      ${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody></table></div>`;

const shareOf = (share) => {
  const bar = html`<span class="share" aria-hidden="true"><i></i></span>`;
  bar.firstChild.style.width = `${100 * share}%`;
  return [percent(share), bar];
};

const priceOf = (sum, none) =>
  sum.unpriced === sum.runs ? none : `${sum.unpriced ? "at least " : ""}${money(sum.cost_usd)}`;

export const costsPage = async (place, source, wanted) => {
  const { by = "agent", over = "day", since = "7d", measure: asked = "cost", ...filters } = wanted;
  const measure = Object.hasOwn(MEASURES, asked) ? asked : "cost";
  const time = since ? { since } : {};
  const found = await source.costs({ ...filters, ...time, by, over });
  const groups = [...new Set(found.groups.map((group) => group.key))]
    .map((key) => {
      const own = found.groups.filter((group) => group.key === key);
      const sums = new Map(own.map((group) => [group.period, group]));
      return { name: key || `no ${by}`, sum: sumOf(own), over: sums, filter: key ? { [by]: key } : null };
    })
    .sort((a, b) => b.sum.cost_usd - a.sum.cost_usd || b.sum.runs - a.sum.runs);
  const [what, value, words] = MEASURES[measure];
  const rank = measure === "success" ? (group) => group.runs : value;
  const ranked = [...groups].sort((a, b) => rank(b.sum) - rank(a.sum));
  const series = ranked.slice(0, ranked.length > SERIES + 1 ? SERIES : SERIES + 1);
  const rest = ranked.slice(series.length);
  if (rest.length) {
    const sums = new Map();
    for (const each of rest)
      for (const [period, group] of each.over) sums.set(period, add(sums.get(period) || {}, group));
    series.push({ name: `${number(rest.length)} others`, over: sums, filter: null });
  }
  const periods = periodsOf(found.groups, over);
  const all = sumOf(groups.map((each) => each.sum));
  const runsOf = (each, period) =>
    addressOf({ ...filters, ...each.filter, ...(period ? daysOf(period, over) : time), sort: "cost" });
  const go = (changes) => {
    const next = Object.entries({ by, over, since, measure, ...filters, ...changes });
    const values = next.flatMap(([name, each]) => [each].flat().map((one) => [name, one]));
    location.hash = `#/costs?${new URLSearchParams(values)}`;
  };
  const tabs = (label, name, now, options) =>
    html`<div class="tabs" role="group" aria-label=${label}>${options.map(([option, words]) => {
      const choose = () => go({ [name]: option });
      return html`<button type="button" onclick=${choose} aria-pressed=${String(option === now)}>${words}</button>`;
    })}</div>`;
  const capital = (word) => word[0].toUpperCase() + word.slice(1);
  const capitals = (words) => words.map((each) => [each, capital(each)]);
  const choices = SINCE.some(([option]) => option === since) ? SINCE : [...SINCE, [since, `since ${since}`]];
  const period = select("since", choices, since);
  period.setAttribute("aria-label", "Since");
  period.addEventListener("change", () =>
    go({ since: period.value, over: { "": "month", "90d": "week" }[period.value] || "day" }),
  );
  const totals = groups.map((each) => {
    const { sum } = each;
    const name = html`<bdi>${shown(flat(each.name, 80))}</bdi>`;
    return [
      each.filter ? html`<a href=${runsOf(each)}>${name}</a>` : html`<span class="quiet">${name}</span>`,
      priceOf(sum, "?"),
      shareOf(all.cost_usd ? sum.cost_usd / all.cost_usd : 0),
      ...[number(sum.runs), percent(sum.succeeded / sum.runs), number(sum.calls)],
      ...[number(sum.input_tokens), number(sum.output_tokens)],
      sum.unpriced ? "?" : money(sum.cost_usd / sum.runs),
    ];
  });
  const figures = periods.map((at) => [
    at,
    ...series.map((each) => {
      const group = each.over.get(at);
      return group && html`<a href=${runsOf(each, at)}>${words(value(group))}</a>`;
    }),
  ]);
  const names = series.map((each) => html`<bdi>${shown(flat(each.name, 40))}</bdi>`);
  const color = (i) => html`<i class="color-${i}" aria-hidden="true"></i>`;
  const legend = names.map((name, i) => html`<li>${color(i)}${name.cloneNode(true)}</li>`);
  const heads = [capital(by), "USD", "Share", "Runs", "Success", "Calls", "Tokens in", "Out", "A run"];
  const isTwice = by === "tag" || by === "model";
  place.replaceChildren(html`<header class="list-head"><h1 tabindex="-1">Costs</h1>${period}</header>
    <div class="cost-bar">${tabs("By", "by", by, capitals(BY))}
      ${tabs("What is drawn", "measure", measure, Object.entries(MEASURES).map(([each, [name]]) => [each, name]))}
      ${tabs("Sums for each", "over", over, capitals(["day", "week", "month"]))}</div>
    ${!groups.length && html`<p class="quiet">No run began in this time.</p>`}`);
  if (groups.length)
    place.append(html`<p class="sums"><strong>${priceOf(all, "Price not known")}</strong> for ${number(all.runs)} runs,
        ${percent(all.succeeded / all.runs)} with success.
        ${isTwice && html`<span class="quiet">A run with two ${by}s counts for both.</span>`}</p>
      <figure class="chart">${chart(periods, series, measure, runsOf, Math.max(320, place.clientWidth - 30))}
        <ul class="legend">${legend}</ul></figure>
      ${tableOf(`Sums by ${by}`, heads, totals)}
      <details class="figures"><summary>The numbers of the picture</summary>
        ${tableOf(`${what} by ${over}`, [capital(over), ...names], figures)}</details>`);
  document.title = "Costs · Plait";
};
