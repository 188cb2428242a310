import assert from 'node:assert/strict';
import {test} from 'node:test';
import {isMessageWhole, outcomeOf, sentence} from '../static/outcome.js';

const now = Date.parse('2026-01-01T00:01:00Z');
const call = (status) => ({metadata: {creationTimestamp: '2026-01-01T00:00:00Z'}, status});

test('each outcome is a sentence', () => {
  for (const [status, want] of [
    [{phase: 'Succeeded', durationMilliseconds: 1500}, 'Succeeded in 1.50 s.'],
    [{phase: 'Succeeded'}, 'Succeeded.'],
    [{phase: 'Failed', reason: 'NonZeroExit', exitCode: 2, durationMilliseconds: 7, message: 'x'}, 'Failed: the command exited with code 2 after 7 ms.'],
    [{phase: 'Failed', reason: 'TimedOut', message: 'It ran longer than 30 s.'}, 'Failed: It ran longer than 30 s.'],
    [{phase: 'Failed', reason: 'ImagePullFailed'}, 'Failed: image pull failed.'],
    [{phase: 'Denied', reason: 'ShellDisabled', message: 'no shell'}, 'Denied, so nothing ran: no shell.'],
    [{phase: 'Cancelled', retrySafe: true, message: 'cancelled'}, 'Cancelled before it started: cancelled.'],
    [{phase: 'Cancelled', durationMilliseconds: 61_000, message: 'stop'}, 'Cancelled after 1 min 1 s: stop.'],
    [{phase: 'Running', startTime: '2026-01-01T00:00:50Z'}, 'Running for 10 s.'],
    [{phase: 'Pending', reason: 'AwaitingApproval', message: 'ask ops'}, 'Waiting for approval for 1 min 0 s: ask ops.'],
    [{phase: 'Pending', reason: 'Queued'}, 'Waiting for 1 min 0 s: queued.'],
    [undefined, 'Waiting for 1 min 0 s.'],
  ]) assert.equal(sentence(call(status), now), want);
});

test('a sentence says whether it has the whole message', () => {
  assert.equal(isMessageWhole({phase: 'Denied', message: 'short'}), true);
  assert.equal(isMessageWhole({phase: 'Failed', reason: 'NonZeroExit', exitCode: 1, message: 'The command exited with code 1.'}), true);
  assert.equal(isMessageWhole({phase: 'Denied', message: 'x'.repeat(500)}), false);
  assert.equal(isMessageWhole({phase: 'Failed', reason: 'NonZeroExit', exitCode: 1, message: 'one host was refused'}), false);
});

test('words of others are no outcome', () => {
  for (const phase of ['constructor', '__proto__', 'toString', '', undefined]) assert.equal(outcomeOf(phase, ''), 'waiting');
});
