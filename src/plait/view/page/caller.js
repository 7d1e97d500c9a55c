// Who uses the pages: the name in the bar on top, the roles and the way out. Hides links to what a user may not open.
import { problem, shown } from "./dom.js";
import { html } from "./html.js";
import { openDialog } from "./improve.js";

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
    const roles = me.roles.map((each) => html`<li><b>${each}</b>: ${ROLES[each]}</li>`);
    const leave = () => source.logout().catch((error) => dialog.append(problem(error)));
    const dialog = openDialog("small", html`<bdi>${shown(name)}</bdi>`, html`
      <p>${me.roles.length ? "May do here:" : "Has no role here."}</p><ul>${roles}</ul><div class="buttons">
      ${me.login && html`<button type="button" class="main-act" onclick=${leave}>Log out</button>`}
      <button type="button" onclick=${() => dialog.close()}>Close</button></div>`);
  };
  tools.prepend(html`<button type="button" class="caller" title="Who uses this page" onclick=${open}>
    <span class="initial" aria-hidden="true">${shown([...name][0].toUpperCase())}</span>
    <bdi>${shown(name)}</bdi></button>`);
};
