import assert from 'node:assert/strict';
import test from 'node:test';
import {limitsOf, maxGroups, subjectsOf, sumBy, total} from '../static/usage.js';

const calls = [
  {requester: 'jane', phase: 'Succeeded', ran: 1500, cpu: 400, memory: 10},
  {requester: 'jane', phase: 'Failed', ran: 500, cpu: 100, memory: 30},
  {requester: 'joe', phase: 'Denied', ran: '', cpu: '', memory: null},
  {requester: 'joe', phase: 'Running', cpu: 'x', memory: -1},
  {phase: ''}, {phase: 'constructor'},
];

test('calls are summed up by a field, those first that used most', () => {
  const {groups, more} = sumBy(calls, 'requester');
  assert.equal(more, 0);
  assert.deepEqual(groups.map(({key, calls: n}) => [key, n]), [['jane', 2], ['', 2], ['joe', 2]]);
  assert.deepEqual(groups[0], {key: 'jane', calls: 2, waiting: 0, running: 0, succeeded: 1, failed: 1, denied: 0, cancelled: 0, ran: 2000, longest: 1500, cpu: 500, memory: 30});
  assert.equal(groups[1].waiting, 2);
  assert.deepEqual([groups[2].denied, groups[2].running, groups[2].cpu, groups[2].memory], [1, 1, 0, 0]);
  assert.equal(total(calls).calls, 6);
});

test('groups are bounded, and hostile names are names', () => {
  const many = Array.from({length: maxGroups + 5}, (_, at) => ({requester: `r${at}`, phase: 'Succeeded', cpu: at}));
  const {groups, more} = sumBy([...many, {requester: '__proto__', phase: 'Failed', cpu: 1e6}], 'requester');
  assert.deepEqual([groups.length, more, groups[0].key, groups[0].failed], [maxGroups, 6, '__proto__', 1]);
});

test('a budget shows the limits that it has, and what is in use', () => {
  const budget = {spec: {maxConcurrentCalls: 2, cpuSecondsPerHour: 0}, status: {used: {concurrentCalls: 1, sessions: 3, cpuSeconds: 7, pendingBytes: 9}}};
  assert.deepEqual(limitsOf(budget).map(({limit, used}) => [limit, used]), [[2, 1], [0, 7]]);
  assert.equal(limitsOf({spec: {maxSessions: 1}})[0].used, undefined);
  assert.equal(subjectsOf({}), 'everybody in the namespace');
  assert.equal(subjectsOf({subjects: [{kind: 'User', name: 'jane'}, {kind: 'ServiceAccount', name: 'a', namespace: 'b'}]}), 'user jane, service account b/a');
});
