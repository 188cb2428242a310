// The view of use: what calls used, by requester and environment, and budgets.
import {listPath} from './api.js';
import {element, table} from './dom.js';
import {Live} from './live.js';
import {head, section} from './elements.js';
import {age, bytes, milliseconds, safeLine, shorten} from './text.js';
import {limitsOf, subjectsOf, sumBy, total} from './usage.js';
import {metadataOf} from './watch.js';

const columns = ['Calls', 'Succeeded', 'Failed', 'Denied', 'Cancelled', 'Running', 'Waiting', 'Ran', 'Longest', 'CPU', 'Most memory'];

function numbers(sum) {
  return [sum.calls, sum.succeeded, sum.failed, sum.denied, sum.cancelled, sum.running, sum.waiting,
    milliseconds(sum.ran), milliseconds(sum.longest), milliseconds(sum.cpu), sum.memory ? bytes(sum.memory) : ''];
}

function sums(title, calls, field, unknown) {
  const {groups, more} = sumBy(calls, field);
  const shown = table([title, ...columns], groups.map((sum) => [shorten(safeLine(sum.key || unknown)), ...numbers(sum)]));
  return [shown, more ? element('p', 'note', `${more} more used less.`) : ''];
}

// callOf is what is summed up of a row.
function callOf(live, row) {
  const {namespace} = metadataOf(row);
  const environment = String(live.cell(row, 'Environment') ?? '');
  return {
    namespace, phase: live.cell(row, 'Phase'), requester: live.cell(row, 'Requested-By'), environment: environment && `${namespace}/${environment}`,
    ran: live.cell(row, 'Duration-MS'), cpu: live.cell(row, 'CPU-MS'), memory: live.cell(row, 'Memory'),
  };
}

function drawCalls(live, into, state) {
  const rows = [...live.objects.values()];
  if (rows.length === 0) {
    state.textContent = 'There are no calls.';
    return into.replaceChildren();
  }
  const calls = rows.map((row) => callOf(live, row));
  const oldest = rows.map((row) => metadataOf(row).creationTimestamp ?? '').sort()[0];
  state.textContent = `${rows.length} calls that are there are summed up, the oldest from ${age(oldest)} ago.${live.more ? ' There are more: choose a namespace.' : ''}`;
  const sum = total(calls);
  into.replaceChildren(
    section('total', 'All of them', table(columns, [numbers(sum)])),
    section('requesters', 'By requester', ...sums('Requester', calls, 'requester', 'unknown')),
    section('environments', 'By environment', ...sums('Environment', calls, 'environment', 'none')));
}

// gauge is what is in use of a limit, as a bar and in words.
function gauge({title, limit, used, unit}) {
  const amount = (n) => (unit === 'bytes' ? bytes(n) : unit ? `${n} ${unit}` : String(n));
  const shown = element('div', 'gauge', element('span', '', title), element('span', 'number', used === undefined ? `limit ${amount(limit)}` : `${amount(used)} of ${amount(limit)}`));
  if (used !== undefined) {
    const bar = element('meter');
    Object.assign(bar, {min: 0, max: Math.max(limit, 1), high: limit * 0.9, value: limit === 0 ? 1 : used});
    bar.setAttribute('aria-label', title);
    shown.append(bar);
  }
  return shown;
}

function budgetOf(budget) {
  const {name, namespace} = budget.metadata;
  const ready = budget.status?.conditions?.find((condition) => condition.type === 'Ready');
  const broken = ready && ready.status !== 'True' ? element('p', 'error', `It isn't in effect: ${ready.message}`) : '';
  return element('div', 'budget', element('h3', '', `${namespace}/${name}`), element('p', 'note', element('span', 'text', shorten(safeLine(subjectsOf(budget.spec)), 600))),
    broken, ...limitsOf(budget).map(gauge));
}

// showUse shows what calls used, and budgets, until the signal.
export async function showUse(namespace, _, into, signal) {
  const state = head('Use', namespace, into);
  const sumsShown = element('div'), budgetState = element('p', 'note', 'Reading…'), budgetsShown = element('div', 'budgets');
  into.append(sumsShown, section('budgets', 'Budgets', budgetState, budgetsShown));
  const calls = new Live(state, () => drawCalls(calls, sumsShown, state));
  const budgets = new Live(budgetState, () => {
    const all = [...budgets.objects.values()].sort((a, b) => `${a.metadata.namespace}/${a.metadata.name}`.localeCompare(`${b.metadata.namespace}/${b.metadata.name}`));
    budgetState.textContent = all.length ? 'What is in use is up to 15 seconds old.' : 'There are none.';
    budgetsShown.replaceChildren(...all.map(budgetOf));
  });
  await Promise.all([calls.follow(listPath('toolcalls', namespace), {}, signal), budgets.follow(listPath('toolbudgets', namespace), {}, signal)]);
}
