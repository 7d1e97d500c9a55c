// Light and dark, and what else the browser keeps of a page.
import { button } from "./dom.js";

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
  const control = button("", () => turn(), { class: "theme" });
  const words = { system: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" };
  const show = (value) => {
    if (value === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = value;
    control.textContent = { system: "◐", light: "○", dark: "●" }[value];
    control.setAttribute("aria-label", words[value]);
    control.title = words[value];
  };
  let now = kept("plait-theme", "system");
  if (!(now in words)) now = "system";
  const turn = () => {
    now = { system: "dark", dark: "light", light: "system" }[now];
    keep("plait-theme", now);
    show(now);
  };
  show(now);
  return { control, turn };
};
