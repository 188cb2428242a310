// One stream of a call: its end, followed, and any other part when the reader goes there.
import {ApiError, Backoff, sleep} from './api.js';
import {button, element} from './dom.js';
import {Finder} from './find.js';
import {isFinished} from './outcome.js';
import {before, extent, joined, pageBytes, Pending, skipped, tail} from './pages.js';
import {problem} from './problem.js';
import {saveStream} from './save.js';
import {nextOffset, Stream} from './stream.js';
import {boxOf, Window} from './window.js';

// redraw is how often what comes is drawn at most, in milliseconds, and near how close to an end of the window, in pixels, more is read.
const redraw = 150;
const near = 300;

export class Pane {
  #of; #stream; #box; #window; #state; #notes; #tools; #stop = new AbortController(); #run = new AbortController();
  #pending = new Pending(); #at = null; #total = 0; #missing = null; #attached = true; #middle = false; #moving = false; #timer = 0;
  #status = {}; #deleted = false; #complete = false; #fallen = null;

  // of has title, stream, namespace, name, uid and signal, and told, the errors that the page has said.
  constructor(of) {
    this.#of = {...of, signal: AbortSignal.any([of.signal, this.#stop.signal])};
    this.#stream = new Stream(of);
    this.#box = boxOf(of);
    this.#window = new Window(this.#box);
    this.#state = element('span', 'note', 'Reading…');
    this.#notes = element('p', 'note');
    this.#tools = {beginning: button('Beginning', () => this.#try(() => this.#jump(0))), end: button('End', () => this.#toEnd()), save: button('Save all', () => this.#try(() => saveStream(this.#stream, this.#total, this.#of, (text) => this.#note(text))))};
    this.element = element('section', 'pane', element('div', 'panehead', element('h3', '', of.title), this.#state, element('span', 'tools', ...Object.values(this.#tools))), this.#notes, this.#box);
    this.#box.addEventListener('scroll', () => this.#scrolled(), {passive: true});
    this.#tell();
    this.#begin();
  }

  stop() { this.#stop.abort(); }
  // deleted says that the call's status doesn't change any more.
  deleted() { this.#deleted = true; }
  // update receives the call's status, which has a part of the stream for where the output API doesn't answer.
  update(status) { this.#status = status; }
  showRaw(raw) { this.#flush(); this.#window.showRaw(raw); }

  // search looks through the whole stream.
  async search(query, progress, signal) {
    const finder = new Finder(query);
    if (this.#fallen) finder.feed(this.#fallen);
    else if (this.#total > 0) {
      await this.#stream.range(0, this.#total, (chunk, at) => { progress(at); finder.feed(chunk); }, AbortSignal.any([signal, this.#of.signal]));
    }
    finder.end();
    return finder.found;
  }

  // reveal shows what was found, and returns where it is in the document.
  async reveal(query, {offset, nth}) {
    let place = this.#window.place(query, offset, nth);
    if (!place && !this.#fallen) {
      await this.#jump(offset);
      place = this.#window.place(query, offset, nth);
    }
    return place;
  }

  #begin() {
    this.#run.abort();
    this.#run = new AbortController();
    const signal = AbortSignal.any([this.#of.signal, this.#run.signal]);
    this.#follow(signal).catch((error) => { if (!signal.aborted) this.#state.replaceChildren(problem(error)); });
  }

  async #follow(signal) {
    const backoff = new Backoff();
    for (;;) {
      const from = this.#at;
      try {
        if (await this.#read(backoff, signal)) break;
        if (backoff.lasted() || this.#at !== from) backoff.reached();
        else await backoff.pause(null, signal);
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof ApiError)) throw error;
        if (this.#skip(nextOffset(error))) continue;
        if (!error.passing) return this.#fallBack(error, signal);
        this.#state.replaceChildren(problem(error));
        if (backoff.lasted() || this.#at !== from) backoff.reached();
        await backoff.pause(error, signal);
      }
    }
    this.#flush();
    this.#complete = true;
    if (this.#attached) this.#window.finish();
    this.#tell();
  }

  // #read reads on, and says whether that was the end.
  async #read(backoff, signal) {
    if (this.#at === null) await this.#locate(signal);
    return this.#stream.follow(this.#at, () => { backoff.connected(); this.#tell(); }, (chunk) => this.#take(chunk), signal);
  }

  // #locate finds where the last part begins of what is there.
  async #locate(signal) {
    const {total, missing} = await this.#stream.size(signal);
    this.#total = total;
    this.#missing = missing;
    if (missing) this.#note(`Bytes ${missing[0]} to ${missing[1]} weren't kept.`);
    this.#at = tail(total, missing);
    this.#middle = this.#at > 0 && this.#at !== (missing?.[1] ?? -2) + 1;
  }

  // #skip goes on behind a part that wasn't kept.
  #skip(next) {
    if (next === undefined || next <= (this.#at ?? 0)) return false;
    this.#flush();
    this.#missing ??= [this.#at ?? 0, next - 1];
    this.#note(`Bytes ${this.#at ?? 0} to ${next - 1} weren't kept.`);
    this.#at = next;
    return true;
  }

  #take(chunk) {
    this.#at += chunk.length;
    this.#total = Math.max(this.#total, this.#at);
    if (this.#attached) this.#pending.add(chunk);
    this.#drawSoon();
  }

  // #flush draws all that came.
  #flush() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    while (this.#pending.length > 0) this.#draw();
    this.#tell();
  }

  // #drawSoon draws what came in parts, between which the page does what else there is to do.
  #drawSoon(wait = redraw) {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.#draw();
      this.#tell();
      if (this.#pending.length > 0) this.#drawSoon(0);
    }, wait);
  }

  #draw() {
    if (this.#pending.length === 0) return;
    const offset = this.#at - this.#pending.length;
    const {bytes: came, skipped: older} = this.#pending.take();
    const atEnd = this.#window.atEnd;
    if (older && !atEnd) return this.#detach(); // Who reads what was before isn't taken away from it.
    if (older) this.#window.clear();
    this.#append(came, offset, older || this.#middle);
    this.#middle = false;
    if (atEnd) this.#window.dropFirst();
    else if (this.#window.isFull) this.#detach();
    if (atEnd) this.#box.scrollTop = this.#box.scrollHeight;
  }

  #append(part, offset, isMiddle) {
    const left = isMiddle ? skipped(part, offset) : 0;
    this.#window.append(part.subarray(left), offset + left);
  }

  // #detach keeps the window where its reader is. What comes is read again when it is wanted.
  #detach() {
    this.#attached = false;
    this.#pending.clear();
    this.#window.dropLast();
  }

  #toEnd() {
    if (this.#moving) return;
    this.#window.clear();
    this.#pending.clear();
    this.#at = null;
    this.#attached = true;
    this.#complete = false;
    this.#begin();
  }

  #scrolled() {
    if (this.#window.isEmpty || this.#moving) return;
    if (this.#box.scrollTop < near && this.#window.from > 0) this.#try(() => this.#earlier());
    else if (!this.#attached && this.#box.scrollTop + this.#box.clientHeight > this.#box.scrollHeight - near) this.#try(() => this.#later());
  }

  async #try(act) {
    if (this.#moving) return;
    this.#moving = true;
    try {
      await act();
      this.#tell();
    } catch (error) {
      if (!this.#of.signal.aborted) this.#state.replaceChildren(problem(error));
    } finally {
      this.#moving = false;
    }
  }

  async #bytes(start, end) {
    const parts = [];
    await this.#stream.range(start, end, (chunk, at) => parts.push({chunk, at}), this.#of.signal);
    return parts;
  }

  async #earlier() {
    this.#flush();
    const range = before(this.#window.from, this.#missing);
    if (!range) return;
    const part = joined((await this.#bytes(range.start, range.end)).map(({chunk}) => chunk));
    const left = range.start === (this.#missing?.[1] ?? -2) + 1 ? 0 : skipped(part, range.start);
    this.#window.prepend(part.subarray(left), range.start + left);
    if (this.#window.isFull) this.#detach();
  }

  async #later() {
    for (const {chunk, at} of await this.#bytes(this.#window.to, Math.min(this.#at, this.#window.to + pageBytes))) this.#window.append(chunk, at);
    this.#window.dropFirst();
    this.#attached = this.#window.to >= this.#at;
  }

  // #jump shows another part of the stream.
  async #jump(offset) {
    this.#flush();
    this.#attached = false;
    this.#pending.clear();
    const start = Math.max(0, offset - pageBytes / 8);
    const parts = await this.#bytes(start, Math.min(this.#total, offset + 2 * pageBytes));
    this.#window.clear();
    parts.forEach(({chunk, at}, i) => this.#append(chunk, at, i === 0 && at > 0));
    this.#box.scrollTop = 0;
    this.#attached = this.#window.to >= (this.#at ?? Infinity);
  }

  // #fallBack shows what the status has, where the output itself can't be read.
  async #fallBack(error, signal) {
    if (this.#at !== null) {
      this.#flush();
      this.#state.replaceChildren(problem(error), ' What is shown came before.');
      return;
    }
    while (!this.#deleted && this.#status[this.#of.stream] === undefined && !isFinished(this.#status.phase)) {
      this.#state.replaceChildren(problem(error));
      await sleep(1000, signal);
    }
    this.#fallen = new TextEncoder().encode(this.#status[this.#of.stream] ?? '');
    this.#window.append(this.#fallen, 0);
    this.#window.finish();
    // What keeps one stream from being read mostly keeps the other too: it is said once.
    const isTold = this.#of.told.has(error.message);
    this.#of.told.add(error.message);
    this.#state.replaceChildren(...(isTold ? [] : [problem(error), ' ']), 'What is shown is from the call\'s status.');
    for (const tool of Object.values(this.#tools)) tool.hidden = true;
  }

  #note(text) { if (!this.#notes.textContent.includes(text)) this.#notes.append(element('span', '', text + ' ')); }

  // #tell says how much there is, and which part of it is shown.
  #tell() {
    const {from, to} = this.#window, isWhole = from === 0 && (this.#attached || to >= this.#total);
    if (this.#at !== null) this.#state.textContent = extent(this.#total, this.#complete, isWhole ? null : [from, to]);
    this.element.classList.toggle('nothing', this.#total === 0);
    this.#tools.beginning.hidden = this.#tools.end.hidden = isWhole;
    this.#tools.save.hidden = this.#total === 0;
  }
}
