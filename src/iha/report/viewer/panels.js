// The parts of a head's panel beside its two squares: the query's keys, the text, costs, pseudo-heads, gates
// and chosen blocks. Each takes the viewer (viewer.js) and gives an element.

// "9 of 96 keys: 0, 8, 16, …": the keys that query i may see; none where it would take long to walk them.
function visibleWords(head, i) {
  const count = head.viewer.count, runs = [];
  if (count > 1 << 17) return null;
  let seen = 0;
  for (let j = 0; j < count; ++j) {
    if (!(head.gates.length ? head.openness(i, j) > 0 : sees(head.pattern, i, j))) continue;
    ++seen;
    const run = runs.at(-1);
    if (run && run.end === j) run.end = j + 1;
    else runs.push({ begin: j, end: j + 1 });
  }
  const words = runs.slice(0, 4).map(({ begin, end }) => (end - begin > 1 ? `${begin}\u2013${end - 1}` : `${begin}`));
  if (runs.length > 5) words.push("\u2026");
  if (runs.length > 4) words.push(`${runs.at(-1).end - 1}`);
  return seen === 0 ? "no key" : `${asCount(seen)} of ${asCount(count)} keys: ${words.join(", ")}`;
}

function chosenWords(head, i) {
  return head.choices(i).map(({ block, weight, own }) => {
    const begin = block * head.chosen.block, end = Math.min(head.viewer.count, begin + head.chosen.block);
    const last = head.pattern.causal ? Math.min(end, i + 1) : end;
    return `${own ? "its own block" : "block"} ${block} (keys ${begin}\u2013${last - 1}${own ? "" : `, weight ${fewDigits(weight, 3)}`})`;
  });
}

function distance(i, j) {
  return j === i ? "itself" : j < i ? `${asCount(i - j)} before` : `${asCount(j - i)} after`;
}

// "key 7 “x”", or "key 7" where tokens have no names.
function named(viewer, what, token) {
  return viewer.data.tokens ? `${what} ${token} \u201c${viewer.data.label(token)}\u201d` : `${what} ${token}`;
}

// The keys that the query reads most, with a bar each, and what is left for the others.
function drawHeaviest(viewer) {
  const head = viewer.currentHead(), found = head.heaviest(viewer.query, viewer.part);
  if (!found) return null;
  if (!found.list.length) return element("p", { class: "note" }, "It reads nothing.");
  const most = found.list[0].weight;
  const row = (words, weight, attributes, token) => element("li", attributes,
    element("span", { class: "token" }, token), element("span", { class: "place" }, words),
    element("span", { class: "bar", "aria-hidden": "true" }, bar(weight / most)),
    element("span", { class: "weight" }, fewDigits(weight, 3)));
  const rows = found.list.map(({ key, weight }) => row(
    `key ${key}, ${distance(viewer.query, key)}`, weight, { "data-key": key, "data-weight": weight }, viewer.data.label(key)));
  if (found.rest > 0) rows.push(row("all other keys", found.rest, { class: "rest", "data-rest": found.rest }, ""));
  return element("ol", { class: "heaviest" }, ...rows);
}

function bar(share) {
  const inner = element("i");
  inner.style.width = `${100 * Math.min(1, share)}%`;
  return inner;
}

// The tokens around the query, shaded by what it gives them; a click makes one the query.
function drawText(viewer) {
  const { data, query } = viewer, head = viewer.currentHead();
  if (!data.tokens) return null;
  const around = head.exact ? data.count : 96;
  const begin = Math.max(0, Math.min(query - around / 2, data.count - around)), end = Math.min(data.count, begin + around);
  const found = head.heaviest(query, viewer.part), grid = head.weightGrid(viewer.part);
  const weights = new Map();
  if (found && grid.block === 1) {
    for (let j = 0; j < grid.side; ++j) weights.set(j, grid.values[query * grid.side + j]);
  } else if (found) found.list.forEach(({ key, weight }) => weights.set(key, weight));
  const most = Math.max(0, ...weights.values());
  const text = element("p", { class: "text", "aria-hidden": "true", onclick: (event) => {
    const token = event.target.dataset.token;
    if (token !== undefined) viewer.choose({ query: Number(token), key: null });
  } });
  for (let j = begin; j < end; ++j) {
    const weight = weights.get(j) || 0, open = head.openness(query, j, viewer.part) > 0;
    const span = element("span", { "data-token": j, class: `${open ? "" : "hidden"}${j === query ? " query" : ""}` }, data.label(j));
    if (weight > 0.002 * most) span.style.setProperty("--a", (0.05 + 0.33 * Math.sqrt(weight / most)).toFixed(3));
    text.append(span);
    if (data.lineEnds.has(j)) text.append(element("br"));
  }
  if (begin > 0) text.prepend("\u2026");
  if (end < data.count) text.append("\u2026");
  return text;
}

const kCostRows = [
  ["Pairs of tokens", "pairs", asCount, "that a query and a key form"],
  ["FLOPs", "flops", asFlops, "of the two products"],
  ["Matrix of weights", "weight_bytes", asBytes, "never stored; what it would take"],
  ["Keys and values kept", "cache_bytes", asBytes, "for later tokens"],
  ["Measured time", "seconds", asTime, "forward, projections included"],
];

