// The output of a call: its streams apart, or together in the order in which they were written, and a search in them.
import {button, element} from './dom.js';
import {Finder, maxFound, maxQuery} from './find.js';
import {Pane} from './pane.js';
import {problem} from './problem.js';
import {bytes} from './text.js';
import {boxOf, Window} from './window.js';

// Merged is the text that the call's status has for a model: both streams in order, shortened, and without colours.
class Merged {
  #window; #data = new Uint8Array();

  constructor() {
    const box = boxOf({stream: 'merged', title: 'Both streams, in order'});
    this.#window = new Window(box);
    this.element = element('section', 'pane', element('div', 'panehead', element('h3', '', 'In order'),
      element('span', 'note', 'As a model reads it: shortened, and without colours.')), box);
  }

  update(text) {
    this.#data = new TextEncoder().encode(text);
    this.#window.clear();
    this.#window.append(this.#data, 0);
    this.#window.finish();
  }

  showRaw(raw) { this.#window.showRaw(raw); }

  async search(query) {
    const finder = new Finder(query);
    finder.feed(this.#data);
    finder.end();
    return finder.found;
  }

  async reveal(query, {offset, nth}) { return this.#window.place(query, offset, nth); }
}

// toggle is a button that is pressed or not.
function toggle(text, pressed, act) {
  const made = button(text, () => {
    pressed = !pressed;
    made.setAttribute('aria-pressed', pressed);
    act(pressed);
  });
  made.setAttribute('aria-pressed', pressed);
  return made;
}

export class Output {
  #panes; #merged = new Merged(); #box = element('div', 'panes'); #order; #search; #status = {}; #inOrder = false;

  // of has namespace, name, uid, into and signal.
  constructor(of) {
    const told = new Set();
    this.#panes = [['Standard output', 'stdout'], ['Standard error', 'stderr']].map(([title, stream]) => new Pane({...of, title, stream, told}));
    this.#order = toggle('In order', false, (pressed) => { this.#inOrder = pressed; this.#arrange(); });
    this.#search = new Search(() => this.#shown, of.signal);
    const raw = toggle('Control characters', false, (pressed) => [...this.#panes, this.#merged].forEach((pane) => pane.showRaw(pressed)));
    raw.title = 'Show every control character and escape sequence as text';
    const wrap = toggle('Wrap lines', true, (pressed) => this.#box.classList.toggle('unwrapped', !pressed));
    of.into.replaceChildren(element('div', 'toolbar', element('h2', '', 'Output'), this.#search.element, element('span', 'tools', this.#order, wrap, raw)), this.#box);
    this.#arrange();
  }

  stop() { this.#panes.forEach((pane) => pane.stop()); }
  deleted() { this.#panes.forEach((pane) => pane.deleted()); }

  update(status) {
    this.#panes.forEach((pane) => pane.update(status));
    if (status.output !== this.#status.output) this.#merged.update(status.output ?? '');
    this.#status = status;
    this.#order.hidden = !status.output;
  }

  get #shown() { return this.#inOrder ? [this.#merged] : this.#panes; }

  #arrange() {
    this.#order.hidden = !this.#status.output;
    this.#box.replaceChildren(...this.#shown.map((pane) => pane.element));
  }
}

// Search finds a text in the panes that are shown.
class Search {
  #panes; #signal; #input = element('input'); #state = element('span', 'note'); #query = ''; #searched = []; #found = []; #at = -1; #stop = new AbortController();

  constructor(panes, signal) {
    this.#panes = panes;
    this.#signal = signal;
    this.#input.type = 'search';
    this.#input.id = 'find';
    this.#input.maxLength = maxQuery;
    this.#input.placeholder = 'Search the output';
    this.#input.setAttribute('aria-label', 'Search the output');
    this.#state.setAttribute('role', 'status');
    this.#input.addEventListener('keydown', (event) => { if (event.key === 'Enter') this.#go(event.shiftKey ? -1 : 1); });
    this.element = element('div', 'find grow', this.#input, button('Previous', () => this.#go(-1)), button('Next', () => this.#go(1)), this.#state);
    this.element.setAttribute('role', 'search');
    signal.addEventListener('abort', () => globalThis.CSS?.highlights?.delete('found'), {once: true});
  }

  async #go(step) {
    try {
      if (!this.#isFresh()) await this.#all();
      const count = this.#found.length;
      if (count === 0) return;
      this.#at = this.#at < 0 && step < 0 ? count - 1 : (this.#at + step + count) % count;
      const {pane, place} = this.#found[this.#at];
      this.#mark(await pane.reveal(this.#query, place));
      this.#state.textContent = `${this.#at + 1} of ${count}${count >= maxFound ? ' or more' : ''}`;
    } catch (error) {
      if (!this.#signal.aborted && error.name !== 'AbortError') this.#state.replaceChildren(problem(error));
    }
  }

  #isFresh() { return this.#query === this.#input.value && this.#searched.length > 0 && this.#searched.every((pane, i) => pane === this.#panes()[i]); }

  async #all() {
    this.#stop.abort(new DOMException('another search', 'AbortError'));
    this.#stop = new AbortController();
    this.#query = this.#input.value;
    this.#searched = this.#panes();
    this.#found = [];
    this.#at = -1;
    this.#state.textContent = this.#query ? 'Searching…' : '';
    for (const pane of this.#searched) {
      const progress = (at) => { this.#state.textContent = `Searching… ${bytes(at)}`; };
      this.#found.push(...(await pane.search(this.#query, progress, this.#stop.signal)).map((place) => ({pane, place})));
    }
    if (this.#found.length === 0 && this.#query) this.#state.textContent = 'Not found.';
  }

  #mark(range) {
    if (!range) return;
    globalThis.CSS?.highlights?.set('found', new Highlight(range));
    const box = range.startContainer.parentElement.closest('pre'), at = range.getBoundingClientRect(), outer = box.getBoundingClientRect();
    box.scrollTop += at.top - outer.top - outer.height / 3;
    box.scrollLeft += at.left - outer.left - outer.width / 3;
  }
}
