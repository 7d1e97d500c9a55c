// Costs, tokens, runs and success over time, by agent, model, user or tag: a picture and a table, to click at.
import { select } from "./acts.js";
import { flat, many, number, shown } from "./dom.js";
import { html } from "./html.js";
import { addressOf, dollarsOf, priceOf } from "./runs.js";
import { keep, kept } from "./theme.js";

const SVG = "http://www.w3.org/2000/svg";
const BY = ["agent", "model", "user", "tag"];
const DAYS = [7, 30, 90].map((days) => [`${days}d`, `the last ${days} days`]);
const SINCE = [["1d", "today"], ...DAYS, ["", "all time"]];
const SERIES = 6;
const [HEIGHT, LEFT, BOTTOM] = [240, 84, 26];
const SUCCESS = "answered, and neither graded as no success nor rated as bad";
const percent = (part) =>
  part > 0 && part < 0.01 ? "<1 %" : part < 1 && part > 0.99 ? ">99 %" : `${Math.round(100 * part)} %`;
// What is drawn: its name, the sum of a group, and how a sum reads.
const MEASURES = {
  cost: ["Costs", (group) => group.cost_usd, dollarsOf],
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
const sumOf = (groups) => {
  const sum = {};
  for (const [name, value] of groups.flatMap(Object.entries))
    if (typeof value === "number") sum[name] = (sum[name] || 0) + value;
  return sum;
};

// The periods between two days, each with its first and its last day; of very many, those that are known to have runs.
const periodsOf = (from, to, over, known) => {
  const start = new Date(`${from}T00:00Z`);
  const back = { day: 0, week: (start.getUTCDay() + 6) % 7, month: start.getUTCDate() - 1 }[over];
  const [days, months] = { day: [1, 0], week: [7, 0], month: [0, 1] }[over];
  const dayOf = (i, before = 0) => {
    const day = start.getUTCDate() - back + i * days - before;
    return new Date(Date.UTC(start.getUTCFullYear(), start.getUTCMonth() + i * months, day)).toISOString().slice(0, 10);
  };
  const all = [];
  for (let i = 0; dayOf(i) <= to && i < 10_000; i++)
    all.push({ name: dayOf(i).slice(0, months ? 7 : 10), since: i ? dayOf(i) : from, until: dayOf(i + 1, 1) });
  return all.filter(({ name }) => all.length < 400 || known.includes(name));
};

// A bar or a dot in the picture. A click leads to the runs. For the keyboard, the table has the same links.
const mark = (tag, attributes, words, address) => {
  const made = svg(tag, { ...attributes, "data-to": address || "" }, svg("title", {}, words));
  if (address) made.addEventListener("click", () => location.assign(address));
  return made;
};

const chart = (periods, series, measure, address, width, height = HEIGHT) => {
  const [name, value, words] = MEASURES[measure];
  const isShare = measure === "success";
  const sums = periods.map((period) => series.map((each) => each.over.get(period.name)).filter(Boolean).map(value));
  const most = isShare ? 1 : Math.max(...sums.map((each) => each.reduce((sum, part) => sum + part, 0))) || 1;
  const wide = (width - LEFT) / periods.length;
  const y = (part) => 12 + (height - BOTTOM - 12) * (1 - part / most);
  const middle = (i) => LEFT + wide * (i + 0.5);
  const axis = [0, most / 2, most].map((part) => [
    svg("line", { x1: LEFT, x2: width, y1: y(part), y2: y(part), class: "axis" }),
    svg("text", { x: LEFT - 6, y: y(part) + 4, "text-anchor": "end" }, words(part)),
  ]);
  const every = Math.ceil(periods.length / ((width - LEFT) / 75));
  const labels = periods.map((period, i) =>
    i % every ? null : svg("text", { x: middle(i), y: height - 6, "text-anchor": "middle" }, period.name.slice(2)),
  );
  const below = periods.map(() => 0);
  const drawn = series.map((each, s) => {
    const points = periods.flatMap((period, i) => {
      const group = each.over.get(period.name);
      return group && (isShare || value(group)) ? [{ i, part: value(group), period }] : [];
    });
    const shapes = points.map(({ i, part, period }) => {
      const about = [`${flat(each.name, 60)}, ${period.name}: ${words(part)}`, address(each, period)];
      const color = { class: each.color || `color-${s}` };
      if (isShare) return mark("circle", { ...color, cx: middle(i), cy: y(part), r: 4 }, ...about);
      const [bar, to] = [Math.min(wide * 0.72, 64), y(below[i])];
      below[i] += part;
      const [from, x] = [y(below[i]), middle(i) - bar / 2];
      return mark("rect", { ...color, x, width: bar, y: from, height: Math.max(1, to - from - 1) }, ...about);
    });
    const line = points.map(({ i, part }) => `${middle(i)},${y(part)}`).join(" ");
    return [isShare && svg("polyline", { points: line, class: `line ${each.color || `color-${s}`}` }), shapes];
  });
  const label = `${name} over time. The table below has the numbers.`;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, axis, labels, drawn);
};

