// What was decided about a call, and why, as far as its status says it: the same words as kubectl toolcall explain-denial.
import {objectPath, readObject} from './api.js';
import {element, fields, table} from './dom.js';
import {shorten} from './text.js';

// rules explain the reasons of denials. They are part of the page and need no token.
let rules = null;

async function denialRules() {
  rules ??= fetch('/denials.json', {credentials: 'omit'}).then((response) => response.json());
  try {
    return await rules;
  } catch (error) {
    rules = null;
    throw error;
  }
}

// times is how often a program was executed, or refused.
function times(count) { return count === 1 ? 'once' : `${count} times`; }

function programs(status) {
  const rows = [
    ...(status.executed ?? []).map((p) => [p.path, 'executed', times(p.count)]),
    ...(status.refused ?? []).map((p) => [p.path, `refused: ${p.rule}`, times(p.count)]),
  ];
  return rows.length ? [element('h3', '', 'Programs'), table(['Program', 'What came of it', 'How often'], rows)] : [];
}

// verdict says in a sentence what was decided.
function verdict(status) {
  const accepted = (status.conditions ?? []).find((c) => c.type === 'Accepted');
  if (status.phase === 'Denied') return 'The call was denied: nothing ran.';
  if (!accepted) return 'Nothing was decided yet.';
  if (accepted.status === 'True') return 'The call was accepted: every guard passed.';
  if (accepted.status === 'False') return 'The call wasn\'t accepted: nothing ran.';
  return 'A guard can\'t decide yet.';
}

// showDecision writes what was decided about a call. The policy is read where the user may: what it allows is there now, and may
// have been something else then.
export function showDecision(call, into, signal) {
  const status = call.status ?? {};
  const accepted = (status.conditions ?? []).find((c) => c.type === 'Accepted');
  const pairs = [['Verdict', verdict(status)]];
  if (accepted) pairs.push(['Reason', accepted.reason], ['Message', accepted.message && shorten(accepted.message, 2000)]);
  const facts = fields(pairs);
  const policy = element('div');
  into.replaceChildren(element('h3', '', 'Decision'), facts, policy, ...programs(status));
  if (status.phase === 'Denied') explain(status.reason, facts);
  if (status.environment?.name) showPolicy(call.metadata.namespace, status.environment.name, policy, signal);
}

async function explain(reason, into) {
  try {
    const all = await denialRules();
    const rule = Object.hasOwn(all, reason) ? all[reason] : {};
    into.append(...fields([['Rule', rule.field], ['You can', rule.requester], ['The policy\'s owner can', rule.owner]]).children);
  } catch {
    // The reason and the message are there without it.
  }
}

// policies are those that were read for this page, by environment, so that a call that changes often doesn't read them again.
const policies = new Map();

async function showPolicy(namespace, environment, into, signal) {
  const key = `${namespace}/${environment}`;
  if (!policies.has(key)) policies.set(key, policyOf(namespace, environment, signal).catch(() => { policies.delete(key); return ''; }));
  const text = await policies.get(key);
  if (text) into.replaceChildren(fields([['Policy now', text]]));
}

// forgetPolicies has them read again.
export function forgetPolicies() { policies.clear(); }

async function policyOf(namespace, environment, signal) {
  const found = await readObject(objectPath('executionenvironments', namespace, environment), {}, signal);
  const name = found.spec?.policyRef?.name;
  if (!name) return `the default policy, or the built-in one, of environment ${environment}`;
  try {
    const policy = await readObject(objectPath('executionpolicies', '', name), {}, signal);
    const ready = (policy.status?.conditions ?? []).find((c) => c.type === 'Ready');
    const weak = (policy.status?.conditions ?? []).find((c) => c.type === 'Weak' && c.status === 'True');
    const broken = ready?.status === 'False' ? `; it can't be used: ${ready.message}` : '';
    return `${name}, of environment ${environment}${broken}${weak ? `; weaker than it looks: ${weak.message}` : ''}`;
  } catch (error) {
    signal.throwIfAborted();
    return `${name}, of environment ${environment}${error.code === 403 ? ' (you may not read it)' : ''}`;
  }
}
