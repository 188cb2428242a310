// The list of calls, live: filtered, sorted, and the calls of a session as one group.
import {listPath} from './api.js';
import {button, element} from './dom.js';
import {head} from './elements.js';
import {Filters} from './filters.js';
import {problem, untilRetried} from './problem.js';
import {columns, makeRow, tick} from './row.js';
import {duration, entryOf, find, group, isFiltered, noFilter, sort} from './rows.js';
import {makeHead} from './session.js';
import {keep, maxObjects, metadataOf} from './watch.js';

// step is how many lines are drawn, and how many more when the reader gets to the last. longGroup is from how many calls on a
// group is folded at first.
const step = 120;
const longGroup = 8;
// redraw is how often the list is drawn at most, in milliseconds.
const redraw = 100;

// filters are those that were chosen on this page, by session: a reader who comes back from a call finds the list as it was.
const filters = new Map();

function filterOf(session) {
  if (!filters.has(session)) filters.set(session, noFilter());
  return filters.get(session);
}

export class CallList {
  // #atEnd draws more when the reader gets to the end of what is drawn.
  #atEnd = new IntersectionObserver((seen) => {
    if (this.#rest.hidden || !seen.some((entry) => entry.isIntersecting)) return;
    this.#limit += step;
    this.#soon();
  }, {rootMargin: '600px'});
  #namespace; #session; #filter; #filters; #names = []; #entries = new Map(); #rows = new Map(); #folded = new Map(); #limit = step;
  #body = element('tbody'); #heads = []; #state; #more = false; #message; #frame = 0; #rest;

  constructor(namespace, session, into) {
    this.#namespace = namespace;
    this.#session = session;
    this.#filter = filterOf(session);
    this.#filters = new Filters(this.#filter, () => { this.#limit = step; this.#draw(); });
    this.#state = head(session ? `Session ${session}` : 'Calls', namespace, into);
    this.#state.before(this.#filters.element);
    this.#rest = button('Show more', () => { this.#limit += step; this.#draw(); });
    this.#rest.hidden = true;
    const titles = element('tr', '', ...columns.map((column) => this.#head(column)));
    into.append(element('table', 'table calls', element('thead', '', titles), this.#body), this.#rest);
  }

  columns(names) { this.#names = names; }

  reset(rows, more) {
    this.#entries.clear();
    this.#more = more;
    for (const row of rows) this.#keep(row);
    this.#draw();
  }

  put(row) {
    this.#keep(row);
    while (this.#entries.size > maxObjects) {
      this.#entries.delete(this.#oldest());
      this.#more = true;
    }
    this.#soon();
  }

  remove(row) {
    this.#entries.delete(metadataOf(row).uid);
    this.#soon();
  }

  connected() { this.#message = null; this.#soon(); }
  interrupted(error) { this.#message = problem(error); this.#soon(); }

  failed(error) {
    this.#message = element('span');
    this.#soon();
    return untilRetried(error, this.#message);
  }

  // tick writes what changes with the time alone.
  tick() {
    const now = Date.now();
    for (const {row, entry} of this.#rows.values()) if (entry) tick(row, entry, now);
  }

  #keep(row) {
    const entry = entryOf(row, this.#names);
    this.#entries.set(entry.uid, entry);
  }

  #oldest() { return [...this.#entries.values()].reduce((a, b) => (b.created < a.created ? b : a)).uid; }

  #head({title, sort: by}) {
    const made = button(title, () => {
      const descending = this.#filter.sort === by ? !this.#filter.descending : by === 'created' || by === 'duration';
      Object.assign(this.#filter, {sort: by, descending});
      this.#draw();
    });
    made.className = 'quiet';
    const cell = element('th', '', made);
    cell.scope = 'col';
    this.#heads.push({cell, by});
    return cell;
  }

  // #soon draws once for many changes.
  #soon() { this.#frame ||= setTimeout(() => this.#draw(), redraw); }

  #draw() {
    clearTimeout(this.#frame);
    this.#frame = 0;
    const now = Date.now();
    const entries = [...this.#entries.values()];
    const {found, counts} = find(entries, this.#filter);
    const lines = this.#lines(sort(found, this.#filter, now));
    this.#place(lines.slice(0, this.#limit).map((line) => this.#rowOf(line, now)));
    this.#rest.hidden = lines.length <= this.#limit;
    // Observed anew, it is told again where the end is.
    this.#atEnd.disconnect();
    this.#atEnd.observe(this.#rest);
    this.#filters.show(entries, counts);
    for (const {cell, by} of this.#heads) {
      if (by === this.#filter.sort) cell.setAttribute('aria-sort', this.#filter.descending ? 'descending' : 'ascending');
      else cell.removeAttribute('aria-sort');
    }
    this.#tell(entries.length, found.length);
  }

  // #lines are what the table has: calls, and heads of groups.
  #lines(sorted) {
    if (!this.#filter.grouped) return sorted.map((entry) => ({entry}));
    return group(sorted).flatMap((of) => {
      const lines = of.entries.map((entry) => ({entry, inGroup: Boolean(of.session)}));
      if (!of.session) return lines;
      const isFolded = this.#folded.get(of.key) ?? (of.entries.length > longGroup && !this.#session && !this.#filter.session);
      return [{group: of, isFolded}, ...(isFolded ? [] : lines)];
    });
  }

  // #rowOf returns the row of a line: the one that there is, if it would be the same.
  #rowOf({entry, inGroup, group: of, isFolded}, now) {
    const key = entry ? entry.uid : `group ${of.key}`;
    const isLive = !entry && of.entries.some((e) => duration(e, now) !== undefined && e.ran === undefined);
    const state = entry ? JSON.stringify([entry.phase, entry.reason, entry.exit, entry.ran, entry.summary, entry.environment, inGroup]) :
      JSON.stringify([isFolded, isLive && now, of.entries.map((e) => [e.uid, e.outcome, e.ran])]);
    const before = this.#rows.get(key);
    if (before?.state === state) return before;
    const row = entry ? makeRow(entry, !this.#namespace, now) : makeHead(of, isFolded, () => { this.#folded.set(of.key, !isFolded); this.#draw(); }, now);
    row.classList.toggle('grouped', Boolean(inGroup));
    const made = {key, state, row, entry, before: before?.row};
    this.#rows.set(key, made);
    return made;
  }

  // #place makes the table have these rows. A row that is made anew keeps the focus of the one before it.
  #place(lines) {
    const wanted = new Set(lines.map(({key}) => key));
    lines.forEach((line, i) => {
      const hasFocus = line.before?.contains(document.activeElement);
      if (line.before) line.before.replaceWith(line.row);
      if (this.#body.children[i] !== line.row) this.#body.insertBefore(line.row, this.#body.children[i] ?? null);
      if (hasFocus) line.row.querySelector('a, button')?.focus();
      line.before = undefined;
    });
    for (const [key, {row}] of this.#rows) {
      if (wanted.has(key)) continue;
      row.remove();
      this.#rows.delete(key);
    }
  }

  #tell(count, found) {
    const all = `${count} ${count === 1 ? 'call' : 'calls'}`;
    const more = this.#more ? ` There are more: ${this.#namespace ? '' : 'choose a namespace, or '}use kubectl toolcall get.` : '';
    const text = count === 0 && !more ? 'There are none.' : `${isFiltered(this.#filter) ? `${found} of ${all}` : all}, live.${more}`;
    if (this.#message) this.#state.replaceChildren(this.#message);
    else if (this.#state.textContent !== text) this.#state.textContent = text;
  }
}

// showCalls shows the calls of a namespace, or of all, until the signal; and those of a session.
export async function showCalls(namespace, session, into, signal) {
  const shown = new CallList(namespace, session, into);
  const timer = setInterval(() => shown.tick(), 1000);
  signal.addEventListener('abort', () => clearInterval(timer), {once: true});
  await keep(listPath('toolcalls', namespace), session ? {fieldSelector: `spec.sessionRef.name=${session}`} : {}, shown, signal);
}
