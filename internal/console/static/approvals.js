// The list of the calls that wait for a person.
import {listPath} from './api.js';
import {showApproval} from './approval.js';
import {element, link, table} from './dom.js';
import {Live} from './live.js';
import {head, redraw} from './elements.js';
import {strictLine} from './summary.js';
import {age, shorten} from './text.js';
import {metadataOf} from './watch.js';

// line is what the list says of a call.
function line(live, row, namespace) {
  const {name, namespace: of, creationTimestamp} = metadataOf(row);
  const text = (column) => shorten(strictLine(live.cell(row, column)));
  const waits = element('span', '', age(creationTimestamp));
  return [...(namespace ? [] : [of]), link(name, 'approvals', of, name), text('Requested-By'), text('Action'), text('Environment'), waits];
}

// showApprovals shows the calls that wait, those that wait longest first, or one call, until the signal.
export async function showApprovals(namespace, object, into, signal) {
  if (object) return showApproval(namespace, object, into, signal);
  const state = head('Approvals', namespace, into);
  const shown = element('div');
  into.append(shown);
  const created = (row) => metadataOf(row).creationTimestamp ?? '';
  const draw = () => {
    const rows = [...live.objects.values()].sort((a, b) => created(a).localeCompare(created(b)));
    state.textContent = live.more ? `The list has ${rows.length} calls, and there are more: choose a namespace.` : rows.length === 1 ? '1 call waits.' : `${rows.length} calls wait.`;
    redraw(shown, rows.length === 0 ? element('p', 'empty', 'No call waits for approval.') :
      table([...(namespace ? [] : ['Namespace']), 'Call', 'Requested by', 'Action', 'Environment', 'Age'], rows.map((row) => line(live, row, namespace))));
  };
  const live = new Live(state, draw);
  const timer = setInterval(() => { if (live.objects.size) draw(); }, 10000);
  signal.addEventListener('abort', () => clearInterval(timer), {once: true});
  await live.follow(listPath('toolcalls', namespace), {fieldSelector: 'status.reason=AwaitingApproval'}, signal);
}