function drawCostTable(title, costs, names) {
  const columns = ["own", "causal", "global"], body = element("tbody");
  for (const [name, field, format, note] of kCostRows) {
    if (costs.own[field] === undefined) continue;
    const cells = columns.map((column) => element("td", { "data-value": costs[column][field] },
      costs[column][field] === undefined ? "\u2013" : format(costs[column][field])));
    const share = costs.global[field] > 0 ? costs.own[field] / costs.global[field] : null;
    body.append(element("tr", { "data-field": field },
      element("th", { scope: "row" }, name, element("small", {}, note)), ...cells,
      element("td", { class: "share" }, share === null ? "\u2013" : asPercent(share))));
  }
  const head = element("tr", {}, element("th", { scope: "col" }, title),
    ...[...names, "of global"].map((name) => element("th", { scope: "col" }, name)));
  const table = element("table", { class: "cost" }, element("thead", {}, head), body);
  return element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Cost of the ${title.toLowerCase()}` }, table);
}

function drawCosts(viewer) {
  const layer = viewer.currentLayer(), head = viewer.currentHead();
  return element("section", { class: "costs" }, viewer.subtitle("What it costs"),
    drawCostTable("This head", head.cost, ["this one", "causal", "global"]),
    drawCostTable("The layer", layer.cost, ["this one", "all causal", "all global"]));
}

// P x P buttons, one a pair of pseudo-query and pseudo-key, each with its own picture.
function drawParts(viewer) {
  const layer = viewer.currentLayer(), head = viewer.currentHead(), pseudo = layer.pseudo;
  if (pseudo === 1) return null;
  const grid = element("div", { class: "parts", role: "group", "aria-label": "Pseudo-queries and pseudo-keys" });
  grid.style.setProperty("--columns", pseudo);
  const all = element("button", { type: "button", class: "all", onclick: () => viewer.choose({ part: null }) }, "All together");
  for (let p = 0; p < pseudo; ++p) {
    for (let r = 0; r < pseudo; ++r) {
      const part = { p, r }, canvas = element("canvas", { "aria-hidden": "true" });
      const button = element("button", { type: "button", "aria-label": `pseudo-query ${p} reads pseudo-key ${r}`,
        onclick: () => viewer.choose({ part }) }, canvas, element("span", {}, `${p} \u2192 ${r}`));
      button.pair = part;
      grid.append(button);
    }
  }
  const show = () => {
    for (const button of grid.querySelectorAll("button")) {
      const chosen = viewer.part !== null && button.pair.p === viewer.part.p && button.pair.r === viewer.part.r;
      button.setAttribute("aria-pressed", chosen);
      button.tabIndex = chosen || (!viewer.part && button.pair.p + button.pair.r === 0) ? 0 : -1;
      const canvas = button.querySelector("canvas");
      if (head.weights) paintWeights(canvas, head, button.pair);
      else paintVisible(canvas, head, button.pair);
    }
    all.setAttribute("aria-pressed", viewer.part === null);
  };
  roving(grid, pseudo);
  const section = element("section", { class: "pseudo" }, viewer.subtitle(`Its ${pseudo} pseudo-heads, one by one`),
    element("p", { class: "note" }, layer.interleaved
      ? "Each token has a pseudo-query and a pseudo-key for each pseudo-head, and every pseudo-query may read all pseudo-keys. \u201c1 \u2192 0\u201d is what pseudo-query 1 gives to pseudo-key 0; choose one to see it large."
      : "Each token has a pseudo-query and a pseudo-key for each pseudo-head, and a pseudo-query reads the pseudo-keys of its own number alone."),
    all, grid);
  section.show = show;
  return section;
}

// How much of each candidate a learned head has taken.
function drawGates(viewer) {
  const head = viewer.currentHead();
  if (!head.gates.length) return null;
  const rows = head.gates.map(({ text, pattern, gate }) => element("li", { class: pattern.family, "data-gate": gate },
    element("code", {}, text), element("span", { class: "bar", "aria-hidden": "true" }, bar(gate)),
    element("span", { class: "weight" }, fewDigits(gate, 3)), element("span", { class: "note" }, `sees ${pattern.words}`)));
  return element("section", { class: "gates" }, viewer.subtitle("Its gates"),
    element("p", { class: "note" }, "This head learns which pattern to have: a key counts with the sum of the gates that show it."),
    element("ul", {}, ...rows));
}

function drawChoices(viewer) {
  const head = viewer.currentHead();
  if (!head.chosen) return null;
  return element("section", { class: "choices" }, viewer.subtitle("The blocks it chose"),
    element("p", { class: "note" }, `Besides its own block of ${head.chosen.block} tokens each query reads at most ${head.chosen.most} others, those it scores highest.`),
    element("p", {}, `Query ${viewer.query} reads:`),
    element("ul", {}, ...chosenWords(head, viewer.query).map((words) => element("li", {}, words))));
}
