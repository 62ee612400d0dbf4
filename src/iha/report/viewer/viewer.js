// The viewer itself: which layer, head and query are shown, and the keys, clicks and touches that change it.

class Viewer {
  constructor(section, number) {
    this.data = readViewer(JSON.parse(section.querySelector("script").textContent));
    this.section = section;
    this.prefix = `viewer-${number}`;
    this.level = section.querySelector(":scope > h3") ? 4 : 3;  // of a head's title
    this.mixing = [...section.querySelectorAll(".mixing")];
    Object.assign(this, { layer: 0, head: 0, query: this.data.query, key: null, part: null });
    this.build(section.querySelector(".stage"));
    this.showLayer();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.showLayer());
  }

  subtitle(text) {
    return element(`h${this.level + 1}`, { class: "sub" }, text);
  }

  currentLayer() {
    return this.data.layers[this.layer];
  }
  currentHead() {
    return this.currentLayer().heads[this.head];
  }

  // --- the page's skeleton ---

  build(stage) {
    const weights = this.data.layers.some((layer) => layer.heads.some((head) => head.packed));
    this.layers = element("div", { class: "layers", role: "group", "aria-label": "Layers" });
    this.data.layers.forEach((layer, at) => this.layers.append(element("button", { type: "button", onclick: () => this.choose({ layer: at }) }, layer.name)));
    this.layers.hidden = this.data.layers.length < 2;
    roving(this.layers, 1);
    this.strip = element("div", { class: "strip", role: "tablist", "aria-label": "Heads" });
    roving(this.strip, 0, (event) => this.stepLayer(event));
    this.families = element("ul", { class: "families", "aria-label": "Colours" });
    this.panel = element("div", { class: "panel", role: "tabpanel", id: `${this.prefix}-panel` });
    this.said = element("p", { class: "said", role: "status" });
    stage.replaceChildren(drawHelp(weights), this.layers, this.strip, this.families, this.panel);
  }

  // --- what is chosen ---

  choose(change) {
    const before = { layer: this.layer, head: this.head, part: this.part };
    Object.assign(this, change);
    if (this.layer !== before.layer) this.head = Math.min(this.head, this.currentLayer().heads.length - 1);
    if (this.layer !== before.layer || this.head !== before.head) this.part = change.part || null;
    if (this.layer !== before.layer) this.showLayer();
    else if (this.head !== before.head) this.showHead();
    else if (this.part !== before.part) this.showSquares();
    else this.showQuery();
  }

  // Up and down go through the layers while a head has the focus.
  stepLayer(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key], next = this.layer + step;
    if (this.data.layers[next]) {
      event.preventDefault();
      this.choose({ layer: next });
      this.tab().focus();
    }
    return step !== undefined;
  }

  // To the neighbouring head, through the ends of a layer into the next one.
  stepHead(step) {
    const heads = this.currentLayer().heads.length, next = this.head + step;
    if (next >= 0 && next < heads) return this.choose({ head: next });
    const layer = this.data.layers[this.layer + step];
    if (layer) this.choose({ layer: this.layer + step, head: step > 0 ? 0 : layer.heads.length - 1 });
  }

  tab() {
    return this.strip.children[this.head];
  }

  // --- drawing ---

  showLayer() {
    [...this.layers.children].forEach((button, at) => {
      button.setAttribute("aria-pressed", at === this.layer);
      button.tabIndex = at === this.layer ? 0 : -1;
    });
    const layer = this.currentLayer();
    this.strip.setAttribute("aria-label", `Heads of ${layer.name}`);
    this.strip.replaceChildren(...layer.heads.map((head) => this.drawTab(head)));
    const families = [...new Set(layer.heads.map((head) => head.family))];
    this.families.replaceChildren(...families.map((family) => element("li", {}, familyWords(this.data, family))));
    this.showHead();
  }

  drawTab(head) {
    const canvas = element("canvas", { "aria-hidden": "true" });
    if (head.weights) paintWeights(canvas, head);
    else paintVisible(canvas, head);
    return element("button", { type: "button", role: "tab", class: head.family, id: `${this.prefix}-head-${head.number}`,
      "aria-controls": `${this.prefix}-panel`, title: head.text, onclick: () => this.choose({ head: head.number }) },
      canvas, element("span", {}, `head ${head.number}`), element("small", {}, head.family));
  }

  showHead() {
    [...this.strip.children].forEach((button, at) => {
      button.setAttribute("aria-selected", at === this.head);
      button.tabIndex = at === this.head ? 0 : -1;
    });
    const layer = this.currentLayer(), head = this.currentHead();
    this.panel.className = `panel ${head.family}`;
    this.panel.setAttribute("aria-labelledby", this.tab().id);
    const step = (words, by, sign) => element("button", { type: "button", class: "step", "aria-label": words, onclick: () => this.stepHead(by) }, sign);
    const title = element("header", {}, step("Previous head", -1, "\u2039"),
      element("div", {}, element(`h${this.level}`, { class: "name" }, `${layer.name}, head ${head.number}`), element("code", {}, head.text)),
      step("Next head", 1, "\u203a"));
    this.seen = this.drawSquare("What it may see", `what ${layer.name}, head ${head.number} may see`);
    this.given = head.weights && this.drawSquare("Where its weight goes", `where the weight of ${layer.name}, head ${head.number} goes`);
    this.slider = element("input", { type: "range", min: 0, max: this.data.count - 1, step: 1, "aria-label": "Query",
      oninput: () => this.choose({ query: Number(this.slider.value), key: null }) });
    this.reading = element("div", { class: "reading" });
    this.text = element("div", { class: "around" });
    this.more = element("div", { class: "more" });
    this.parts = drawParts(this);
    const squares = element("div", { class: `squares ${this.given ? "both" : "one"}` }, this.seen.figure, this.given && this.given.figure,
      element("div", { class: "query" }, this.subtitle(this.given ? "What one query reads" : "What one query may see"), this.slider, this.reading, this.said, this.given ? null : drawCosts(this)));
    this.panel.replaceChildren(title, element("p", { class: "words" }, familyWords(this.data, head.family), `: sees ${head.pattern.words}`),
      squares, this.text, this.more);
    this.side = [drawGates(this), this.given ? drawCosts(this) : null, this.parts, this.drawMixing()].filter(Boolean);
    this.panel.append(...this.side);
    this.showSquares();
  }

  drawMixing() {
    const maps = this.mixing[this.layer];
    if (!maps || !maps.children.length) return null;
    maps.hidden = false;
    return element("section", { class: "mixed" }, this.subtitle("How heads are mixed in this layer"), maps);
  }

  // A canvas in a frame with the marks of the query's row and the key's column; rows are moved by keys, by the
  // pointer over it, by a tap.
  drawSquare(title, label) {
    const canvas = element("canvas", { role: "slider", tabindex: "0", "aria-label": `Query, in the square of ${label}`,
      "aria-orientation": "vertical", "aria-valuemin": 0, "aria-valuemax": this.data.count - 1 });
    const row = element("i", { class: "row" }), column = element("i", { class: "column" });
    const frame = element("div", { class: "frame" }, canvas, row, column);
    const pick = (event) => {
      const box = canvas.getBoundingClientRect(), count = this.data.count;
      const at = (offset, size) => Math.max(0, Math.min(count - 1, Math.floor((offset / size) * count)));
      this.pointed = { query: at(event.clientY - box.top, box.height), key: at(event.clientX - box.left, box.width) };
      if (this.waiting) return;
      this.waiting = requestAnimationFrame(() => {
        this.waiting = 0;
        if (this.pointed.query !== this.query || this.pointed.key !== this.key) this.choose(this.pointed);
      });
    };
    canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && pick(event));
    canvas.addEventListener("click", pick);
    canvas.addEventListener("keydown", (event) => this.moveInSquare(event));
    const figure = element("figure", { class: "square" }, this.subtitle(title), frame,
      element("figcaption", {}, "a row a query \u2193, a column a key \u2192"));
    return { figure, canvas, row, column };
  }

  moveInSquare(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const last = this.data.count - 1, far = Math.max(1, Math.round(this.data.count / 16));
    const queries = { ArrowUp: -1, ArrowDown: 1, PageUp: -far, PageDown: far, Home: -last, End: last };
    const keys = { ArrowLeft: -1, ArrowRight: 1 };
    const within = (value) => Math.max(0, Math.min(last, value));
    if (event.key in queries) this.choose({ query: within(this.query + queries[event.key]) });
    else if (event.key in keys) this.choose({ key: within((this.key === null ? this.query : this.key) + keys[event.key]) });
    else return;
    event.preventDefault();
  }

  showSquares() {
    const head = this.currentHead();
    paintVisible(this.seen.canvas, head, this.part);
    if (this.given) paintWeights(this.given.canvas, head, this.part);
    if (this.parts) this.parts.show();
    this.showQuery();
  }

  showQuery() {
    const { data, query, key } = this, head = this.currentHead();
    this.slider.value = query;
    const part = this.part ? `, pseudo-query ${this.part.p} to pseudo-key ${this.part.r}` : "";
    const name = named(this, "Query", query) + part;
    const sight = visibleWords(head, query), cell = key === null ? null : this.cellWords();
    const heaviest = drawHeaviest(this);
    this.slider.setAttribute("aria-valuetext", named(this, "Query", query));
    this.reading.replaceChildren(...[element("p", { class: "who" }, element("b", {}, name)),
      sight && element("p", { class: "note" }, `may see ${sight}`), heaviest,
      cell && element("p", { class: "cell" }, cell)].filter(Boolean));
    this.said.textContent = this.spoken(name, sight, cell);
    const place = (token) => `${(100 * token) / data.count}%`;
    for (const square of [this.seen, this.given].filter(Boolean)) {
      square.canvas.setAttribute("aria-valuenow", query);
      square.canvas.setAttribute("aria-valuetext", this.said.textContent);
      const size = `max(${100 / data.count}%, 2px)`;
      Object.assign(square.row.style, { top: place(query), height: size });
      Object.assign(square.column.style, { left: place(key === null ? query : key), width: size });
      square.column.hidden = key === null;
    }
    const text = drawText(this), choices = drawChoices(this);
    this.text.replaceChildren(...(text ? [text] : []));
    this.more.replaceChildren(...(choices ? [choices] : []));
  }

  spoken(name, sight, cell) {
    const found = this.currentHead().heaviest(this.query, this.part);
    const most = found && found.list.slice(0, 3).map(({ key, weight }) => `${named(this, "key", key)}: ${fewDigits(weight, 3)}`);
    return `${name}${sight ? ` may see ${sight}` : ""}.${most && most.length ? ` It reads most: ${most.join(", ")}.` : ""}${cell ? ` ${cell}` : ""}`;
  }

  // What the cell of query and key shows.
  cellWords() {
    const { query, key } = this, head = this.currentHead(), grid = head.weightGrid(this.part);
    const open = head.openness(query, key, this.part);
    const pair = `Query ${query} \u2192 ${named(this, "key", key)}: `;
    if (open === 0) return `${pair}hidden.`;
    if (grid && grid.block === 1) return `${pair}weight ${fewDigits(grid.values[query * grid.side + key])}.`;
    if (!grid) return `${pair}visible${open < 1 ? `, with ${fewDigits(open, 3)} of its score` : ""}.`;
    const row = Math.floor(query / grid.block), column = Math.floor(key / grid.block);
    const block = (at) => `${at * grid.block}\u2013${Math.min(this.data.count, (at + 1) * grid.block) - 1}`;
    return `Queries ${block(row)} give keys ${block(column)} ${fewDigits(grid.values[row * grid.side + column])} of their weight on average.`;
  }
}

function drawHelp(weights) {
  const line = (names, words) => element("li", {}, ...names.flatMap((name) => [element("kbd", {}, name), " "]), words);
  return element("div", { class: "help" },
    element("p", {}, "In attention every token of a text looks at other tokens. A layer has several heads; each may see only what its pattern allows",
      weights ? " and spreads a weight of 1 over it. " : ". ",
      "In a square, a row is a token that looks (the query), a column one that is looked at (the key). Colours tell the kinds of patterns apart."),
    element("ul", {}, line(["\u2190", "\u2192"], "another head"), line(["\u2191", "\u2193"], "another layer"),
      element("li", {}, "on a square they move query and key")));
}

const viewers = [...document.querySelectorAll(".viewer")].filter((section) => section.querySelector("script"))
  .map((section, number) => new Viewer(section, number));

// Left and right step through the heads of the viewer in sight also while nothing has the focus.
document.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.target !== document.body || !step || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const shown = viewers.find(({ section }) => {
    const box = section.getBoundingClientRect();
    return box.bottom > 0 && box.top < innerHeight;
  });
  if (!shown) return;
  event.preventDefault();
  shown.stepHead(step);
  shown.tab().focus({ preventScroll: true });
});
