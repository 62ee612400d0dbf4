"use strict";
// The data of a viewer: arrays unpacked, and what a head may see and how it weighs it, by query and key.
// Nothing here touches the page.

// Base64 of little-endian numbers as a typed array.
function unpack(text, type) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  if (type === "float32") return new Float32Array(bytes.buffer);
  const words = new Uint16Array(bytes.buffer);
  return type === "uint16" ? words : Float32Array.from(words, half);
}

// A float16 that is not negative.
function half(bits) {
  const exponent = bits >> 10, fraction = bits & 1023;
  return exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
}

function unpackGrid(grid) {
  const type = grid.float32 === undefined ? "float16" : "float32";
  return { block: grid.block, side: grid.side, values: unpack(grid[type], type) };
}

// Whether a pattern without gates or choices shows key j to query i: docs/patterns.md.
function sees(pattern, i, j) {
  if (j < pattern.first && (!pattern.causal || j <= i)) return true;
  const ahead = j - i;
  if (pattern.left !== null && -ahead > pattern.left) return false;
  if (pattern.right !== null && ahead > pattern.right) return false;
  if (pattern.step === "relative" && ahead % pattern.every !== 0) return false;
  if (pattern.step === "absolute" && j % pattern.every !== 0) return false;
  return pattern.chunk === 0 || Math.floor(i / pattern.chunk) === Math.floor(j / pattern.chunk);
}

// One head: what it may see and where its weight went.
class Head {
  constructor(viewer, layer, head, number) {
    this.viewer = viewer;
    this.layer = layer;
    this.number = number;
    this.text = head.text;
    this.cost = head.cost;
    this.pattern = viewer.patterns[head.pattern];
    this.gates = (head.gates || []).map((gate) => ({ ...gate, pattern: viewer.patterns[gate.pattern] }));
    this.chosen = head.chosen && {
      block: head.chosen.block,
      most: head.chosen.most,
      blocks: unpack(head.chosen.blocks, "uint16"),
      weights: unpack(head.chosen.weights, "float16"),
    };
    this.family = this.gates.length ? "learned" : this.chosen ? "dynamic" : this.pattern.family;
    this.packed = head.weights;
    this.unpacked = null;
  }

  // Unpacked when first asked for: a file may hold more heads than one looks at.
  get weights() {
    if (!this.packed || this.unpacked) return this.unpacked;
    const weights = { masses: unpackGrid(this.packed.masses), parts: (this.packed.parts || []).map(unpackGrid) };
    if (this.packed.rest) {
      weights.keys = unpack(this.packed.keys, "uint16");
      weights.heaviest = unpack(this.packed.weights, "float16");
      weights.rest = unpack(this.packed.rest, "float16");
    }
    this.unpacked = weights;
    return weights;
  }

  get exact() {
    return this.viewer.count <= this.viewer.exactTokens;
  }

  // The blocks that query i reads in a dynamic head, its own first: [{block, weight}].
  choices(i) {
    const { block, most, blocks, weights } = this.chosen;
    const own = Math.floor(i / block), list = [{ block: own, weight: 1, own: true }];
    for (let k = i * most; k < (i + 1) * most; ++k) {
      if (blocks[k] !== 65535 && blocks[k] !== own) list.push({ block: blocks[k], weight: weights[k], own: false });
    }
    return list;
  }

  // How much of its score key j may bring query i: 1 where it is visible, 0 where it is not, and what lies
  // between where gates or chosen blocks weigh it. `part`: of one pseudo-query and pseudo-key alone.
  openness(i, j, part) {
    if (part && !this.layer.interleaved && part.p !== part.r) return 0;
    const split = part && this.layer.interleaved && this.layer.flat && i === j && part.r > part.p;
    if (this.gates.length) {
      let sum = 0;
      for (const { pattern, gate } of this.gates) {
        if (sees(pattern, i, j) && !(split && pattern.causal)) sum += gate;
      }
      return sum;
    }
    if (!sees(this.pattern, i, j) || (split && this.pattern.causal)) return 0;
    if (!this.chosen) return 1;
    const block = Math.floor(j / this.chosen.block);
    const choice = this.choices(i).find((each) => each.block === block);
    return choice ? choice.weight : 0;
  }

  // What the head may see as a grid of shares.
  visibleGrid(part) {
    return this.exact ? this.exactGrid(part) : this.chosen ? this.chosenGrid() : this.sharedGrid(part);
  }

