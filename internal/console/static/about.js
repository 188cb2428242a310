// What a call runs, for whom and where.
import {action, kind} from './command.js';
import {block, element, fields, isNew, link} from './dom.js';
import {milliseconds} from './text.js';

const maxCommand = 16 << 10;

function facts({spec, status = {}, metadata}) {
  const session = spec.sessionRef?.name;
  return fields([
    ['Exit code', status.exitCode],
    ['Signal', status.signal],
    ['Ran for', status.durationMilliseconds === undefined ? '' : milliseconds(status.durationMilliseconds)],
    ['Requested by', spec.requestedBy?.username],
    ['Session', session && element('span', '', link(session, 'sessions', metadata.namespace, session), spec.background ? ', in the background' : '')],
    ['Environment', status.environment?.name ?? spec.environmentRef?.name],
    ['Directory', status.environment?.workingDir ?? spec.workingDir],
    ['Tool', status.action?.tool],
    ['Time limit', status.timeoutSeconds ? milliseconds(1000 * status.timeoutSeconds) : ''],
    ['Cancellation', spec.cancel ? 'requested' : ''],
    ['Pod', status.pod],
    ['Node', status.node],
    ['Created', new Date(metadata.creationTimestamp).toLocaleString()],
  ]);
}

export function showAbout(call, into) {
  if (!isNew(into, call.spec, {...call.status, stdout: '', stderr: '', output: ''})) return;
  const command = action(call.spec);
  const shown = block(command.slice(0, maxCommand));
  shown.tabIndex = 0;
  shown.setAttribute('role', 'region');
  shown.setAttribute('aria-label', 'Command');
  into.replaceChildren(element('h2', '', kind(call.spec, call.status?.action)), shown,
    element('p', 'note', command.length > maxCommand ? 'The rest of the command isn\'t shown.' : ''), facts(call));
}
