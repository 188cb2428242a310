// Colours of terminals, from text of others. Of all escape sequences only those that select graphics (SGR) have an effect, and
// theirs is one of the names below: never a colour, an address or a text of the output itself. Complete sequences of other kinds
// are left out. A line that is drawn again after a carriage return, such as a progress bar, has only what stood there last.
// Everything else that isn't plain text is made visible. Without elements.
import {safe} from './text.js';

const csi = /\x1b\[([\x30-\x3f]{0,128})([\x20-\x2f]{0,8})([\x40-\x7e])/y;
const string = /\x1b[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)/y;
const short = /\x1b[\x20-\x2f]{0,8}[\x30-\x7e]/y;
// unfinished is a sequence that the next part may complete.
const unfinished = /\x1b(?:\[[\x30-\x3f]{0,128}[\x20-\x2f]{0,8}|[\]PX^_][^\x07\x1b\n]{0,4096}\x1b?|[\x20-\x2f]{0,8})$/y;

// base are the 16 colours of terminals, to which all others are mapped.
const base = ['000000', 'cd0000', '00cd00', 'cdcd00', '1e50ee', 'cd00cd', '00cdcd', 'd0d0d0', '7f7f7f', 'ff0000', '00ff00', 'ffff00', '5c8cff', 'ff00ff', '00ffff', 'ffffff']
  .map((hex) => [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)));

// nearest is the number of the base colour that is most like another.
export function nearest(rgb) {
  const distance = (colour) => colour.reduce((sum, value, i) => sum + (value - rgb[i]) ** 2, 0);
  return base.reduce((best, colour, i) => (distance(colour) < distance(base[best]) ? i : best), 0);
}

