// A stream of a call, followed. The page keeps its last part; all of it can be saved.
import {ApiError, Backoff, chunks, logPath, request, sleep} from './api.js';
import {button, element} from './dom.js';
import {problem} from './problem.js';
import {saveAs, maxSaved} from './save.js';
import {bytes, safe} from './text.js';

// shownBytes is how much of a stream the page keeps.
export const shownBytes = 256 << 10;
// redraw is how often the text is drawn at most, in milliseconds.
const redraw = 150;

// Tail keeps the last bytes of a stream.
class Tail {
  #parts = []; #length = 0;
  dropped = false;

  add(part) {
    if (part.length > shownBytes) {
      part = part.slice(-shownBytes);
      this.#parts = [];
      this.#length = 0;
      this.dropped = true;
    }
    this.#parts.push(part);
    this.#length += part.length;
    while (this.#length > shownBytes) {
      this.dropped = true;
      const surplus = this.#length - shownBytes;
      const first = this.#parts[0];
      if (first.length <= surplus) this.#parts.shift();
      else this.#parts[0] = first.slice(surplus);
      this.#length -= Math.min(surplus, first.length);
    }
  }

  // text is what is kept, without the rest of a character that was cut.
  text() {
    const all = new Uint8Array(this.#length);
    let at = 0;
    for (const part of this.#parts) {
      all.set(part, at);
      at += part.length;
    }
    let start = 0;
    while (this.dropped && start < 3 && (all[start] & 0xc0) === 0x80) start++;
    this.#parts = [all];
    return new TextDecoder().decode(all.subarray(start));
  }
}

// nextOffset is where a stream goes on behind a part that wasn't kept.
function nextOffset(error) {
  const cause = error.causes?.find((c) => c.reason === 'NextOffset');
  return cause && /^[0-9]{1,15}$/.test(cause.message) ? Number(cause.message) : undefined;
}

export class Output {
  #of; #stop = new AbortController(); #tail = new Tail(); #text; #state; #notes; #save;
  #at = null; #total = 0; #status = {}; #timer = 0; #deleted = false;