  exactGrid(part) {
    const side = this.viewer.count, values = new Float32Array(side * side);
    for (let i = 0; i < side; ++i) {
      if (this.chosen) {
        for (const { block, weight } of this.choices(i)) {
          const end = Math.min(side, (block + 1) * this.chosen.block);
          for (let j = block * this.chosen.block; j < end; ++j) {
            if (sees(this.pattern, i, j)) values[i * side + j] = weight;
          }
        }
        continue;
      }
      for (let j = 0; j < side; ++j) values[i * side + j] = this.openness(i, j, part);
    }
    return { block: 1, side, values };
  }

  // The library counted these, block by block.
  sharedGrid(part) {
    const weighed = this.gates.length ? this.gates : [{ pattern: this.pattern, gate: 1 }];
    const { block, side } = weighed[0].pattern.share, values = new Float32Array(side * side);
    if (part && !this.layer.interleaved && part.p !== part.r) return { block, side, values };
    for (const { pattern, gate } of weighed) {
      pattern.share.values.forEach((share, at) => (values[at] += gate * share));
    }
    return { block, side, values };
  }

  chosenGrid() {
    const count = this.viewer.count, { block, side } = this.pattern.share;
    const values = new Float32Array(side * side);
    const rows = (row) => Math.min(block, count - row * block);
    for (let i = 0; i < count; ++i) {
      const row = Math.floor(i / block), last = this.pattern.causal ? i + 1 : count;
      for (const choice of this.choices(i)) {
        const end = Math.min(last, (choice.block + 1) * this.chosen.block);
        for (let j = choice.block * this.chosen.block; j < end;) {
          const column = Math.floor(j / block), stop = Math.min(end, (column + 1) * block);
          values[row * side + column] += ((stop - j) * choice.weight) / (rows(row) * rows(column));
          j = stop;
        }
      }
    }
    return { block, side, values };
  }

  weightGrid(part) {
    if (!this.weights) return null;
    return part ? this.weights.parts[part.p * this.layer.pseudo + part.r] : this.weights.masses;
  }

  // The heaviest keys of query i, [{key, weight}] falling, and what the others have: {list, rest, others}.
  heaviest(i, part) {
    const grid = this.weightGrid(part), most = 8;
    if (!grid || (part && grid.block > 1)) return null;
    if (grid.block > 1) {
      const list = [];
      for (let k = i * most; k < (i + 1) * most; ++k) {
        if (this.weights.keys[k] !== 65535) list.push({ key: this.weights.keys[k], weight: this.weights.heaviest[k] });
      }
      return { list, rest: this.weights.rest[i] };
    }
    const row = grid.values.subarray(i * grid.side, (i + 1) * grid.side), keys = [];
    row.forEach((weight, key) => weight > 0 && keys.push(key));
    keys.sort((a, b) => row[b] - row[a] || a - b);
    const rest = keys.slice(most).reduce((sum, key) => sum + row[key], 0);
    return { list: keys.slice(0, most).map((key) => ({ key, weight: row[key] })), rest };
  }
}

function readViewer(json) {
  const viewer = { ...json, exactTokens: 256 };
  viewer.patterns = json.patterns.map((pattern) => ({
    ...pattern,
    share: pattern.share && unpackGrid(pattern.share),
  }));
  viewer.layers = json.layers.map((source) => {
    const layer = { ...source };
    layer.heads = source.heads.map((head, number) => new Head(viewer, layer, head, number));
    return layer;
  });
  viewer.lineEnds = new Set(json.lines || []);
  viewer.label = (token) => (json.tokens ? json.tokens[token] : "");
  return viewer;
}

// Numbers as people read them.
function fewDigits(value, digits = 4) {
  if (value === 0) return "0";
  if (value < 1e-4) return value.toExponential(Math.min(digits, 2) - 1).replace("-", "\u2212");
  return String(Number(value.toPrecision(digits)));
}

function scaled(value, step, units) {
  let unit = 0;
  for (; value >= step && unit + 1 < units.length; ++unit) value /= step;
  return `${Number(value.toPrecision(3))} ${units[unit]}`.trim();
}

const asCount = (value) => value.toLocaleString("en-US");
const asFlops = (value) => scaled(value, 1000, ["", "k", "M", "G", "T", "P", "E"]);
const asBytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
const asTime = (value) => (value >= 1 ? `${fewDigits(value, 3)} s` : value >= 1e-3 ? `${fewDigits(value * 1e3, 3)} ms`
                                                                     : `${fewDigits(value * 1e6, 3)} µs`);
const asPercent = (value) => `${Number((100 * value).toPrecision(3))} %`;
