import assert from 'node:assert/strict';
import test from 'node:test';
import {policiesOf, ruleOf, stateOf, tally} from '../static/refusals.js';

test('a denial begins with its rule', () => {
  assert.equal(ruleOf('The policy\'s rule "no-push" denies the call: ask first'), 'no-push');
  assert.equal(ruleOf('The policy\'s rule "a" could not be evaluated: the policy\'s rule "b" denies the call'), 'a');
  assert.equal(ruleOf('"x" isn\'t allowed: the policy\'s rule "b" denies the call'), '');
  assert.equal(ruleOf(undefined), '');
});

test('refusals count for the policy of the call\'s environment, or for the default policy', () => {
  const policies = policiesOf([{namespace: 'a', name: 'e', policy: 'strict'}, {namespace: 'a', name: 'f'}, {namespace: 'b', name: 'e'}], [{name: 'x'}, {name: 'base', isDefault: true}]);
  const tallies = tally([
    {namespace: 'a', environment: 'e', reason: 'DeniedByRule', message: 'The policy\'s rule "no-push" denies the call'},
    {namespace: 'a', environment: 'e', reason: 'ApprovalDenied', causes: ['git', 'no-push', 'git']},
    {namespace: 'a', environment: 'f', reason: 'BinaryNotAllowed'},
    {namespace: 'b', environment: 'e', reason: 'BinaryNotAllowed'},
    {namespace: 'a', environment: '', reason: 'EmptyCommand'},
  ], policies);
  assert.deepEqual([...tallies].map(([name, {total}]) => [name, total]), [['strict', 2], ['base', 2], ['', 1]]);
  assert.deepEqual([...tallies.get('strict').rules], [['no-push', 2], ['git', 1]]);
  assert.deepEqual([...tallies.get('base').reasons], [['BinaryNotAllowed', 2]]);
});

test('an example has the state that the condition says', () => {
  const failed = {status: 'False', reason: 'ExampleFailed', message: 'spec.examples[a] expects Allow, and comes out as Deny: no; spec.examples[b] expects Deny, and comes out as Allow'};
  assert.equal(stateOf('a', failed), 'spec.examples[a] expects Allow, and comes out as Deny: no');
  assert.equal(stateOf('b', failed), 'spec.examples[b] expects Deny, and comes out as Allow');
  assert.equal(stateOf('c', failed), 'comes out as expected');
  for (const end of ['; and 2 more', '…']) assert.match(stateOf('c', {...failed, message: failed.message + end}), /not known/);
  assert.equal(stateOf('a', {status: 'True'}), 'comes out as expected');
  assert.equal(stateOf('a', {status: 'False', reason: 'InvalidPolicy', message: 'x'}), 'not judged');
  assert.equal(stateOf('a', undefined), 'not judged yet');
});
