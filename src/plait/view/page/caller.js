// Who uses the pages: the name in the bar on top, the roles and the way out. Hides links to what a user may not open.
import { submitting } from "./acts.js";
import { closeButtons, openDialog, shown } from "./dom.js";
import { html } from "./html.js";

const ROLES = {
  view: "sees all runs, their costs and comparisons",
  use: "talks to agents, and answers their questions",
  approve: "approves calls and plans",
  change: "forks, rates, resumes, cancels and deletes runs, changes data sets",
};

export const showCaller = async (source, tools) => {
  const me = await source.me().catch(() => null);
  if (!me) return;
  const needed = { "#/improve": ["view", "change"], chat: ["use"] };
  const isOpen = (page) => (needed[page.replace("./", "")] || me.roles).some((role) => me.roles.includes(role));
  for (const each of document.querySelectorAll("nav.pages a")) each.hidden = !isOpen(each.getAttribute("href"));
  if (!me.name && !me.login) return;
  const name = me.name || "Full token";
  const open = () => {
    const roles = me.roles.map((each) => html`<li><b>${each}</b>: ${ROLES[each]}</li>`);
    openDialog("small", html`<bdi>${shown(name)}</bdi>`, html`<form onsubmit=${submitting(source.logout)}>
      <p>${me.roles.length ? "May do here:" : "Has no role here."}</p><ul>${roles}</ul>
      ${closeButtons(me.login && "Log out")}</form>`);
  };
  tools.prepend(html`<button type="button" class="caller" title="Who uses this page" onclick=${open}>
    <span class="initial" aria-hidden="true">${shown([...name][0].toUpperCase())}</span>
    <bdi>${shown(name)}</bdi></button>`);
};
