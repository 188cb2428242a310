// Which bytes of a stream a view has, in pages, and which it reads next. Without elements.
import {bytes} from './text.js';

// pageBytes is how long a page gets, and maxPages how many a view keeps. More than that is read again when it is wanted.
export const pageBytes = 64 << 10;
export const maxPages = 6;
// burst is how much is kept of what comes faster than it is drawn: what a view of the end of a stream begins with.
export const burst = 4 * pageBytes;

// slack is how far a page may go on to its next line, and how far a part may be skipped to its first.
const slack = 8 << 10;

// skipped is how much of a part is left out that doesn't begin at the beginning of a stream: up to the first line, or at least up
// to the first character.
export function skipped(part, offset) {
  if (offset === 0) return 0;
  const line = part.subarray(0, slack).indexOf(10);
  if (line >= 0 && line + 1 < part.length) return line + 1;
  let n = 0;
  while (n < 3 && n < part.length && (part[n] & 0xc0) === 0x80) n++;
  return n;
}

// cut is how much of a part still belongs to a page that has a length: up to the end of the line in which it gets full.
export function cut(part, length) {
  const room = Math.max(0, pageBytes - length);
  if (part.length <= room) return part.length;
  const line = part.subarray(room, room + slack).indexOf(10);
  return Math.min(part.length, line >= 0 ? room + line + 1 : room + slack);
}

// before is the range of the page before an offset; null at the beginning. missing is the part of the stream that wasn't kept.
export function before(offset, missing) {
  let end = offset;
  if (missing && end - 1 >= missing[0] && end - 1 <= missing[1]) end = missing[0];
  if (end <= 0) return null;
  let start = Math.max(0, end - pageBytes);
  if (missing && missing[1] >= start && missing[1] < end) start = missing[1] + 1;
  return {start, end};
}

// tail is where a view of the end of a stream begins.
export function tail(total, missing) {
  const start = Math.max(0, total - burst);
  return missing && start >= missing[0] && start <= missing[1] ? missing[1] + 1 : start;
}

// extent says how much there is of a stream, and which part of it is shown; null for all.
export function extent(total, complete, part) {
  if (total === 0) return complete ? 'Nothing was written.' : 'Nothing yet, live.';
  return `${bytes(total)}${part ? `, bytes ${part[0]} to ${part[1]} are shown` : ''}, ${complete ? 'complete' : 'live'}.`;
}

// joined are parts as one.
export function joined(parts) {
  if (parts.length === 1) return parts[0];
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

// Pending are bytes that came and aren't shown yet. Where more come than can be drawn at once, the older are left out.
export class Pending {
  #parts = []; #length = 0;
  skipped = false;

  get length() { return this.#length; }

  add(part) {
    this.#parts.push(part);
    this.#length += part.length;
    while (this.#length > burst) {
      const first = this.#parts[0], surplus = this.#length - burst;
      if (first.length <= surplus) this.#parts.shift();
      else this.#parts[0] = first.subarray(surplus);
      this.#length -= Math.min(first.length, surplus);
      this.skipped = true;
    }
  }

  // take returns the first of them, as many as are drawn at once, and whether older ones were left out.
  take() {
    const all = joined(this.#parts), taken = {bytes: all.subarray(0, pageBytes), skipped: this.skipped};
    this.#parts = all.length > pageBytes ? [all.subarray(pageBytes)] : [];
    this.#length = Math.max(0, all.length - pageBytes);
    this.skipped = false;
    return taken;
  }

  clear() {
    this.#parts = [];
    this.#length = 0;
    this.skipped = false;
  }
}
