import assert from 'node:assert/strict';
import {test} from 'node:test';
import {allowed} from '../static/allowed.js';
import {action, nextSteps} from '../static/command.js';
import {routeOf} from '../static/route.js';
import {milliseconds} from '../static/text.js';
import {maxText, yaml} from '../static/yaml.js';

test('an object is YAML', () => {
  const call = {metadata: {name: 'a', managedFields: [{}], labels: {}}, spec: {shell: {command: 'a\n  b\n'}, env: [{name: 'NAME', value: 'yes'}], list: []}, status: {exitCode: 0, message: 'x: "y"', ok: true}};
  assert.equal(yaml(call), `apiVersion: toolcall.dev/v1alpha1
kind: ToolCall
metadata:
  name: a
  labels: {}
spec:
  shell:
    command: |
      a
        b
  env:
  - name: NAME
    value: "yes"
  list: []
status:
  exitCode: 0
  message: "x: \\"y\\""
  ok: true`);
});

test('texts that YAML would read as something else are quoted', () => {
  for (const [value, want] of [['true', '"true"'], ['1.5', '"1.5"'], ['', '""'], ['a # b', '"a # b"'], ['- a', '"- a"'], ['a\x1bb\n', '"a\\u001bb\\n"'], [' a\nb', '" a\\nb"'], ['plain text', 'plain text'], ['{}', '"{}"']]) {
    assert.ok(yaml({metadata: {}, x: value}).includes(`\nx: ${want}`), value);
  }
  assert.ok(yaml({metadata: {}, x: 'y'.repeat(1 << 20)}).length < maxText + 100);
});

test('a command is what a shell would take', () => {
  assert.equal(action({structured: {binary: 'git', args: ['log', 'a b', 'it\'s']}}), 'git log \'a b\' \'it\'\\\'\'s\'');
  assert.equal(action({file: {operation: 'Edit', path: 'a', edits: [{oldString: 'one\ntwo', newString: '1'}]}}), 'Edit a\n@@ 1 @@\n-one\n-two\n+1');
  assert.equal(action({}), '');
});

test('each end has a next step', () => {
  const steps = (phase, reason) => nextSteps({metadata: {name: 'n', namespace: 's'}, status: {phase, reason, retrySafe: false}}).map(({command}) => command);
  assert.deepEqual(steps('Failed'), ['kubectl toolcall rerun n -n s']);
  assert.deepEqual(steps('Denied'), ['kubectl toolcall explain-denial n -n s', 'kubectl toolcall rerun n -n s']);
  assert.deepEqual(steps('Running'), ['kubectl toolcall cancel n -n s']);
  assert.deepEqual(steps('Pending', 'AwaitingApproval'), ['kubectl toolcall approve n -n s', 'kubectl toolcall cancel n -n s']);
});

test('what is allowed is what the policy lists', () => {
  assert.deepEqual(allowed('BinaryNotAllowed', {binaries: {allowed: ['git', 'ls']}}), {what: 'programs', values: 'git, ls'});
  assert.deepEqual(allowed('NetworkNotAllowed', {network: {allowed: [{host: 'a.test', ports: [443]}, {host: 'b.test'}]}}), {what: 'hosts', values: 'a.test:443, b.test'});
  assert.equal(allowed('BinaryNotAllowed', {}), null);
  assert.equal(allowed('constructor', {binaries: {allowed: ['git']}}), null);
  assert.match(allowed('BinaryNotAllowed', {binaries: {allowed: Array(100).fill('x')}}).values, / and 40 more$/);
});

test('an address is a view or nothing', () => {
  for (const [hash, want] of [
    ['', ['calls', '', '']], ['#/calls/a', ['calls', 'a', '']], ['#/call/a/b', ['call', 'a', 'b']], ['#/sessions/a/b', ['sessions', 'a', 'b']],
    ['#/policies//p', ['policies', '', 'p']], ['#/approvals/a/b', ['approvals', 'a', 'b']], ['#/use', ['use', '', '']],
    ['#/calls/a/b', null], ['#/call/a', null], ['#/call/a/b/c', null], ['#/constructor', null], ['#/calls/A', null], ['#/call/a/../b', null], ['#/sessions//x', null],
  ]) {
    const at = routeOf(hash);
    assert.deepEqual(at && [at.view, at.namespace, at.object], want, hash);
  }
});

test('durations have units', () => {
  for (const [n, want] of [[999, '999 ms'], [1500, '1.50 s'], [119_900, '2 min 0 s'], [3_660_000, '1 h 1 min']]) assert.equal(milliseconds(n), want);
});
