// Calls as the list has them: from rows of a table, found, counted, sorted and grouped. Without elements.
import {outcomeOf, outcomes} from './outcome.js';

// entryOf is a call, from a row of the table and the names of its columns.
export function entryOf(row, names) {
  const cell = (name) => row.cells?.[names.indexOf(name)] ?? '';
  const {uid, namespace = '', name = '', creationTimestamp = '', labels = {}} = row.object?.metadata ?? {};
  const number = (value) => (value === '' ? undefined : Number(value));
  const entry = {
    uid, namespace, name, labels, created: Date.parse(creationTimestamp) || 0,
    phase: String(cell('Phase') || 'Pending'), reason: String(cell('Reason')), summary: String(cell('Action')),
    environment: String(cell('Environment')), requester: String(cell('Requested-By')), session: String(cell('Session')),
    exit: number(cell('Exit')), ran: number(cell('Duration-MS')), started: Date.parse(cell('Started')) || undefined,
  };
  entry.outcome = outcomeOf(entry.phase, entry.reason);
  entry.text = [name, namespace, entry.summary, entry.environment, entry.requester, entry.session, entry.reason, entry.outcome,
    ...Object.entries(labels).map(([key, value]) => `${key}=${value}`)].join('\n').toLowerCase();
  return entry;
}

// duration is how long a call ran, or has been running, in milliseconds.
export function duration(entry, now) {
  return entry.ran ?? (entry.outcome === 'running' && entry.started ? Math.max(0, now - entry.started) : undefined);
}

// fields are what calls can be chosen by, beside their outcome and text.
export const fields = {
  requester: {title: 'Requester', of: (entry) => [entry.requester]},
  session: {title: 'Session', of: (entry) => [entry.session]},
  environment: {title: 'Environment', of: (entry) => [entry.environment]},
  label: {title: 'Label', of: (entry) => Object.entries(entry.labels).map(([key, value]) => `${key}=${value}`)},
};

// maxValues bounds the values of a field that are offered.
const maxValues = 200;

// valuesOf are the values that a field has, the most frequent first.
export function valuesOf(entries, field) {
  const counts = new Map();
  for (const entry of entries) for (const value of fields[field].of(entry)) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, maxValues);
}

// noFilter finds everything, the newest first, and groups the calls of sessions.
export function noFilter() {
  return {text: '', outcomes: new Set(), requester: '', session: '', environment: '', label: '', sort: 'created', descending: true, grouped: true};
}

export function isFiltered(filter) {
  return filter.text.trim() !== '' || filter.outcomes.size > 0 || Object.keys(fields).some((field) => filter[field]);
}

// find returns the calls that a filter finds, and counts by outcome those that it would find whatever their outcome.
export function find(entries, filter) {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const counts = Object.fromEntries(Object.keys(outcomes).map((outcome) => [outcome, 0]));
  const found = entries.filter((entry) => {
    if (!Object.keys(fields).every((field) => !filter[field] || fields[field].of(entry).includes(filter[field]))) return false;
    if (!words.every((word) => entry.text.includes(word))) return false;
    counts[entry.outcome]++;
    return filter.outcomes.size === 0 || filter.outcomes.has(entry.outcome);
  });
  return {found, counts};
}

const order = Object.keys(outcomes);

// sorts give what is compared. What a call doesn't have comes last, in either direction.
export const sorts = {
  outcome: (entry) => order.indexOf(entry.outcome), summary: (entry) => entry.summary || entry.name, requester: (entry) => entry.requester || undefined,
  environment: (entry) => entry.environment || undefined, exit: (entry) => entry.exit, duration, created: (entry) => entry.created,
};

function compare(a, b) { return typeof a === 'string' ? a.localeCompare(b) : a - b; }

export function sort(entries, {sort: by, descending}, now) {
  const keyed = entries.map((entry) => ({entry, key: sorts[by](entry, now)}));
  keyed.sort((a, b) => {
    if (a.key === undefined || b.key === undefined) return (a.key === undefined) - (b.key === undefined) || compare(a.entry.name, b.entry.name);
    return (descending ? compare(b.key, a.key) : compare(a.key, b.key)) || b.entry.created - a.entry.created || compare(a.entry.name, b.entry.name);
  });
  return keyed.map(({entry}) => entry);
}

// group puts the calls of each session behind one another, where the first of them is. A call without a session stands alone.
export function group(entries) {
  const groups = new Map();
  for (const entry of entries) {
    const key = entry.session ? `${entry.namespace}/${entry.session}` : `/${entry.uid}`;
    if (!groups.has(key)) groups.set(key, {key, session: entry.session, namespace: entry.namespace, entries: []});
    groups.get(key).entries.push(entry);
  }
  return [...groups.values()];
}

// maxPieces bounds the pieces of a time line: those of the newest calls.
const maxPieces = 200;

// timeline places calls between the first start and the last end, as fractions.
export function timeline(entries, now) {
  const spans = entries.map((entry) => {
    const from = entry.started ?? entry.created;
    const live = entry.outcome === 'running' || entry.outcome === 'waiting' || entry.outcome === 'approval';
    return {entry, from, to: live ? Math.max(from, now) : from + (entry.ran ?? 0)};
  }).sort((a, b) => b.from - a.from).slice(0, maxPieces);
  const first = Math.min(...spans.map((span) => span.from)), last = Math.max(...spans.map((span) => span.to));
  const whole = Math.max(1, last - first);
  return {whole: last - first, pieces: spans.map(({entry, from, to}) => ({entry, left: (from - first) / whole, width: (to - from) / whole}))};
}