// ofTable is the base colour for one of the table of 256.
export function ofTable(n) {
  if (n < 16) return n;
  if (n > 231) return nearest([0, 0, 0].fill(8 + 10 * (n - 232)));
  const level = (value) => (value === 0 ? 0 : 55 + 40 * value);
  return nearest([Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map(level));
}

const inRange = (n) => Number.isInteger(n) && n >= 0 && n <= 255;

// extended reads a colour after 38 or 48, and returns it with how many numbers it took; null for none.
function extended(numbers) {
  if (numbers[0] === 5) return [inRange(numbers[1]) ? ofTable(numbers[1]) : null, 2];
  if (numbers[0] === 2) return [numbers.length > 3 && numbers.slice(1, 4).every(inRange) ? nearest(numbers.slice(1, 4)) : null, 4];
  return [null, 1];
}

const flags = {1: 'bold', 2: 'dim', 3: 'italic', 4: 'underline', 7: 'inverse', 9: 'strike', 21: 'underline'};
const cleared = {22: ['bold', 'dim'], 23: ['italic'], 24: ['underline'], 27: ['inverse'], 29: ['strike'], 39: ['fg'], 49: ['bg']};

// select applies the parameters of one sequence to a style.
function select(style, parameters) {
  const all = parameters.split(';').slice(0, 32);
  for (let i = 0; i < all.length; i++) {
    const parts = all[i].split(':').map((part) => (part === '' ? 0 : Number(part)));
    const n = parts[0];
    if (n === 38 || n === 48) {
      // With colons a colour is one parameter, in which a colour space may come before red.
      const rest = parts.length > 1 ? parts.slice(1).filter((_, at, list) => !(list[0] === 2 && list.length > 4 && at === 1)) : all.slice(i + 1).map(Number);
      const [colour, took] = extended(rest);
      if (parts.length === 1) i += took;
      if (colour !== null) style = {...style, [n === 38 ? 'fg' : 'bg']: colour};
    } else {
      style = selectOne(style, n, parts[1]);
    }
  }
  return style;
}

function selectOne(style, n, variant) {
  if (n === 0) return {};
  if (n === 4 && variant === 0) return {...style, underline: undefined};
  if (flags[n]) return {...style, [flags[n]]: true};
  if (cleared[n]) return {...style, ...Object.fromEntries(cleared[n].map((name) => [name, undefined]))};
  for (const [from, to, name, first] of [[30, 37, 'fg', 0], [40, 47, 'bg', 0], [90, 97, 'fg', 8], [100, 107, 'bg', 8]]) {
    if (n >= from && n <= to) return {...style, [name]: n - from + first};
  }
  return style;
}

// classesOf are the names for a style. A background chooses the colour of its text, so that none can hide it.
function classesOf(style) {
  const names = ['bold', 'italic', 'underline', 'strike'].filter((name) => style[name]).map((name) => `t-${name}`);
  const back = style.inverse ? style.fg ?? 'inverse' : style.bg;
  if (back !== undefined) names.push(`t-bg${back}`);
  else if (style.fg !== undefined) names.push(`t-fg${style.fg}`);
  else if (style.dim) names.push('t-dim');
  return names.join(' ');
}

// drawAgain drops what the last line has so far. What was returned of it before, whoever shows it drops.
function drawAgain(spans) {
  for (let last = spans.at(-1); last && !last.again; last = spans.at(-1)) {
    const line = last.raw.lastIndexOf('\n') + 1;
    if (line > 0) {
      last.raw = last.raw.slice(0, line);
      last.isClosed = true; // A line that is drawn very often isn't copied each time together with what is before it.
      return;
    }
    spans.pop();
  }
  if (spans.length === 0) spans.push({raw: '', classes: '', again: true});
}

function shown(spans) {
  return spans.filter(({raw, again}) => raw !== '' || again).map(({raw, classes, again}) => ({text: safe(raw), classes, again}));
}

// Sgr reads a text in parts.
export class Sgr {
  #style = {}; #classes = ''; #rest = ''; #isAtStart = false;

  // feed returns the spans of a part: each has a text, made harmless, and classes. If the first has `again`, the others stand in place of
  // what the last line had before.
  feed(part) {
    const text = this.#rest + part;
    this.#rest = '';
    const spans = [];
    let at = 0;
    while (at < text.length) {
      const next = text.indexOf('\x1b', at);
      if (next < 0) { this.#put(spans, text.slice(at)); break; }
      this.#put(spans, text.slice(at, next));
      at = this.#sequence(text, next, spans);
    }
    return shown(spans);
  }

  // end returns what is left of a sequence that never ended.
  end() {
    const spans = [];
    const rest = this.#rest;
    this.#rest = '';
    this.#put(spans, rest);
    return shown(spans);
  }

  // #sequence takes what begins with an escape, and returns where the text goes on.
  #sequence(text, at, spans) {
    unfinished.lastIndex = at;
    if (unfinished.test(text)) {
      this.#rest = text.slice(at);
      return text.length;
    }
    csi.lastIndex = string.lastIndex = short.lastIndex = at;
    const found = csi.exec(text);
    if (found) {
      if (found[3] === 'm' && found[2] === '' && /^[0-9;:]*$/.test(found[1])) {
        this.#style = select(this.#style, found[1]);
        this.#classes = classesOf(this.#style);
      }
      return csi.lastIndex;
    }
    if (string.test(text)) return string.lastIndex;
    if (short.test(text)) return short.lastIndex;
    this.#put(spans, '\x1b');
    return at + 1;
  }

  // #put adds text. A line stands as it is until something else than its end follows a carriage return.
  #put(spans, text) {
    for (const [raw] of text.matchAll(/\r+|[^\r]+/g)) {
      if (raw[0] === '\r') { this.#isAtStart = true; continue; }
      if (this.#isAtStart && raw[0] !== '\n') drawAgain(spans);
      this.#isAtStart = false;
      const last = spans.at(-1);
      if (last && !last.again && !last.isClosed && last.classes === this.#classes) last.raw += raw;
      else spans.push({raw, classes: this.#classes});
    }
  }
}

// plain is a text without what Sgr leaves out. Most texts have no other sequences than those of colours.
export function plain(text) {
  const bare = text.replace(/\x1b\[[0-9;:]{0,128}m/g, '').replaceAll('\r\n', '\n');
  if (!/[\x1b\r]/.test(bare)) return safe(bare);
  const reader = new Sgr();
  return [...reader.feed(text), ...reader.end()].map((span) => span.text).join('');
}
