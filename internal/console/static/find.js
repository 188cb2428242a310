// Finds a text in a stream that comes in parts. Without elements.
import {joined} from './pages.js';
import {plain} from './sgr.js';

// maxFound bounds what is found, and maxQuery what is looked for.
export const maxFound = 1000;
export const maxQuery = 200;

// block is how much is searched at once. A line that is longer is searched in parts.
const block = 256 << 10;

// lower ignores case, where that leaves each character in its place.
export function lower(text) {
  const small = text.toLowerCase();
  return small.length === text.length ? small : text;
}

// positions are where a text has a query.
export function positions(text, query) {
  const all = [];
  for (let at = text.indexOf(query); at >= 0 && all.length < maxFound; at = text.indexOf(query, at + query.length)) all.push(at);
  return all;
}

// Finder looks through parts, and collects the line of each place: where it begins, and which of the places in it this is.
export class Finder {
  #query; #parts = []; #length = 0; #at;
  found = [];

  constructor(query, offset = 0) {
    this.#query = lower(query.slice(0, maxQuery));
    this.#at = offset;
  }

  get full() { return this.#query === '' || this.found.length >= maxFound; }

  feed(part) {
    this.#parts.push(part);
    this.#length += part.length;
    if (this.#length < block) return;
    const all = joined(this.#parts);
    const end = all.lastIndexOf(10) + 1 || all.length;
    this.#search(all.subarray(0, end));
    this.#parts = [all.subarray(end)];
    this.#length = all.length - end;
    this.#at += end;
  }

  end() { this.#search(joined(this.#parts)); }

  #search(bytes) {
    if (this.full || bytes.length === 0) return;
    const decoded = new TextDecoder('utf-8', {ignoreBOM: true}).decode(bytes);
    const text = lower(plain(decoded));
    let line = 0, at = 0, textAt = 0, nth = 0;
    for (const place of positions(text, this.#query)) {
      for (let next = text.indexOf('\n', textAt); next >= 0 && next < place; next = text.indexOf('\n', textAt)) {
        textAt = next + 1;
        line = bytes.indexOf(10, line) + 1;
        nth = 0;
      }
      at = this.#at + line;
      if (this.full) return;
      this.found.push({offset: at, nth: nth++});
    }
  }
}
