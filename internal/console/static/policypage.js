// One policy: its state, its rules with how often each refused, what needs approval, and its examples.
import {listPath} from './api.js';
import {block, element, fields, table} from './dom.js';
import {Live} from './live.js';
import {problem} from './problem.js';
import {stateOf, tally} from './refusals.js';
import {readRefusals} from './readrefusals.js';
import {head, reachable, section} from './elements.js';
import {shorten} from './text.js';

function codeBlock(text) { return text ? block(text) : ''; }

function rules(spec, refused) {
  const list = spec.rules ?? [];
  if (list.length === 0) return element('p', 'note', 'There are none.');
  return table(['Rule', 'Effect', 'Expression', 'Message', 'Refused'],
    list.map((rule) => [rule.name, rule.effect, codeBlock(rule.expression), rule.message ?? '', refused ? refused.rules.get(rule.name) ?? 0 : '']));
}

function matchOf({actions, tools, rules: names}) {
  const parts = [['actions', actions], ['tools', tools], ['rules', names]].filter(([, list]) => list?.length).map(([what, list]) => `${what} ${list.join(', ')}`);
  return parts.join('; ') || 'every call';
}

function requirements(spec, refused) {
  const list = spec.approvals ?? [];
  if (list.length === 0) return element('p', 'note', 'Nothing needs approval, except by a rule.');
  return table(['Requirement', 'For', 'Ask', 'Approvals', 'Waits', 'Denied or expired'], list.map((one, i) => {
    const name = one.name ?? `approvals[${i}]`;
    return [name, matchOf(one.match ?? {}), (one.approvers ?? []).join(', '), one.minimum ?? 1, `${one.expiresSeconds ?? 900} s`, refused ? refused.rules.get(name) ?? 0 : ''];
  }));
}

function examples(spec, ready) {
  const list = spec.examples ?? [];
  if (list.length === 0) return element('p', 'note', 'There are none. kubectl toolcall policy test judges examples before they are applied.');
  return table(['Example', 'Expects', 'State', 'Call'], list.map((one) => [
    one.name, [one.expect, one.reason].filter(Boolean).join(', '), shorten(stateOf(one.name, ready), 600),
    block(JSON.stringify({call: one.call, ...(one.caller ? {caller: one.caller} : {})}, null, 2)),
  ]));
}

// reasons are all refusals, with the field of the policy that each is by.
function reasons(refused, denials) {
  if (!refused) return element('p', 'note', 'It refused none of them.');
  const list = [...refused.reasons].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
  return table(['Reason', 'Rule', 'Calls'], list.map(([reason, count]) => [reason, Object.hasOwn(denials, reason) ? denials[reason].field : '', count]));
}

function conditions(policy) {
  return fields((policy.status?.conditions ?? []).map(({type, status, reason, message}) => [type, `${status}, ${reason}${message ? `: ${shorten(message, 1000)}` : ''}`]));
}

// showPolicy shows a policy until the signal.
export async function showPolicy(namespace, name, into, signal) {
  const state = head(`Policy ${name}`, null, into);
  const note = element('p', 'note', 'Counting refusals…'), shown = element('div');
  into.append(note, shown);
  let read = null, denials = {};
  const draw = () => {
    const policy = [...live.objects.values()][0];
    if (!policy) {
      state.textContent = 'There is no such policy.';
      return shown.replaceChildren();
    }
    const ready = policy.status?.conditions?.find((condition) => condition.type === 'Ready');
    const none = {reasons: new Map(), rules: new Map()};
    const refused = read && (tally(read.calls, read.policies).get(name) ?? none);
    state.textContent = !ready ? 'It wasn\'t judged yet.' : ready.status === 'True' ? 'It is ready.' : 'It isn\'t ready: nothing runs under it.';
    shown.replaceChildren(
      section('state-of', 'State', conditions(policy)),
      reachable(section('rules', 'Rules', rules(policy.spec, refused))),
      section('requirements', 'What needs approval', requirements(policy.spec, refused)),
      section('refusals', 'Refused calls by reason', read ? reasons(refused.reasons.size ? refused : null, denials) : element('p', 'note', 'Counting…')),
      reachable(section('examples', 'Examples', examples(policy.spec, ready))));
  };
  const live = new Live(state, draw);
  const counting = Promise.all([readRefusals(namespace, signal), fetch('/denials.json', {credentials: 'omit', signal}).then((answer) => answer.json())]).then(([all, byReason]) => {
    [read, denials] = [all, byReason];
    note.textContent = all.note;
    live.connected();
  }, (error) => { if (!signal.aborted) note.replaceChildren('Refusals can\'t be counted. ', problem(error)); });
  await Promise.all([live.follow(listPath('executionpolicies', ''), {fieldSelector: `metadata.name=${name}`}, signal), counting]);
}
