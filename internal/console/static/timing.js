// The time of a call as a bar, as kubectl toolcall describe divides it.
import {element} from './dom.js';
import {milliseconds} from './text.js';

const paths = {Warm: 'in a pod that was waiting', Cold: 'in a new pod', Session: 'in the session\'s pod'};

// parts divides the time of a call, up to its end or now. There are none before it was accepted.
export function parts(call, now = Date.now()) {
  const timings = call.status?.timings;
  if (timings?.acceptedMilliseconds === undefined) return [];
  const end = timings.finishedMilliseconds ?? now - Date.parse(call.metadata.creationTimestamp);
  const accepted = Math.max(0, timings.acceptedMilliseconds);
  const all = [{name: 'until accepted', kind: 'accepted', milliseconds: accepted}];
  if (timings.startedMilliseconds === undefined) {
    return [...all, {name: 'waiting', kind: 'waiting', milliseconds: Math.max(0, end - accepted)}];
  }
  return [...all,
    {name: 'until started', kind: 'waiting', milliseconds: Math.max(0, timings.startedMilliseconds - accepted)},
    {name: timings.finishedMilliseconds === undefined ? 'running' : 'until finished', kind: 'running', milliseconds: Math.max(0, end - timings.startedMilliseconds)}];
}

// timing draws the bar to scale. A part that took any time can be seen.
export function timing(call) {
  const shown = parts(call).filter((part) => part.milliseconds > 0);
  if (shown.length === 0) return element('p', 'note', 'Nothing was timed yet.');
  const bar = element('div', 'bar');
  const legend = element('div', 'legend');
  for (const part of shown) {
    const text = `${milliseconds(part.milliseconds)} ${part.name}`;
    const piece = element('span', `part-${part.kind}`);
    piece.style.flexGrow = part.milliseconds;
    piece.title = text;
    bar.append(piece);
    legend.append(element('span', `part-${part.kind}`, text));
  }
  bar.setAttribute('role', 'img');
  bar.setAttribute('aria-label', legend.textContent);
  const path = paths[call.status.timings.path];
  if (path) legend.append(element('em', 'note', path));
  return element('div', '', bar, legend);
}
