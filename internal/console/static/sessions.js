// The list of sessions, and the calls of one.
import {listPath} from './api.js';
import {badge, element, link, table} from './dom.js';
import {head, redraw} from './elements.js';
import {showCalls} from './list.js';
import {Live} from './live.js';
import {words} from './outcome.js';
import {age, shorten} from './text.js';
import {metadataOf} from './watch.js';

const classes = {Ready: 'good', Pending: 'wait', Suspended: 'wait', Ended: 'stop'};

// line is what the list says of a session.
function line(live, row, namespace) {
  const {namespace: of, name, creationTimestamp} = metadataOf(row);
  const cell = (column) => shorten(String(live.cell(row, column)), 120);
  const phase = cell('Phase') || 'Pending', reason = cell('Reason');
  return [
    element('span', '', badge(classes[phase] ?? '', phase), reason && reason !== phase ? element('span', 'note small', words(reason)) : ''),
    link(namespace ? name : `${of}/${name}`, 'sessions', of, name),
    cell('Environment'), cell('Requested-By'), cell('Workspace'), cell('Pod'), element('span', 'number', age(creationTimestamp)),
  ];
}

// showSessions shows the sessions of a namespace, or of all, the newest first; and the calls of one.
export async function showSessions(namespace, session, into, signal) {
  if (session) return showCalls(namespace, session, into, signal);
  const state = head('Sessions', namespace, into), shown = element('div');
  into.append(shown);
  const live = new Live(state, () => {
    const newest = [...live.objects.values()].sort((a, b) => Date.parse(metadataOf(b).creationTimestamp) - Date.parse(metadataOf(a).creationTimestamp));
    const count = newest.length;
    state.textContent = count === 0 ? 'There are none.' : `${count} ${count === 1 ? 'session' : 'sessions'}, live.${live.more ? ' There are more: choose a namespace.' : ''}`;
    const made = table(['State', 'Session', 'Environment', 'Requester', 'Workspace', 'Pod', 'Age'], newest.map((row) => line(live, row, namespace)));
    made.classList.add('sessions');
    redraw(shown, made);
  });
  await live.follow(listPath('toolsessions', namespace), {}, signal);
}
