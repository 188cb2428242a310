// The list of sessions, and the calls of one.
import {listPath} from './api.js';
import {badge, element, link} from './dom.js';
import {showCalls} from './list.js';
import {words} from './outcome.js';
import {problem, untilRetried} from './problem.js';
import {age, shorten} from './text.js';
import {keep, maxObjects, metadataOf} from './watch.js';

const classes = {Active: 'good', Ready: 'good', Running: 'run', Pending: 'wait', Suspended: 'wait', Ended: 'stop', Failed: 'bad'};
const columns = ['State', 'Session', 'Environment', 'Requester', 'Workspace', 'Pod', 'Age'];

class Sessions {
  #namespace; #names = []; #rows = new Map(); #body = element('tbody'); #state; #more = false;

  constructor(namespace, into) {
    this.#namespace = namespace;
    this.#state = element('p', 'note', 'Reading…');
    this.#state.setAttribute('role', 'status');
    this.#state.id = 'state';
    const head = element('thead', '', element('tr', '', ...columns.map((name) => Object.assign(element('th', '', name), {scope: 'col'}))));
    into.append(element('h1', '', `Sessions ${namespace ? `in ${namespace}` : 'in all namespaces'}`), this.#state, element('table', 'table sessions', head, this.#body));
  }

  columns(names) { this.#names = names; }

  reset(rows, more) {
    this.#more = more;
    this.#rows = new Map(rows.map((row) => [metadataOf(row).uid, row]));
    this.#draw();
  }

  put(row) { this.#rows.set(metadataOf(row).uid, row); this.#draw(); }
  remove(row) { this.#rows.delete(metadataOf(row).uid); this.#draw(); }
  connected() { this.#draw(); }
  interrupted(error) { this.#state.replaceChildren(problem(error)); }
  failed(error) { return untilRetried(error, this.#state); }

  #draw() {
    const newest = [...this.#rows.values()].sort((a, b) => Date.parse(metadataOf(b).creationTimestamp) - Date.parse(metadataOf(a).creationTimestamp));
    this.#body.replaceChildren(...newest.slice(0, maxObjects).map((row) => this.#row(row)));
    const count = this.#rows.size;
    this.#state.textContent = count === 0 ? 'There are none.' : `${count} ${count === 1 ? 'session' : 'sessions'}, live.${this.#more ? ' There are more: choose a namespace.' : ''}`;
  }

  #row(row) {
    const {namespace, name, creationTimestamp} = metadataOf(row);
    const cell = (column) => shorten(String(row.cells?.[this.#names.indexOf(column)] ?? ''), 120);
    const phase = cell('Phase') || 'Pending', reason = cell('Reason');
    const cells = [
      [badge(classes[phase] ?? '', phase), reason && reason !== phase ? element('span', 'note small', words(reason)) : ''],
      [link(this.#namespace ? name : `${namespace}/${name}`, 'sessions', namespace, name)],
      [cell('Environment')], [cell('Requested-By')], [cell('Workspace')], [cell('Pod')], [age(creationTimestamp)],
    ];
    return element('tr', '', ...cells.map((children, i) => {
      const made = element('td', i === 6 ? 'number' : 'text', ...children);
      made.dataset.name = columns[i];
      return made;
    }));
  }
}

// showSessions shows the sessions of a namespace, or of all; and the calls of one.
export async function showSessions(namespace, session, into, signal) {
  if (session) return showCalls(namespace, session, into, signal);
  return keep(listPath('toolsessions', namespace), {}, new Sessions(namespace, into), signal);
}
