// Costs, tokens, runs and success over time, by agent, model, user or tag: a picture and a table, to click at.
import { button, flat, link, make, money, number, shown } from "./dom.js";
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
const HEIGHT = 240,
  LEFT = 84,
  BOTTOM = 26;
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
  for (const [name, value] of Object.entries(group)) if (typeof value === "number") sum[name] = (sum[name] || 0) + value;
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

const chart = (periods, series, measure, address, WIDTH) => {
  const [name, value, words] = MEASURES[measure];
  const isShare = measure === "success";
  const sums = periods.map((period) => series.map((each) => each.over.get(period)));
  const tops = sums.map((each) =>
    isShare
      ? Math.max(0, ...each.filter(Boolean).map(value))
      : each.reduce((sum, group) => sum + (group ? value(group) : 0), 0),
  );
  const most = isShare ? 1 : Math.max(...tops) || 1;
  const wide = (WIDTH - LEFT) / periods.length,
    high = HEIGHT - BOTTOM - 12;
  const y = (part) => 12 + high * (1 - part / most);
  const middle = (i) => LEFT + wide * (i + 0.5);
  const axis = [0, most / 2, most].map((part) => [
    svg("line", { x1: LEFT, x2: WIDTH, y1: y(part), y2: y(part), class: "axis" }),
    svg("text", { x: LEFT - 6, y: y(part) + 4, "text-anchor": "end" }, words(part)),
  ]);
  const every = Math.ceil(periods.length / ((WIDTH - LEFT) / 75));
  const labels = periods.map((period, i) =>
    i % every ? null : svg("text", { x: middle(i), y: HEIGHT - 6, "text-anchor": "middle" }, period.slice(2)),
  );
  const drawn = isShare
    ? series.map((each, s) => {
        const points = periods.flatMap((period, i) => {
          const group = each.over.get(period);
          return group ? [[middle(i), y(value(group)), group, period]] : [];
        });
        return [
          svg("polyline", { points: points.map(([x, at]) => `${x},${at}`).join(" "), class: `line color-${s}` }),
          points.map(([x, at, group, period]) =>
            mark("circle", { cx: x, cy: at, r: 4, class: `color-${s}` }, each, period, value(group)),
          ),
        ];
      })
    : periods.map((period, i) => {
        let below = 0;
        return series.map((each, s) => {
          const part = each.over.get(period) ? value(each.over.get(period)) : 0;
          if (!part) return null;
          const from = y(below + part),
            to = y(below);
          below += part;
          const bar = Math.min(wide * 0.72, 64);
          const shape = { x: middle(i) - bar / 2, width: bar, y: from, height: Math.max(1, to - from - 1) };
          return mark("rect", { ...shape, class: `color-${s}` }, each, period, part);
        });
      });
  // A click leads to the runs. For the keyboard, the table has the same links.
  function mark(tag, attributes, each, period, part) {
    const made = svg(tag, attributes, svg("title", {}, `${flat(each.name, 60)}, ${period}: ${words(part)}`));
    made.addEventListener("click", () => {
      location.hash = address(each, period);
    });
    return made;
  }
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" }, axis, labels, drawn);
  picture.setAttribute("aria-label", `${name} over time. The table below has the numbers.`);
  return picture;
};

