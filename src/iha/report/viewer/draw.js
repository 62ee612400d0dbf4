// Drawing: grids of numbers as pictures in a head's colour, and the small builders of elements.

// element("p", {class: "x", onclick: f}, "text", child, ...)
function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// The colour of a family in the scheme that is on, [red, green, blue].
function familyColour(family) {
  const triple = getComputedStyle(document.documentElement).getPropertyValue(`--${family}`);
  return triple.trim().split(/\s+/).map(Number);
}

// One pixel a cell, `strength` (0..1) as opacity over the paper; the style sheet scales it up unsmoothed.
function paint(canvas, grid, family, strength) {
  const { side, values } = grid, [red, green, blue] = familyColour(family);
  canvas.width = canvas.height = Math.max(1, side);
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  for (let at = 0; at < values.length; ++at) {
    image.data[4 * at] = red;
    image.data[4 * at + 1] = green;
    image.data[4 * at + 2] = blue;
    image.data[4 * at + 3] = Math.round(255 * Math.min(1, Math.max(0, strength(values[at], at))));
  }
  context.putImageData(image, 0, 0);
}

function largest(values) {
  return values.reduce((most, value) => Math.max(most, value), 0);
}

function paintVisible(canvas, head, part) {
  // Where little of a block is visible one should still see that something is.
  paint(canvas, head.visibleGrid(part), head.family, (share) => (share > 0 ? 0.25 + 0.75 * share : 0));
}

// Weights by their square root, for most are small and the eye should see that they are there; a breath of
// colour where the head may see.
function paintWeights(canvas, head, part) {
  const grid = head.weightGrid(part), most = largest(grid.values), seen = head.visibleGrid(part);
  const same = seen.side === grid.side;
  paint(canvas, grid, head.family, (weight, at) => {
    const breath = same && seen.values[at] > 0 ? 0.07 : 0;
    return weight > 0 && most > 0 ? Math.max(0.12, Math.sqrt(weight / most)) : breath;
  });
}

// A swatch and the family in words.
function familyWords(viewer, family) {
  return element("span", { class: `family ${family}` }, element("i", { "aria-hidden": "true" }),
    element("b", {}, family), ` (${viewer.families[family]})`);
}

// Lets arrow keys move among the children of `group` that are buttons, `columns` a row; one of them is in the
// tab order. `taken` (optional) gets the keys first.
function roving(group, columns, taken = () => false) {
  const buttons = () => [...group.querySelectorAll("button")];
  group.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || taken(event)) return;
    const all = buttons(), at = all.indexOf(document.activeElement);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -at, End: all.length - 1 - at };
    const step = steps[event.key], next = all[at + step];
    if (at < 0 || step === undefined || !next) return;
    event.preventDefault();
    next.click();
    next.focus();
  });
}
