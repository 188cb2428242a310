import assert from 'node:assert/strict';
import {test} from 'node:test';
import {duration, entryOf, find, group, noFilter, sort, timeline, valuesOf} from '../static/rows.js';

const names = ['Name', 'Phase', 'Reason', 'Exit', 'Environment', 'Action', 'Duration-MS', 'Age', 'Requested-By', 'Session', 'Started'];
let uid = 0;
function entry(name, values = {}, labels = {}) {
  const metadata = {uid: `u${uid++}`, namespace: 'a', name, creationTimestamp: values.created ?? '2026-01-01T00:00:00Z', labels};
  return entryOf({cells: names.map((column) => values[column] ?? ''), object: {metadata}}, names);
}
const found = (entries, filter) => find(entries, {...noFilter(), ...filter}).found.map((e) => e.name);

const build = entry('build', {Phase: 'Succeeded', Exit: 0, Action: 'make all', 'Duration-MS': 1500, 'Requested-By': 'jane', Session: 's', Started: '2026-01-01T00:00:01Z'}, {team: 'search'});
const push = entry('push', {Phase: 'Pending', Reason: 'AwaitingApproval', Action: 'git push', 'Requested-By': 'joe', Session: 's', created: '2026-01-01T00:00:05Z'});
const test1 = entry('test', {Phase: 'Failed', Exit: 2, Action: 'make test', 'Duration-MS': 500, Environment: 'tools', created: '2026-01-01T00:00:03Z'});
const late = entry('late', {Phase: 'Running', Started: '2026-01-01T00:00:08Z', created: '2026-01-01T00:00:07Z'});
const all = [build, push, test1, late];

test('calls are found by text, field, label and outcome', () => {
  assert.deepEqual(found(all, {text: 'MAKE'}), ['build', 'test']);
  assert.deepEqual(found(all, {text: 'make team=search'}), ['build']);
  assert.deepEqual(found(all, {requester: 'joe'}), ['push']);
  assert.deepEqual(found(all, {label: 'team=search'}), ['build']);
  assert.deepEqual(found(all, {session: 's', outcomes: new Set(['approval'])}), ['push']);
  assert.deepEqual(found(all, {text: '.*'}), []);
});

test('outcomes are counted whatever outcome is chosen', () => {
  const {counts} = find(all, {...noFilter(), outcomes: new Set(['failed']), text: 'make'});
  assert.equal(counts.succeeded, 1);
  assert.equal(counts.failed, 1);
  assert.equal(counts.running, 0);
});

test('calls are sorted, and those without a value come last', () => {
  const order = (by, descending) => sort(all, {sort: by, descending}, Date.parse('2026-01-01T00:00:10Z')).map((e) => e.name);
  assert.deepEqual(order('created', true), ['late', 'push', 'test', 'build']);
  assert.deepEqual(order('exit', true).slice(0, 2), ['test', 'build']);
  assert.deepEqual(order('exit', false).slice(0, 2), ['build', 'test']);
  assert.deepEqual(order('duration', true), ['late', 'build', 'test', 'push']);
  assert.deepEqual(order('outcome', false), ['push', 'test', 'late', 'build']);
});

test('a session is one group where its first call is', () => {
  const groups = group(sort(all, noFilter(), 0));
  assert.deepEqual(groups.map((g) => [g.session, g.entries.map((e) => e.name)]), [['', ['late']], ['s', ['push', 'build']], ['', ['test']]]);
  const other = {...build, uid: 'x', namespace: 'b'};
  assert.equal(group([build, other]).length, 2);
});

test('a time line goes from the first start to the last end', () => {
  const now = Date.parse('2026-01-01T00:00:11Z');
  const {whole, pieces} = timeline([build, push], now);
  assert.equal(whole, 10_000);
  assert.deepEqual(pieces.map(({entry: e, left, width}) => [e.name, left, width]), [['push', 0.4, 0.6], ['build', 0, 0.15]]);
  const many = timeline(Array.from({length: 1000}, () => build), now);
  assert.equal(many.pieces.length, 200);
  assert.equal(duration(late, now), 3000);
});

test('values of a field are the most frequent first', () => {
  assert.deepEqual(valuesOf(all, 'session'), [['s', 2]]);
  assert.deepEqual(valuesOf([build, push, build], 'requester'), [['jane', 2], ['joe', 1]]);
});

test('a row that is not what it should be is a call anyway', () => {
  const odd = entryOf({cells: [null, null]}, names);
  assert.equal(odd.outcome, 'waiting');
  assert.equal(odd.exit, undefined);
  assert.deepEqual(found([odd], {}), ['']);
});
