// One call in the list, as a row of its table.
import {badge, element, link} from './dom.js';
import {outcomes, words} from './outcome.js';
import {duration} from './rows.js';
import {age, milliseconds, seconds, shorten} from './text.js';

// columns are those of the table, each with what it is sorted by.
export const columns = [
  {title: 'Outcome', sort: 'outcome'}, {title: 'What ran', sort: 'summary'}, {title: 'Requester', sort: 'requester'},
  {title: 'Environment', sort: 'environment'}, {title: 'Exit', sort: 'exit'}, {title: 'Duration', sort: 'duration'}, {title: 'Age', sort: 'created'},
];

function cell(name, className, ...children) {
  const made = element('td', className, ...children);
  made.dataset.name = name;
  return made;
}

// reason is said beside the outcome where it adds to it.
function reason({outcome, reason: of}) {
  return ['succeeded', 'approval', 'running'].includes(outcome) || !of ? '' : element('span', 'note small', words(shorten(of, 60)));
}

export function makeRow(entry, isAnywhere, now) {
  const state = outcomes[entry.outcome];
  const name = isAnywhere ? `${entry.namespace}/${entry.name}` : entry.name;
  const what = link(shorten(entry.summary || entry.name), 'call', entry.namespace, entry.name);
  if (entry.summary) what.className = 'mono';
  const row = element('tr', `row ${state.class}`,
    cell('Outcome', 'outcome', badge(state.class, state.word), reason(entry)),
    cell('What ran', 'what text', what, element('span', 'note small', name)),
    cell('Requester', 'who text', shorten(entry.requester, 120)), cell('Environment', 'env text', shorten(entry.environment, 120)),
    cell('Exit', `exit number${entry.exit ? ' error' : ''}`, entry.exit), cell('Duration', 'took number'), cell('Age', 'age number'));
  row.dataset.call = entry.name;
  tick(row, entry, now);
  return row;
}

function write(into, text) { if (into.textContent !== text) into.textContent = text; }

// tick writes what changes with the time alone.
export function tick(row, entry, now) {
  const [took, since] = [row.cells[5], row.cells[6]];
  const ran = duration(entry, now);
  write(took, ran === undefined ? '' : (entry.ran === undefined ? seconds : milliseconds)(ran));
  write(since, entry.created ? age(entry.created, now) : '');
}
