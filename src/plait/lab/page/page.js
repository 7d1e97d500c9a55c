"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const runs = new Map();
  for (const run of data.runs) {
    const at = `${run.t},${run.c}`;
    runs.set(at, [...(runs.get(at) || []), run]);
  }

  // Text from models, tools and tasks becomes text nodes, never markup.
  const make = (tag, className, ...inside) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    made.append(...inside.filter((each) => each !== null));
    return made;
  };
  const number = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 2 });
  const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
  const usd = (value) => (value === null ? "price not known" : `${Number(value.toPrecision(4))} USD`);

  // -- what is pointed at, in words

  const tip = $("tip");
  const hide = () => {
    tip.hidden = true;
  };
  const show = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const room = tip.getBoundingClientRect();
    const left = Math.max(8, Math.min(x + 14, innerWidth - room.width - 8));
    const below = y + 18 + room.height < innerHeight - 4;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? y + 18 : Math.max(4, y - room.height - 12)}px`;
  };
  addEventListener("scroll", hide, { passive: true, capture: true });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });

  // -- pictures

  const views = new Map();
  const tooltip = (_, event, __, value) => (value ? show(String(value), event.clientX, event.clientY) : hide());
  const draw = async (plot) => {
    views.get(plot)?.finalize();
    plot.replaceChildren();
    try {
      views.set(plot, await window.drawPicture(plot, JSON.parse($(plot.dataset.spec).textContent), tooltip));
      plot.dataset.drawn = String(Math.max(160, plot.clientWidth));
    } catch (error) {
      plot.textContent = "This picture could not be drawn.";
      console.error(error);
    }
  };
  const plots = [...document.querySelectorAll(".plot")];
  const drawAll = async (force) => {
    for (const plot of plots) {
      if (force || plot.dataset.drawn !== String(Math.max(160, plot.clientWidth))) await draw(plot);
    }
    document.documentElement.dataset.drawn = "all";
  };
  let drawing = Promise.resolve();
  const again = (force) => {
    delete document.documentElement.dataset.drawn;
    drawing = drawing.then(() => drawAll(force));
  };
  let soon;
  addEventListener("resize", () => {
    clearTimeout(soon);
    soon = setTimeout(() => again(false), 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => again(true));
  again(true);

  // -- the grid

  const grid = $("grid");
  const buttons = grid ? [...grid.querySelectorAll("button.cell")] : [];
  const across = data.contenders.length;
  const of = (button) => ({
    task: data.tasks[button.dataset.t],
    contender: data.contenders[button.dataset.c],
    runs: runs.get(`${button.dataset.t},${button.dataset.c}`) || [],
  });
  const told = (run, task) => {
    const words = `${data.repeat > 1 ? `${run.r + 1}: ` : ""}${data.outcomes[run.outcome]}`;
    const answer = run.answer === null ? run.reason : run.answer;
    const short = answer.length > 300 ? `${answer.slice(0, 300)}…` : answer;
    const told = `${run.answer === null ? "said why" : "answer"}: ${short || "nothing"}`;
    return `${words}\n  ${told}${run.why ? `\n  ${run.why}` : ""}`;
  };
  const tell = (button, x, y) => {
    const { task, contender, runs: there } = of(button);
    const gold = task.gold.length > 300 ? `${task.gold.slice(0, 300)}…` : task.gold;
    const all = there.length ? there.map((run) => told(run, task)).join("\n") : "not finished";
    show(`${task.id} · ${contender}\n${all}\nright is: ${gold}`, x, y);
  };
  if (buttons.length) {
    buttons[0].tabIndex = 0;
    const move = (button) => {
      for (const each of buttons) if (each.tabIndex === 0) each.tabIndex = -1;
      button.tabIndex = 0;
      button.focus();
    };
    grid.addEventListener("keydown", (event) => {
      const at = buttons.indexOf(event.target);
      if (at < 0 || event.altKey || event.metaKey) return;
      const start = at - (at % across),
        last = buttons.length - 1;
      const to = {
        ArrowRight: at % across < across - 1 ? at + 1 : at,
        ArrowLeft: at % across ? at - 1 : at,
        ArrowDown: at + across <= last ? at + across : at,
        ArrowUp: at >= across ? at - across : at,
        Home: event.ctrlKey ? 0 : start,
        End: event.ctrlKey ? last : start + across - 1,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      move(buttons[to]);
    });
    const button = (event) => event.target.closest?.("button.cell");
    grid.addEventListener("mouseover", (event) =>
      button(event) ? tell(button(event), event.clientX, event.clientY) : hide(),
    );
    grid.addEventListener("mouseleave", hide);
    grid.addEventListener("focusin", (event) => {
      if (!button(event)?.matches(":focus-visible")) return;
      const room = event.target.getBoundingClientRect();
      requestAnimationFrame(() => tell(event.target, room.left, room.bottom - 10));
    });
    grid.addEventListener("focusout", hide);
    grid.addEventListener("click", (event) => {
      if (!button(event)) return;
      hide();
      move(button(event));
      hide();
      open(button(event));
    });
  }

  // -- a record

  const dialog = $("record"),
    body = $("record-body");
  const open = (button) => {
    const { task, contender, runs: there } = of(button);
    $("record-title").textContent = `${task.id} · ${contender}`;
    body.replaceChildren();
    if (data.repeat > 1 && there.length) {
      const tabs = make("div", "tabs");
      tabs.setAttribute("role", "group");
      tabs.setAttribute("aria-label", "Repeats");
      for (const run of there) {
        const tab = make("button", "", `Repeat ${run.r + 1}: ${run.outcome}`);
        tab.type = "button";
        tab.addEventListener("click", () => fill(task, run, tabs));
        tabs.append(tab);
      }
      body.append(tabs);
      fill(task, there[0], tabs);
    } else {
      fill(task, there[0], null);
    }
    dialog.showModal();
    dialog.scrollTop = 0;
    $("record-title").focus();
  };
  $("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });

  const fill = (task, run, tabs) => {
    if (tabs)
      [...tabs.children].forEach((tab) =>
        tab.setAttribute("aria-pressed", String(tab.textContent.startsWith(`Repeat ${run.r + 1}:`))),
      );
    const facts = make("dl", "about");
    const fact = (name, value) => {
      if (value !== null && value !== "") facts.append(make("dt", "", name), make("dd", "", value));
    };
    fact("Question", task.question);
    fact("Right is", task.gold);
    const parts = [facts];
    if (!run) {
      parts.push(make("p", "", "This run is not finished: it has no record here."));
    } else {
      fact("Answer", run.answer === null ? "none" : run.answer);
      fact(
        "Outcome",
        [
          data.outcomes[run.outcome],
          run.mark !== run.outcome ? run.mark : "",
          run.score > 0 && run.score < 1 ? `score ${number(run.score)}` : "",
          run.status !== "answered" && run.status !== run.outcome ? `the run ${run.status}` : "",
        ]
          .filter(Boolean)
          .join(", "),
      );
      fact("Why", run.why);
      fact("Reason", run.reason);
      fact(
        "Took",
        [
          many(run.steps, "step"),
          many(run.calls, "call"),
          `${run.about ? "about " : ""}${number(run.in)} tokens in and ${number(run.out)} out`,
          `${number(run.s)} s`,
          usd(run.usd),
        ].join(", "),
      );
      fact(
        "Remarks",
        [
          run.repairs ? many(run.repairs, "format repair") : "",
          run.invented ? many(run.invented, "invented value") : "",
          run.fell ? "fell back to another loop" : "",
        ]
          .filter(Boolean)
          .join(", "),
      );
      fact("Run", run.run);
      fact("Judged by", run.judge);
      const command = make("code", "", `plait show ${run.run}`);
      if (run.held === 2) {
        const link = make("a", "", "Open the run");
        link.href = data.at + encodeURIComponent(run.run);
        parts.push(make("p", "", link));
      } else if (run.held === 1) {
        parts.push(...JSON.parse($(`record-${run.run}`).textContent).steps.flatMap((step) => stepOf(step, run)));
      } else if (run.held === 0) {
        parts.push(make("p", "", "The record is left out to keep this file small. To see it: ", command));
      } else {
        parts.push(
          make("p", "", "The record of this run could not be read when the page was made. To try again: ", command),
        );
      }
    }
    body.replaceChildren(...(tabs ? [tabs] : []), ...parts);
  };
  const WORDS = { trouble: "error", call: "call", reply: "reply" };
  const stepOf = (step, run) => {
    const what = [
      step.phases.join(", "),
      new Set(step.models).size > 0 ? step.models.join(", ") : "",
      step.in || step.out ? `${number(step.in)} tokens in, ${number(step.out)} out` : "",
      step.s ? `${number(step.s)} s` : "",
    ];
    const title = make(
      "h3",
      "",
      step.n ? `Step ${step.n}` : "Before the first step",
      make("small", "", what.filter(Boolean).join(" · ")),
    );
    return [
      title,
      ...step.parts.map(([kind, name, text, missing]) => {
        const part = make(
          "div",
          `part ${kind}`,
          make("b", "", [WORDS[kind] || kind, name].filter(Boolean).join(" · ")),
          make("pre", "", text),
        );
        if (missing)
          part.append(make("em", "", `Cut here: ${number(missing)} more characters. All of it: plait show ${run.run}`));
        return part;
      }),
    ];
  };
})();
