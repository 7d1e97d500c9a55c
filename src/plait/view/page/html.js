// Elements from templates: html`<a href=${to}>${words}</a>`. Only the program's own text is markup; a value never is.
const TEMPLATES = new WeakMap();
const MARK = "\u0001";
const ADDRESSES = ["http:", "https:", "blob:", "data:", "file:"];

const parse = (strings) => {
  if (!TEMPLATES.has(strings)) {
    if (!Object.isFrozen(strings) || !strings.raw) throw new TypeError("html takes a template of the program.");
    const template = document.createElement("template");
    // Where a value stands, in an attribute or between elements, stands its number. An attribute with a value gets
    // another name, so that nothing takes the number for a handler or a path.
    template.innerHTML = strings.reduce((before, text, i) => {
      const mark = `${MARK}${i - 1}${MARK}`;
      if (!/<[^<>]*$/.test(before)) return `${before}<!--${mark}-->${text}`;
      return before.replace(/ (?!v:)([\w:-]+)(="?[^"]*)$/, " v:$1$2") + mark + text;
    });
    TEMPLATES.set(strings, template);
  }
  return document.importNode(TEMPLATES.get(strings).content, true);
};

const isLeftOut = (value) => value === null || value === undefined || value === false || value === "";

export const inside = (...values) => values.flat(Infinity).filter((each) => !isLeftOut(each));

export const setAttribute = (node, name, value) => {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (["href", "src"].includes(name) && !ADDRESSES.includes(new URL(value, location.href).protocol))
    node.setAttribute(name, "#");
  else node.setAttribute(name, value === true ? "" : String(value));
};

// An element, or a fragment of several. A value is a text, an element, or a list of them, and of an attribute also a
// function (onclick=${go}); null, undefined and false are left out, attributes with them.
export const html = (strings, ...values) => {
  const made = parse(strings);
  const walker = document.createTreeWalker(made, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_COMMENT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    if (node.nodeType === Node.COMMENT_NODE) {
      node.replaceWith(...inside(values[node.data.slice(1, -1)]));
      continue;
    }
    for (const { name, value } of [...node.attributes]) {
      if (!name.startsWith("v:")) continue;
      const parts = value.split(MARK); // text, number, text, number, text
      const whole = parts.map((part, i) => (i % 2 ? inside(values[part]).join(" ") : part)).join("");
      node.removeAttribute(name);
      setAttribute(node, name.slice(2), parts.join("") === parts[1] ? values[parts[1]] : whole.trim());
    }
  }
  return made.childNodes.length === 1 ? made.firstChild : made;
};
