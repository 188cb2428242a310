// Sums up what calls used. Without elements.

// maxGroups bounds the groups that are shown: those that used most.
export const maxGroups = 100;

const outcomes = {Succeeded: 'succeeded', Failed: 'failed', Denied: 'denied', Cancelled: 'cancelled', Running: 'running'};

function empty(key) {
  return {key, calls: 0, waiting: 0, running: 0, succeeded: 0, failed: 0, denied: 0, cancelled: 0, ran: 0, longest: 0, cpu: 0, memory: 0};
}

// number is a value of a cell: empty where the call has none.
function number(value) {
  const n = Number(value || 0);
  return Number.isFinite(n) && n > 0 ? n : 0;
}

function add(sum, call) {
  const ran = number(call.ran);
  sum.calls++;
  sum[Object.hasOwn(outcomes, call.phase) ? outcomes[call.phase] : 'waiting']++;
  sum.ran += ran;
  sum.longest = Math.max(sum.longest, ran);
  sum.cpu += number(call.cpu);
  sum.memory = Math.max(sum.memory, number(call.memory));
}

// sumBy sums calls up that have the same value of a field, those first that used most processor time. more is how many groups are
// left out.
export function sumBy(calls, field) {
  const groups = new Map();
  for (const call of calls) {
    const key = String(call[field] ?? '');
    if (!groups.has(key)) groups.set(key, empty(key));
    add(groups.get(key), call);
  }
  const sorted = [...groups.values()].sort((a, b) => b.cpu - a.cpu || b.ran - a.ran || b.calls - a.calls || (a.key < b.key ? -1 : 1));
  return {groups: sorted.slice(0, maxGroups), more: Math.max(0, sorted.length - maxGroups)};
}

export function total(calls) {
  const sum = empty('');
  for (const call of calls) add(sum, call);
  return sum;
}

// limitsOf are what a budget limits: what is in use, and the limit. Without a status, nobody knows what is in use.
export function limitsOf({spec, status}) {
  const used = status?.used;
  return [
    {title: 'Calls at the same time', limit: spec.maxConcurrentCalls, used: used?.concurrentCalls, unit: ''},
    {title: 'Sessions with a pod', limit: spec.maxSessions, used: used?.sessions, unit: ''},
    {title: 'CPU time in the last hour', limit: spec.cpuSecondsPerHour, used: used?.cpuSeconds, unit: 's'},
    {title: 'Input that waits', limit: spec.maxPendingBytes, used: used?.pendingBytes, unit: 'bytes'},
  ].filter(({limit}) => limit !== undefined);
}

// subjectsOf says whom a budget is for.
export function subjectsOf({subjects = []}) {
  if (subjects.length === 0) return 'everybody in the namespace';
  return subjects.map(({kind, name, namespace}) => (kind === 'ServiceAccount' ? `service account ${namespace}/${name}` : `${kind.toLowerCase()} ${name}`)).join(', ');
}