// A table whose heads sort it. A row has pairs of what it is sorted by and what is shown.
const tableOf = (caption, heads, rows, first = 0) => {
  let [now, sign] = [null, 1];
  const sort = (by) => {
    sign = by === now ? -sign : by ? -1 : 1;
    now = by;
    headCells.forEach((head, i) =>
      head.setAttribute("aria-sort", i !== by ? "none" : sign < 0 ? "descending" : "ascending"),
    );
    const order = ([a], [b]) => sign * (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0);
    body.replaceChildren(...lines.sort(order).map(([, line]) => line));
  };
  const headCells = heads.map(([head, title], i) => html`<th scope="col" title=${title}>
    <button type="button" onclick=${() => sort(i)}>${head}</button></th>`);
  const lines = rows.map((row) => {
    const [name, ...cells] = row.map(([, content]) => content);
    return [row.map(([value]) => value), html`<tr><th scope="row">${name}</th>
      ${cells.map((cell) => html`<td>${cell}</td>`)}</tr>`];
  });
  const body = html`<tbody></tbody>`;
  sort(first);
  return html`<div class="box" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="unseen">${caption}</caption><thead><tr>${headCells}</tr></thead>${body}</table></div>`;
};

const shareOf = (share) => {
  const bar = html`<span class="share" aria-hidden="true"><i></i></span>`;
  bar.firstChild.style.width = `${100 * share}%`;
  return [percent(share), bar];
};

