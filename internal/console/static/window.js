// The part of a stream that the page shows: a few pages of it, each an element, with the colours of terminals.
import {element} from './dom.js';
import {cut, joined, maxPages, pageBytes} from './pages.js';
import {lower, positions} from './find.js';
import {Sgr} from './sgr.js';
import {safe} from './text.js';

// maxSpans bounds the elements of a page. The rest of its text has no colours.
const maxSpans = 3000;

// boxOf is an element that a window may fill.
export function boxOf({stream, title}) {
  const box = element('pre', 'terminal');
  box.id = stream;
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', title);
  return box;
}

export class Window {
  #box; #pages = []; #decoder = null; #sgr = null; #raw = false;

  // box is one of boxOf.
  constructor(box) { this.#box = box; }

  get from() { return this.#pages[0]?.from ?? 0; }
  get to() { return this.#pages.at(-1)?.to ?? 0; }
  get isEmpty() { return this.#pages.length === 0; }
  get isFull() { return this.#pages.length > maxPages; }
  get atEnd() { return this.#box.scrollTop + this.#box.clientHeight >= this.#box.scrollHeight - 24; }

  clear() {
    this.#pages = [];
    this.#decoder = this.#sgr = null;
    this.#box.replaceChildren();
  }

  // append shows bytes that begin at an offset, behind those that are shown.
  append(bytes, offset) {
    for (let at = 0; at < bytes.length;) {
      let page = this.#pages.at(-1);
      if (!page || page.to !== offset + at || page.to - page.from >= pageBytes) page = this.#begin(offset + at);
      const end = at + cut(bytes.subarray(at), page.to - page.from);
      this.#fill(page, bytes.subarray(at, end));
      at = end;
    }
  }

  // finish shows what is left of a character or a sequence that never ended.
  finish() {
    const page = this.#pages.at(-1);
    if (page && this.#decoder) this.#show(page, [...this.#read(this.#decoder.decode()), ...(this.#sgr?.end() ?? [])]);
    this.#decoder = this.#sgr = null;
  }

  // prepend shows bytes before those that are shown, which stay where they are on the screen.
  prepend(bytes, offset) {
    const {scrollHeight, scrollTop} = this.#box;
    const page = {from: offset, to: offset + bytes.length, parts: [bytes], node: document.createElement('div'), spans: 0};
    const sgr = new Sgr(), text = new TextDecoder().decode(bytes);
    this.#show(page, this.#raw ? [{text: safe(text), classes: ''}] : [...sgr.feed(text), ...sgr.end()]);
    this.#pages.unshift(page);
    this.#box.prepend(page.node);
    this.#box.scrollTop = scrollTop + this.#box.scrollHeight - scrollHeight;
  }

  dropFirst() {
    while (this.isFull) {
      const {scrollHeight, scrollTop} = this.#box;
      this.#pages.shift().node.remove();
      this.#box.scrollTop = Math.max(0, scrollTop + this.#box.scrollHeight - scrollHeight);
    }
  }

  dropLast() {
    while (this.isFull) {
      this.#pages.pop().node.remove();
      this.#decoder = this.#sgr = null;
    }
  }

  // showRaw makes all control characters visible, or none of those that colours are made of.
  showRaw(raw) {
    const pages = this.#pages;
    this.#raw = raw;
    this.clear();
    for (const page of pages) this.append(joined(page.parts), page.from);
  }

  // place is the range of a text in the document: the nth in the line that begins at an offset; null if it isn't shown.
  place(query, offset, nth) {
    const page = this.#pages.find(({from, to}) => from <= offset && offset < to);
    if (!page) return null;
    let lines = 0, left = offset - page.from;
    for (const part of page.parts) {
      for (const byte of part.subarray(0, Math.max(0, left))) if (byte === 10) lines++;
      left -= part.length;
    }
    const text = page.node.textContent;
    let start = 0;
    while (lines-- > 0) start = text.indexOf('\n', start) + 1;
    const at = positions(lower(text.slice(start)), lower(query))[nth];
    return at === undefined ? null : rangeIn(page.node, start + at, query.length);
  }

  #begin(from) {
    const page = {from, to: from, parts: [], node: document.createElement('div'), spans: 0};
    this.#pages.push(page);
    this.#box.append(page.node);
    return page;
  }

  #fill(page, bytes) {
    page.parts.push(bytes.slice());
    page.to += bytes.length;
    this.#decoder ??= new TextDecoder();
    this.#show(page, this.#read(this.#decoder.decode(bytes, {stream: true})));
  }

  #read(text) {
    if (this.#raw) return [{text: safe(text), classes: ''}];
    this.#sgr ??= new Sgr();
    return this.#sgr.feed(text);
  }

  #show(page, spans) {
    for (const {text, classes, again} of spans) {
      if (again) { clearLine(page); continue; }
      const last = page.node.lastChild;
      const wanted = page.spans < maxSpans ? classes : '';
      if (last && last.className === wanted) {
        last.firstChild.appendData(text);
        continue;
      }
      const made = document.createElement('span');
      made.className = wanted;
      made.append(text);
      page.node.append(made);
      page.spans++;
    }
  }
}

// clearLine removes what the last line of a page has so far.
function clearLine(page) {
  for (let last = page.node.lastChild; last; last = page.node.lastChild) {
    const shown = last.firstChild, line = shown.data.lastIndexOf('\n') + 1;
    if (line > 0) { shown.deleteData(line, shown.data.length - line); return; }
    last.remove();
    page.spans--;
  }
}

// rangeIn is a range of characters of an element.
function rangeIn(node, start, length) {
  const range = new Range();
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  let at = 0, begun = false;
  while (walker.nextNode()) {
    const text = walker.currentNode, end = at + text.length;
    if (!begun && start < end) { range.setStart(text, start - at); begun = true; }
    if (begun && start + length <= end) { range.setEnd(text, start + length - at); return range; }
    at = end;
  }
  return null;
}
