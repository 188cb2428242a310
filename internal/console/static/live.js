// Keeps objects for views that are drawn anew when these change.
import {problem, untilRetried} from './problem.js';
import {keep, maxObjects, metadataOf} from './watch.js';

// drawInterval bounds how often a view is drawn.
const drawInterval = 150;

// Live has the objects, or the rows of a table, that a list finds.
export class Live {
  objects = new Map(); more = false; #names = []; #read = false; #timer = 0; #draw; #state;

  // draw draws all objects, and state is an element for errors.
  constructor(state, draw) {
    this.#state = state;
    this.#draw = draw;
  }

  // cell is the value that a row has in a column.
  cell(row, name) { return row.cells?.[this.#names.indexOf(name)] ?? ''; }

  columns(names) { this.#names = names; }

  reset(objects, more) {
    this.objects = new Map(objects.map((object) => [metadataOf(object).uid, object]));
    this.more = more;
    this.#read = true;
    this.connected();
  }

  put(object) {
    this.objects.set(metadataOf(object).uid, object);
    if (this.objects.size > maxObjects) {
      this.objects.delete(this.objects.keys().next().value);
      this.more = true;
    }
    this.connected();
  }

  remove(object) {
    this.objects.delete(metadataOf(object).uid);
    this.connected();
  }

  connected() {
    if (!this.#read) return;
    this.#timer ||= setTimeout(() => { this.#timer = 0; this.#draw(); }, drawInterval);
  }

  interrupted(error) { this.#state.replaceChildren(problem(error)); }
  failed(error) { return untilRetried(error, this.#state); }

  // follow keeps the objects until the signal.
  async follow(path, selector, signal) {
    signal.addEventListener('abort', () => clearTimeout(this.#timer), {once: true});
    await keep(path, selector, this, signal);
  }
}
