// The lists of calls and of sessions.
import {listPath} from './api.js';
import {element, link, phase, table} from './dom.js';
import {age, milliseconds, safeLine, shorten} from './text.js';
import {keep, maxObjects, metadataOf} from './watch.js';
import {problem, untilRetried} from './problem.js';

const kinds = {
  calls: {resource: 'toolcalls', title: 'Calls', columns: ['Phase', 'Reason', 'Action', 'Environment', 'Requested-By', 'Duration-MS']},
  sessions: {resource: 'toolsessions', title: 'Sessions', columns: ['Phase', 'Reason', 'Environment', 'Requested-By', 'Workspace', 'Incarnation', 'Pod']},
};

// List shows rows, the newest first.
class List {
  #kind; #namespace; #names = []; #rows = new Map(); #body; #state; #more = false;

  constructor(kind, namespace, into) {
    this.#kind = kind;
    this.#namespace = namespace;
    const shown = table([...(namespace ? [] : ['Namespace']), 'Name', ...kind.columns.map((c) => c.replace(/-MS$/, '')), 'Age']);
    this.#body = shown.lastChild;
    this.#state = element('p', 'note', 'Reading…');
    this.#state.setAttribute('role', 'status');
    this.#state.id = 'state';
    into.append(element('h2', '', `${kind.title} ${namespace ? `in ${namespace}` : 'in all namespaces'}`), this.#state, shown);
  }

  columns(names) { this.#names = names; }

  reset(rows, more) {
    this.#rows.clear();
    this.#body.replaceChildren();
    this.#more = more;
    rows.sort((a, b) => this.#compare(metadataOf(a), metadataOf(b)));
    for (const row of rows) this.#body.append(this.#make(row));
    this.#tell();
  }

  put(row) {
    const metadata = metadataOf(row);
    const before = this.#rows.get(metadata.uid);
    const made = this.#make(row);
    if (before) {
      before.line.replaceWith(made);
    } else {
      const next = [...this.#body.children].find((line) => this.#compare(metadata, this.#rows.get(line.dataset.uid).metadata) < 0);
      this.#body.insertBefore(made, next ?? null);
      while (this.#rows.size > maxObjects) this.#drop(this.#body.lastChild.dataset.uid);
    }
    this.#tell();
  }

  remove(row) {
    this.#drop(metadataOf(row).uid);
    this.#tell();
  }

  connected() { this.#tell(); }
  interrupted(error) { this.#state.replaceChildren(problem(error)); }
  failed(error) { return untilRetried(error, this.#state); }

  refreshAges() {
    for (const {line, metadata} of this.#rows.values()) line.lastChild.textContent = age(metadata.creationTimestamp);
  }

  #compare(a, b) {
    return (b.creationTimestamp ?? '').localeCompare(a.creationTimestamp ?? '') || (a.name ?? '').localeCompare(b.name ?? '');
  }

  #drop(uid) {
    this.#rows.get(uid)?.line.remove();
    this.#rows.delete(uid);
  }

  #tell() {
    const count = this.#rows.size;
    this.#state.textContent = count === 0 ? 'There are none.' : this.#more || count >= maxObjects ?
      `${count} are shown, and there are more: choose a namespace, or use kubectl toolcall get.` : `${count}, live.`;
  }

  #make(row) {
    const metadata = metadataOf(row);
    const cell = (name) => row.cells?.[this.#names.indexOf(name)] ?? '';
    const line = element('tr');
    if (!this.#namespace) line.append(element('td', 'text', metadata.namespace));
    const name = this.#kind.resource === 'toolcalls' ? link(metadata.name, 'call', metadata.namespace, metadata.name) : metadata.name;
    line.append(element('td', 'text', name));
    for (const column of this.#kind.columns) line.append(this.#cell(column, cell(column)));
    line.append(element('td', 'number', age(metadata.creationTimestamp)));
    line.dataset.uid = metadata.uid;
    this.#rows.set(metadata.uid, {line, metadata});
    return line;
  }

  #cell(column, value) {
    if (column === 'Phase') return element('td', '', phase(String(value || 'Pending')));
    if (column === 'Duration-MS') return element('td', 'number', value === '' || value === null ? '' : milliseconds(Number(value)));
    return element('td', 'text', shorten(safeLine(value)));
  }
}

// showList shows a list until the signal.
async function showList(name, namespace, into, signal) {
  const kind = kinds[name];
  const shown = new List(kind, namespace, into);
  const timer = setInterval(() => shown.refreshAges(), 5000);
  signal.addEventListener('abort', () => clearInterval(timer), {once: true});
  await keep(listPath(kind.resource, namespace), {}, shown, signal);
}

export function showCalls(namespace, _, into, signal) { return showList('calls', namespace, into, signal); }
export function showSessionList(namespace, into, signal) { return showList('sessions', namespace, into, signal); }
