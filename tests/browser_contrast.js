(least) => {
  // Relative luminance and contrast as WCAG 2 defines them. Half transparent grounds are not mixed.
  const channels = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map((each) => each / 255);
  const linear = (each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (light + 0.05) / (dark + 0.05);
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/, 0\)$/.test(colour) && colour !== "transparent") return colour;
    }
    return "rgb(255, 255, 255)";
  };
  // In a picture: the filled mark whose middle is nearest to the text's, where it holds it.
  const behind = (text) => {
    const at = text.getBoundingClientRect(), x = at.x + at.width / 2, y = at.y + at.height / 2;
    const marks = [...text.ownerSVGElement.querySelectorAll(".role-mark path, .role-mark rect, .role-mark circle")];
    const under = marks.filter((mark) => {
      const r = mark.getBoundingClientRect();
      const filled = !["none", ""].includes(getComputedStyle(mark).fill) && r.width > 4 && r.height > 4;
      return filled && r.x <= x && x <= r.right && r.y <= y && y <= r.bottom;
    });
    return under.length ? getComputedStyle(under.at(-1)).fill : ground(text.ownerSVGElement.parentElement);
  };
  const poor = [];
  const check = (what, colour, other) => {
    const ratio = contrast(colour, other);
    if (ratio < least) poor.push(`${what}: ${ratio.toFixed(2)}`);
  };
  for (const each of document.querySelectorAll("body *")) {
    if (each.closest("svg, script, style, noscript, dialog:not([open]), [hidden]") || !each.checkVisibility()) continue;
    if (![...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    check(`${each.tagName}.${each.className} ${each.textContent.slice(0, 30)}`, getComputedStyle(each).color, ground(each));
  }
  for (const each of document.querySelectorAll("svg text")) {
    const look = getComputedStyle(each);
    if (look.stroke === "none" && each.textContent.trim()) check(`svg ${each.textContent}`, look.fill, behind(each));
  }
  return poor;
}
