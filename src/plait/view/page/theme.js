// Light and dark, and what else the browser keeps of a page.
import { html } from "./html.js";

export const kept = (name, otherwise) => {
  try {
    return localStorage.getItem(name) ?? otherwise;
  } catch {
    return otherwise;
  }
};
export const keep = (name, value) => {
  try {
    localStorage.setItem(name, value);
  } catch {
    /* a file's page may keep nothing */
  }
};

export const theme = () => {
  const control = html`<button type="button" class="theme" onclick=${() => turn()}></button>`;
  const words = { system: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" };
  let now = kept("plait-theme", "system");
  if (!(now in words)) now = "system";
  const show = () => {
    if (now === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = now;
    control.textContent = { system: "◐", light: "○", dark: "●" }[now];
    control.setAttribute("aria-label", words[now]);
    control.title = words[now];
  };
  const turn = () => {
    now = { system: "dark", dark: "light", light: "system" }[now];
    keep("plait-theme", now);
    show();
  };
  show();
  return { control, turn };
};
