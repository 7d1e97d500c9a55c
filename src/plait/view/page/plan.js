// The plan's picture. It comes as SVG; only its shapes and texts are taken over, by a list of what may be in it.
import { many } from "./dom.js";
import { html } from "./html.js";
import { long } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const KEPT = {
  svg: ["viewBox", "width", "height", "role"],
  title: [],
  g: ["class"],
  path: ["d", "marker-end"],
  rect: ["x", "y", "width", "height", "rx"],
  text: ["x", "y", "class", "text-anchor"],
  tspan: ["class"],
  defs: [],
  marker: ["id", "viewBox", "refX", "refY", "markerWidth", "markerHeight", "orient"],
};

const copied = (node) => {
  if (node.nodeType === Node.TEXT_NODE) return document.createTextNode(node.data);
  const allowed = KEPT[node.localName];
  if (node.nodeType !== Node.ELEMENT_NODE || !allowed) return null;
  const made = document.createElementNS(SVG, node.localName);
  for (const name of allowed) if (node.hasAttribute(name)) made.setAttribute(name, node.getAttribute(name));
  made.append(...[...node.childNodes].map(copied).filter(Boolean));
  return made;
};

export const planOf = (plan) => {
  const read = new DOMParser().parseFromString(plan.svg, "image/svg+xml");
  const picture = read.querySelector("parsererror") ? null : copied(read.documentElement);
  const words = picture?.querySelector("title")?.textContent || "The plan";
  picture?.querySelector(":scope > title")?.remove();
  picture?.setAttribute("aria-label", words);
  const text = long([plan.text, 0], { className: "code", label: "plan" });
  return html`<figure class="plan" aria-label="The plan">
    <h2>Plan</h2>
    ${picture && html`<div class="picture" tabindex="0" role="region" aria-label="The plan's picture">${picture}</div>`}
    <figcaption>
      ${many(plan.steps, "step")}, ${plan.found} with a result. Boxes with a dashed line have no result yet.
    </figcaption>
    <details><summary>The plan as text</summary>${text}</details>
  </figure>`;
};