  // of has title, stream, namespace, name, uid, into and signal.
  constructor(of) {
    this.#of = of;
    this.#text = element('pre');
    this.#text.id = of.stream;
    this.#text.tabIndex = 0;
    this.#state = element('span', 'note', 'Reading…');
    this.#notes = element('p', 'note');
    this.#save = button('Save all', () => this.#saveAll());
    of.into.append(element('section', '', element('h3', '', of.title), element('p', '', this.#state, ' ', this.#save), this.#notes, this.#text));
    const signal = AbortSignal.any([of.signal, this.#stop.signal]);
    this.#run(signal).catch((error) => { if (!signal.aborted) this.#state.replaceChildren(problem(error)); });
  }

  stop() { this.#stop.abort(); }

  // deleted says that the call's status doesn't change any more.
  deleted() { this.#deleted = true; }

  // update receives the call's status, which has a part of the stream for where the output API doesn't answer.
  update(status) { this.#status = status; }

  async #run(signal) {
    const backoff = new Backoff();
    for (;;) {
      const before = this.#at;
      try {
        if (await this.#read(backoff, signal)) break;
        if (backoff.lasted() || this.#at !== before) backoff.reached();
        else await backoff.pause(null, signal);
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof ApiError)) throw error;
        const next = nextOffset(error);
        if (next !== undefined && next > (this.#at ?? 0)) {
          this.#note(`Bytes ${this.#at ?? 0} to ${next - 1} weren't kept.`);
          this.#at = next;
          continue;
        }
        if (!error.passing) return this.#fallBack(error, signal);
        this.#state.replaceChildren(problem(error));
        if (backoff.lasted() || this.#at !== before) backoff.reached();
        await backoff.pause(error, signal);
      }
    }
    this.#draw();
    this.#state.textContent = this.#total === 0 ? 'Nothing was written.' : `${bytes(this.#total)}, complete.`;
  }

  // #read reads on, and says whether that was the end.
  async #read(backoff, signal) {
    this.#at ??= await this.#begin(signal);
    const response = await this.#request({offset: String(this.#at), follow: 'true'}, signal);
    backoff.connected();
    if (Number(response.headers.get('Toolcall-Offset')) !== this.#at) throw new ApiError(502, {message: 'The answer begins at another offset.'});
    this.#state.textContent = 'Live.';
    for await (const chunk of chunks(response, signal)) {
      this.#at += chunk.length;
      this.#total = Math.max(this.#total, this.#at);
      this.#tail.add(chunk);
      this.#drawSoon();
    }
    return response.headers.get('Toolcall-Complete') === 'true' && this.#at >= Number(response.headers.get('Toolcall-Bytes'));
  }

  // #begin returns where the last part begins of what is there.
  async #begin(signal) {
    const response = await this.#request({limit: '1'}, signal);
    await response.body?.cancel();
    this.#total = Number(response.headers.get('Toolcall-Bytes'));
    let from = Math.max(0, this.#total - shownBytes);
    const missing = response.headers.get('Toolcall-Missing')?.split('-').map(Number);
    if (missing && missing[0] <= from && from <= missing[1]) from = missing[1] + 1;
    if (missing) this.#note(`Bytes ${missing[0]} to ${missing[1]} weren't kept.`);
    this.#tail.dropped = from > 0;
    return from;
  }

  #request(parameters, signal) {
    const {namespace, name, stream, uid} = this.#of;
    return request(logPath(namespace, name), {stream, uid, ...parameters}, signal);
  }

  // #fallBack shows what the status has, where the output itself can't be read.
  async #fallBack(error, signal) {
    if (this.#at !== null) {
      this.#draw();
      this.#state.replaceChildren(problem(error), ' What is shown came before.');
      return;
    }
    while (!this.#deleted && this.#status[this.#of.stream] === undefined && !['Succeeded', 'Failed', 'Denied', 'Cancelled'].includes(this.#status.phase)) {
      this.#state.replaceChildren(problem(error));
      await sleep(1000, signal);
    }
    this.#text.textContent = safe((this.#status[this.#of.stream] ?? '').slice(-shownBytes));
    this.#state.replaceChildren(problem(error), ' What is shown is from the call\'s status.');
    this.#save.remove();
  }

  #note(text) { this.#notes.append(element('span', '', text + ' ')); }

  #drawSoon() { this.#timer ||= setTimeout(() => this.#draw(), redraw); }

  #draw() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const box = this.#text;
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 20;
    box.textContent = safe(this.#tail.text());
    if (atEnd) box.scrollTop = box.scrollHeight;
    if (this.#tail.dropped) this.#save.title = `The last ${bytes(shownBytes)} are shown.`;
    this.#save.textContent = this.#tail.dropped ? `Save all: the last ${bytes(shownBytes)} are shown` : 'Save all';
  }

  async #saveAll() {
    const {namespace, name, stream, uid, signal} = this.#of;
    if (this.#total > maxSaved) {
      this.#note(`It is too large for a browser. Use: kubectl toolcall logs ${name} -n ${namespace} --stream ${stream}`);
      return;
    }
    try {
      const parts = [];
      for (let at = 0; at < this.#total;) {
        const before = at;
        try {
          const response = await request(logPath(namespace, name), {stream, uid, offset: String(at), limit: String(this.#total - at)}, signal);
          for await (const chunk of chunks(response, signal)) {
            parts.push(chunk);
            at += chunk.length;
          }
        } catch (error) {
          const next = nextOffset(error);
          if (next === undefined) throw error;
          this.#note(`The saved file lacks bytes ${at} to ${next - 1}.`);
          at = next;
        }
        if (at <= before) break;
      }
      saveAs(`${name}.${stream}`, parts);
    } catch (error) {
      if (!signal.aborted) this.#notes.append(problem(error));
    }
  }
}