export const costsPage = async (place, source, wanted) => {
  const remembered = Object.fromEntries(new URLSearchParams(kept("plait-costs", "")));
  const { by, over, since, measure: asked, ...filters } = {
    ...{ by: "agent", over: "day", since: "7d", measure: "cost", ...remembered },
    ...wanted,
  };
  const chosen = Object.hasOwn(MEASURES, asked) ? asked : "cost";
  const [, days] = /^(\d{1,4})d$/.exec(since) || [];
  const found = await source.costs({ ...filters, ...(days ? { days } : { since }), by, over });
  keep("plait-costs", String(new URLSearchParams({ by, over, since, measure: chosen })));
  const all = sumOf(found.groups);
  // A picture without a cost would be empty.
  const isFree = chosen === "cost" && all.runs > 0 && !all.cost_usd;
  const measure = isFree ? "tokens" : chosen;
  const [what, value, words] = MEASURES[measure];
  const rank = measure === "success" ? (group) => group.runs : value;
  const sumsOf = (list) => new Map([...Map.groupBy(list, (group) => group.period)].map(([at, own]) => [at, sumOf(own)]));
  const groups = [...Map.groupBy(found.groups, (group) => group.key)]
    .map(([key, own]) => ({ name: key || `no ${by}`, sum: sumOf(own), over: sumsOf(own), filter: key && { [by]: key } }))
    .sort((a, b) => rank(b.sum) - rank(a.sum));
  const series = groups.slice(0, SERIES);
  const isTwice = by === "tag" || by === "model";
  const whole = { name: "all", over: sumsOf(found.groups), filter: isTwice ? null : {}, color: "color-all" };
  const known = [...whole.over.keys()].sort();
  const from = /^[\d-]{10}$/.test(found.since) ? found.since : known[0]?.padEnd(10, "-01");
  const periods = from ? periodsOf(from, found.today, over, known) : [];
  const runsOf = (each, { since, until = filters.until } = found) =>
    each.filter && addressOf({ ...filters, ...each.filter, since: since ?? "", until, sort: "cost" });
  const go = (changes) => {
    const next = Object.entries({ by, over, since, measure: chosen, ...filters, ...changes });
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
  const nameOf = (each, most) => html`<bdi>${shown(flat(each.name, most))}</bdi>`;
  const linked = (each, content, period) => {
    const address = runsOf(each, period);
    return address ? html`<a href=${address}>${content}</a>` : html`<span class="quiet">${content}</span>`;
  };
  const totals = groups.map((each) => {
    const { sum } = each;
    const [share, success] = [all.cost_usd ? sum.cost_usd / all.cost_usd : 0, sum.succeeded / sum.runs];
    const counts = (...names) => names.map((name) => [sum[name], number(sum[name])]);
    return [
      [each.name.toLowerCase(), linked(each, nameOf(each, 80))],
      [sum.cost_usd, priceOf(sum, "?")],
      [share, shareOf(share)],
      ...counts("runs", "answered"),
      [success, percent(success)],
      ...counts("failed", "stopped", "calls", "input_tokens", "output_tokens"),
      sum.unpriced ? [-1, "?"] : [sum.cost_usd / sum.runs, dollarsOf(sum.cost_usd / sum.runs)],
    ];
  });
  const parts = groups.length > SERIES ? [whole, ...series] : series;
  const figures = periods.map((at) => [
    [at.name, at.name],
    ...parts.map((each) => {
      const group = each.over.get(at.name);
      return group ? [value(group), linked(each, words(value(group)), at)] : [-1, null];
    }),
  ]);
  const legend = series.map((each, i) =>
    html`<li><i class="color-${i}" aria-hidden="true"></i>${linked(each, nameOf(each, 40))}</li>`);
  const width = Math.max(320, place.clientWidth - 30);
  const most = measure === "success" ? "runs" : what.toLowerCase();
  const draw = (drawn, height) => chart(periods, drawn, measure, runsOf, width, height);
  const heads = [[capital(by)], ["USD"], ["Share"], ["Runs"], ["Answered"], ["Success", SUCCESS], ["Failed"], ["Stopped"]];
  heads.push(["Calls"], ["Tokens in"], ["Out"], ["A run", "USD of a run on average"]);
  place.replaceChildren(html`<header class="list-head"><h1 tabindex="-1">Costs</h1>${period}</header>
    <div class="cost-bar">${tabs("By", "by", by, capitals(BY))}
      ${tabs("What is drawn", "measure", chosen, Object.entries(MEASURES).map(([each, [name]]) => [each, name]))}
      ${tabs("Sums for each", "over", over, capitals(["day", "week", "month"]))}</div>
    ${!groups.length && html`<p class="quiet">No run began in this time.</p>`}`);
  if (groups.length)
    place.append(html`<p class="sums"><strong>${priceOf(all, "Price not known")}</strong> for ${many(all.runs, "run")},
        ${percent(all.succeeded / all.runs)} with success <span class="quiet">(${SUCCESS}).
        ${isTwice && `A run with two ${by}s counts for both.`}</span></p>
      ${isFree && html`<p class="quiet">${all.unpriced ? "No price is known of these runs" : "These runs cost nothing"}:
        the picture shows their tokens.</p>`}
      <figure class="chart">${groups.length > SERIES && [html`<p class="quiet">All ${number(groups.length)}</p>`,
        draw([whole], HEIGHT / 2), html`<p class="quiet">The ${SERIES} with the most ${most}, together
          ${percent(rank(sumOf(series.map((each) => each.sum))) / (rank(all) || 1))}</p>`]}
        ${draw(series)}<ul class="legend">${legend}</ul></figure>
      ${tableOf(`Sums by ${by}`, heads, totals, 1)}
      <details class="figures"><summary>The numbers of the picture</summary>
        ${tableOf(`${what} by ${over}`, [[capital(over)], ...parts.map((each) => [nameOf(each, 40)])], figures)}</details>`);
  document.title = "Costs · Plait";
};
