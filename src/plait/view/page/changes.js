// The changes that were run over runs: how far each is, and what it made better and worse.
import { button, chip, duration, flat, link, make, many, money, number, problem, shown, when } from "./dom.js";
import { improveTabs, listPage } from "./improve.js";

const SIGNS = { better: ["▲", "better"], worse: ["▼", "worse"], same: ["=", "same"] };
const NAMES = { tokens: "Tokens", cost: "USD", seconds: "Time", steps: "Steps" };
const format = (name, value) =>
  name === "cost" ? money(value).replace(" USD", "") : name === "seconds" ? duration(value) : number(value);
const percent = (value) => `${value > 1 ? "+" : ""}${Math.round((value - 1) * 100)} %`;

// A table of sums before and after, with the change: also that of two runs side by side.
export const sumsTable = (rows, [before, after] = ["Before", "After"]) =>
  make(
    "div.box.took-table",
    {},
    make(
      "table",
      {},
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ["", before, after, "Change"].map((each) => make("th", { scope: "col" }, each)),
        ),
      ),
      make(
        "tbody",
        {},
        rows.map(([name, a, b, more = ""]) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, NAMES[name] || name),
            [a, b].map((each) => make("td", {}, each === null || each === undefined ? "?" : format(name, each))),
            make("td", {}, a && typeof b === "number" ? percent(b / a) : "", more),
          ),
        ),
      ),
    ),
  );

const rowOf = (each) => {
  if (each.missing) return make("tr", {}, make("td", { colspan: 5 }, shown(each.missing)));
  const [before, after] = [each.before, each.after];
  const sides = after && `#/sides/${encodeURIComponent(each.run)}/${encodeURIComponent(after.run)}`;
  const [sign, words] = SIGNS[each.sign] || ["", ""];
  const end = (run, grade) =>
    run
      ? chip({ ...run, rating: "", grade: grade && { mark: flat(grade[0], 20), success: grade[1] } })
      : make("span", {}, shown(each.problem || "not begun"));
  const used = (name) => {
    const [a, b] = each.used?.[name] || [null, null];
    return make("td", { "data-unit": NAMES[name] }, a && b !== null ? percent(b / a) : "");
  };
  return make(
    `tr.is-${each.sign || "open"}`,
    {},
    make(
      "th",
      { scope: "row" },
      link(make("bdi", {}, shown(flat(before.question, 120))), sides || `#/runs/${encodeURIComponent(each.run)}`),
    ),
    make("td", {}, end(before, each.grades?.[0])),
    make("td", {}, end(after, each.grades?.[1])),
    make("td.sign", {}, make("span", { "aria-hidden": "true" }, sign), ` ${words}`),
    used("tokens"),
    used("cost"),
  );
};

export const changesPage = async (place, source, name) => {
  if (!name) {
    const about = "A change of an agent that was run over many runs. Select runs in the list to begin one.";
    const words = (each) => [many(each.runs, "run"), " · ", when(each.started), each.by ? ` · ${flat(each.by)}` : ""];
    return listPage(
      place,
      "changes",
      about,
      (await source.changes()).map((each) => [each.name, ...words(each)]),
    );
  }
  let timer = null,
    hasLeft = false,
    last = "";
  const draw = (found) => {
    const ended = found.rows.filter((each) => each.sign).length;
    const waits = found.rows.filter((each) => each.after?.status === "waiting").length;
    const summary = found.summary;
    const acts = make("div.buttons");
    const turn = (words, how) =>
      acts.append(
        button(words, async (event) => {
          event.target.disabled = true;
          await source.turnChange(name, how).catch((error) => acts.append(problem(error)));
          read();
        }),
      );
    if (found.is_active) turn("Cancel", "cancel");
    else if (ended + waits < found.rows.length) turn("Continue", "resume");
    const said = JSON.stringify(found.change, null, 1);
    const states = [
      `${ended} of ${many(found.rows.length, "run")} done`,
      waits ? `${waits} wait for approval` : "",
      found.is_cancelled ? "cancelled" : "",
    ];
    place.replaceChildren(
      make(
        "header.run-head",
        {},
        improveTabs("changes"),
        make("h1", { tabindex: "-1" }, shown(`Change of ${Object.keys(found.change).join(", ")}`)),
        make(
          "p.quiet",
          {},
          make("code", {}, shown(name)),
          " · ",
          when(found.started),
          found.by ? ` · ${flat(found.by)}` : "",
        ),
        make("p", { role: "status" }, states.filter(Boolean).join(", ")),
        make("progress", { max: found.rows.length, value: ended, "aria-label": "Runs that are done" }),
        acts,
        make("details", {}, make("summary", {}, "What was changed"), make("pre.exact", {}, shown(said))),
      ),
      summary
        ? make(
            "section",
            {},
            make("h2", {}, "Better or worse"),
            make("p", {}, make("strong", {}, shown(summary.word))),
            make(
              "p.quiet",
              {},
              `Success: ${Math.round(summary.before * 100)} % before, ${Math.round(summary.after * 100)} % after, on ${many(summary.questions, "question")}. `,
              summary.graded === summary.pairs
                ? "Each answer is graded."
                : `${summary.graded} of ${summary.pairs} pairs are graded; of the others a run counts as a success if it answered.`,
            ),
            sumsTable(
              Object.entries(summary.sums)
                .filter(([, each]) => each)
                .map(([key, each]) => [
                  key,
                  each.before,
                  each.after,
                  each.interval ? make("small", {}, ` (${each.interval.map(percent).join(" to ")})`) : "",
                ]),
            ),
          )
        : "",
      make(
        "div.box",
        { tabindex: "0", role: "region", "aria-label": "The runs and their forks" },
        make(
          "table.pairs",
          {},
          make(
            "thead",
            {},
            make(
              "tr",
              {},
              ["Question", "Before", "After", "", "Tokens", "USD"].map((each) => make("th", { scope: "col" }, each)),
            ),
          ),
          make("tbody", {}, found.rows.map(rowOf)),
        ),
      ),
    );
  };
  const read = async () => {
    clearTimeout(timer);
    const found = await source.change(name);
    if (hasLeft) return;
    if (JSON.stringify(found) !== last) draw(found);
    last = JSON.stringify(found);
    if (found.is_active || found.rows.some((each) => ["running", "waiting"].includes(each.after?.status)))
      timer = setTimeout(() => read().catch(() => {}), 1500);
  };
  await read();
  document.title = `${name} · Plait`;
  return {
    leave: () => {
      hasLeft = true;
      clearTimeout(timer);
    },
  };
};
