// Who uses the pages: the name in the bar on top, the roles and the way out. Links to what a user may not open are hidden.
import { button, make, problem, shown } from "./dom.js";

const ROLES = {
  view: "sees all runs, their costs and comparisons",
  use: "talks to agents, and answers their questions",
  approve: "approves calls and plans",
  change: "forks, rates, resumes, cancels and deletes runs, changes data sets",
};

export const showCaller = async (source, tools) => {
  const me = await source.me().catch(() => null);
  if (!me) return;
  const closed = { "#/comparisons": "view", "#/review": "change", chat: "use" };
  for (const each of document.querySelectorAll("nav.pages a"))
    each.hidden = !me.roles.includes(closed[each.getAttribute("href").replace("./", "")] || me.roles[0]);
  if (!me.name && !me.login) return;
  const name = me.name || "Full token";
  const open = () => {
    const roles = me.roles.map((each) => make("li", {}, make("b", {}, each), `: ${ROLES[each]}`));
    const leave = () => source.logout().catch((error) => dialog.append(problem(error)));
    const dialog = make(
      "dialog.small",
      { "aria-labelledby": "caller-title" },
      make("h2", { id: "caller-title", tabindex: "-1" }, make("bdi", {}, shown(name))),
      make("p", {}, me.roles.length ? "May do here:" : "Has no role here."),
      make("ul", {}, roles),
      make(
        "div.buttons",
        {},
        me.login ? button("Log out", leave, { class: "main-act" }) : null,
        button("Close", () => dialog.close()),
      ),
    );
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("h2").focus();
  };
  tools.prepend(
    button(
      [
        make("span.initial", { "aria-hidden": "true" }, shown([...name][0].toUpperCase())),
        make("bdi", {}, shown(name)),
      ],
      open,
      { class: "caller", title: "Who uses this page" },
    ),
  );
};
