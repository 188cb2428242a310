// What was decided about a call, and what was refused to it while it ran.
import {element, fields, isNew, table} from './dom.js';
import {describe, policyOf} from './policy.js';
import {shorten} from './text.js';

// times is how often a program was executed, or refused.
function times(count) { return count === 1 ? 'once' : `${count} times`; }

function omitted(...counts) {
  const count = counts.reduce((sum, n) => sum + (n ?? 0), 0);
  return element('p', 'note', count ? `${count} more aren't listed.` : '');
}

// refusals are what the call was kept from, and programs what it executed.
function refusals({refused = [], network = {}, omittedRefused}) {
  const rows = [
    ...refused.map((p) => [p.path, `program: ${p.rule}`, times(p.count)]),
    ...(network.denied ?? []).map((h) => [h.host + (h.port ? `:${h.port}` : ''), 'connection', times(h.count)]),
  ];
  return rows.length ? [element('h3', '', 'Refused while it ran'), table(['What', 'Why', 'How often'], rows), omitted(omittedRefused, network.omittedDenied)] : [];
}

function programs({executed = [], omittedExecuted}) {
  if (executed.length === 0) return [];
  return [element('details', '', element('summary', '', `Programs that it executed: ${executed.length + (omittedExecuted ?? 0)}`),
    table(['Program', 'How often'], executed.map((p) => [p.path, times(p.count)])), omitted(omittedExecuted))];
}

// verdict says in a sentence what was decided.
function verdict(status, accepted) {
  if (status.phase === 'Denied') return 'The call was denied: nothing ran.';
  if (!accepted) return 'Nothing was decided yet.';
  if (accepted.status === 'True') return 'The call was accepted: every guard passed.';
  if (accepted.status === 'False') return 'The call wasn\'t accepted: nothing ran.';
  return 'A guard can\'t decide yet.';
}

// approval says who decided about a call, as far as that counts.
function approval(asked) {
  if (!asked) return '';
  const {needed = 1, approvedBy = [], deniedBy} = asked;
  if (deniedBy) return `denied by ${deniedBy.username}`;
  return `${approvedBy.length} of ${needed}${approvedBy.length ? `: ${approvedBy.map((a) => a.username).join(', ')}` : ''}`;
}

// showDecision writes what was decided about a call. A message that the page has already isn't said again.
export function showDecision(call, into, signal) {
  const status = call.status ?? {};
  const accepted = (status.conditions ?? []).find((c) => c.type === 'Accepted');
  if (!isNew(into, status.phase, accepted, status.message, status.executed, status.refused, status.network, status.approval, status.redactions)) return;
  const facts = fields([
    ['Verdict', verdict(status, accepted)], ['Reason', accepted?.reason],
    ['Message', accepted?.message === status.message ? '' : accepted?.message && shorten(accepted.message, 2000)],
    ['Approval', approval(status.approval)],
    ['Network', status.network?.mode],
    ['Redacted values', (status.redactions ?? []).map((r) => `${r.name} in ${r.stream}, ${times(r.count)}`).join('; ')],
  ]);
  into.replaceChildren(element('h2', '', 'Decision'), facts, ...refusals(status), ...programs(status));
  policyOf(call, signal).then((policy) => { if (policy) facts.append(...fields([['Policy now', describe(policy)]]).children); }, () => {});
}