export const costsPage = async (place, source, wanted) => {
  const { by = "agent", over = "day", since = "7d", measure = "cost", ...filters } = wanted;
  const time = since ? { since } : {};
  const found = await source.costs({ ...filters, ...time, by, over });
  const names = [...new Set(found.groups.map((group) => group.key))];
  const none = `no ${by}`;
  const groups = names
    .map((key) => {
      const own = found.groups.filter((group) => group.key === key);
      const over = new Map(own.map((group) => [group.period, group]));
      return { key, name: key || none, sum: sumOf(own), over, address: key ? { [by]: key } : null };
    })
    .sort((a, b) => b.sum.cost_usd - a.sum.cost_usd || b.sum.runs - a.sum.runs);
  const [, value, words] = MEASURES[measure] || MEASURES.cost;
  const ranked = [...groups].sort((a, b) => (measure === "success" ? b.sum.runs - a.sum.runs : value(b.sum) - value(a.sum)));
  const series = ranked.slice(0, ranked.length > SERIES + 1 ? SERIES : SERIES + 1);
  const rest = ranked.slice(series.length);
  if (rest.length) {
    const over = new Map();
    for (const each of rest)
      for (const [period, group] of each.over) over.set(period, add(over.get(period) || {}, group));
    series.push({ name: `${number(rest.length)} others`, over, address: null });
  }
  const periods = periodsOf(found.groups, over);
  const all = sumOf(groups.map((each) => each.sum));
  const runsOf = (each, period) =>
    addressOf({ ...filters, ...(each.address || {}), ...(period ? daysOf(period, over) : time), sort: "cost" });
  const go = (changes) => {
    const next = Object.entries({ by, over, since, measure, ...filters, ...changes });
    location.hash = `#/costs?${new URLSearchParams(next.flatMap(([name, each]) => [each].flat().map((one) => [name, one])))}`;
  };
  const tabs = (label, name, now, options) =>
    make(
      "div.tabs",
      { role: "group", "aria-label": label },
      options.map(([option, words]) =>
        button(words, () => go({ [name]: option }), { "aria-pressed": String(option === now) }),
      ),
    );
  const period = make(
    "select",
    { "aria-label": "Since" },
    SINCE.map(([option, words]) => make("option", { value: option, selected: option === since }, words)),
  );
  if (!SINCE.some(([option]) => option === since))
    period.append(make("option", { value: since, selected: true }, `since ${since}`));
  period.addEventListener("change", () =>
    go({ since: period.value, over: { "": "month", "90d": "week" }[period.value] || "day" }),
  );
  const capital = (word) => word[0].toUpperCase() + word.slice(1);
  const table = (caption, heads, rows) =>
    make(
      "div.box",
      { tabindex: "0", role: "region", "aria-label": caption },
      make(
        "table",
        {},
        make("caption.unseen", {}, caption),
        make("thead", {}, make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head)))),
        make("tbody", {}, rows),
      ),
    );
  const bar = (share) => {
    const inside = make("i");
    inside.style.width = `${100 * share}%`;
    return make("span.share", { "aria-hidden": "true" }, inside);
  };
  const totals = groups.map((each) => {
    const { sum } = each,
      share = all.cost_usd ? sum.cost_usd / all.cost_usd : 0;
    const name = make("bdi", {}, shown(flat(each.name, 80)));
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, each.address ? link(name, runsOf(each)) : make("span.quiet", {}, name)),
      [
        sum.unpriced === sum.runs ? "?" : `${sum.unpriced ? "at least " : ""}${money(sum.cost_usd)}`,
        [percent(share), bar(share)],
        number(sum.runs),
        percent(sum.succeeded / sum.runs),
        number(sum.calls),
        number(sum.input_tokens),
        number(sum.output_tokens),
        sum.unpriced ? "?" : money(sum.cost_usd / sum.runs),
      ].map((cell) => make("td", {}, cell)),
    );
  });
  place.replaceChildren(
    make("header.list-head", {}, make("h1", { tabindex: "-1" }, "Costs"), period),
    make(
      "div.cost-bar",
      {},
      tabs("By", "by", by, BY.map((each) => [each, capital(each)])),
      tabs("What is drawn", "measure", measure, Object.entries(MEASURES).map(([each, [words]]) => [each, words])),
      tabs("Sums for each", "over", over, ["day", "week", "month"].map((each) => [each, capital(each)])),
    ),
    ...(groups.length
      ? [
          make(
            "p.sums",
            {},
            make("strong", {}, money(all.cost_usd)),
            ` for ${number(all.runs)} runs, ${percent(all.succeeded / all.runs)} with success.`,
            by === "tag" || by === "model" ? make("span.quiet", {}, ` A run with two ${by}s counts for both.`) : "",
          ),
          make(
            "figure.chart",
            {},
            chart(periods, series, measure in MEASURES ? measure : "cost", runsOf, Math.max(320, place.clientWidth - 30)),
            make(
              "ul.legend",
              {},
              series.map((each, i) =>
                make("li", {}, make(`i.color-${i}`, { "aria-hidden": "true" }), make("bdi", {}, shown(flat(each.name, 40)))),
              ),
            ),
          ),
          table(
            `Sums by ${by}`,
            [capital(by), "USD", "Share", "Runs", "Success", "Calls", "Tokens in", "Out", "A run"],
            totals,
          ),
          make(
            "details.figures",
            {},
            make("summary", {}, "The numbers of the picture"),
            table(
              `${MEASURES[measure]?.[0] || "Costs"} by ${over}`,
              [capital(over), ...series.map((each) => make("bdi", {}, shown(flat(each.name, 30))))],
              periods.map((at) =>
                make(
                  "tr",
                  {},
                  make("th", { scope: "row" }, at),
                  series.map((each) => {
                    const group = each.over.get(at);
                    return make("td", {}, group ? link(words(value(group)), runsOf(each, at)) : "");
                  }),
                ),
              ),
            ),
          ),
        ]
      : [make("p.quiet", {}, "No run began in this time.")]),
  );
  document.title = "Costs · Plait";
};
