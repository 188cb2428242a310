// What became of a call, as one of a few outcomes, and in a sentence. Without elements.
import {milliseconds, seconds, shorten} from './text.js';

// outcomes are in the order in which they ask for attention. The class gives each its colour and its shape.
export const outcomes = {
  approval: {word: 'Needs approval', class: 'approval'},
  failed: {word: 'Failed', class: 'bad'},
  denied: {word: 'Denied', class: 'deny'},
  running: {word: 'Running', class: 'run'},
  waiting: {word: 'Waiting', class: 'wait'},
  cancelled: {word: 'Cancelled', class: 'stop'},
  succeeded: {word: 'Succeeded', class: 'good'},
};

const ofPhase = {Succeeded: 'succeeded', Failed: 'failed', Denied: 'denied', Cancelled: 'cancelled', Running: 'running'};

export function outcomeOf(phase, reason) {
  if (Object.hasOwn(ofPhase, phase)) return ofPhase[phase];
  return reason === 'AwaitingApproval' ? 'approval' : 'waiting';
}

export function isFinished(phase) { return ['Succeeded', 'Failed', 'Denied', 'Cancelled'].includes(phase); }

// words are those of a reason: ImagePullFailed is image pull failed.
export function words(reason) {
  return String(reason ?? '').replace(/([a-z])(?=[A-Z])/g, '$1 ').toLowerCase();
}

// maxMessage bounds a message in a sentence. A longer one is shown whole elsewhere.
export const maxMessage = 400;

// known are messages that say no more than the sentence does.
const known = /^(?:the )?command (?:exited with (?:exit )?code \d+|succeeded)\.?$/i;

// isMessageWhole says that the sentence about a call has its whole message.
export function isMessageWhole(status) {
  const said = status.message ?? '';
  return said === '' || known.test(said) || (sayMessage(status) && said.length <= maxMessage);
}

// sayMessage says whether the sentence has the message at all: of some ends, what the status has beside it says more.
function sayMessage({phase, reason, exitCode}) {
  if (phase === 'Succeeded' || (phase === 'Failed' && reason === 'NonZeroExit' && exitCode !== undefined)) return false;
  return phase !== 'Running';
}

function clause(status) {
  const text = shorten(status.message || words(status.reason), maxMessage).trim();
  return /[.!?…]$/.test(text) || text === '' ? text : `${text}.`;
}

const ran = (status) => (status.durationMilliseconds === undefined ? '' : ` after ${milliseconds(status.durationMilliseconds)}`);

function since(call, now) {
  const from = Date.parse(call.status?.startTime ?? call.metadata.creationTimestamp);
  return Number.isNaN(from) ? '' : ` for ${seconds(Math.max(0, now - from))}`;
}

// sentence says what became of a call.
export function sentence(call, now = Date.now()) {
  const status = call.status ?? {};
  switch (outcomeOf(status.phase, status.reason)) {
    case 'succeeded': return `Succeeded${ran(status).replace('after', 'in')}.`;
    case 'failed':
      if (status.reason === 'NonZeroExit' && status.exitCode !== undefined) return `Failed: the command exited with code ${status.exitCode}${ran(status)}.`;
      return `Failed: ${clause(status)}`;
    case 'denied': return `Denied, so nothing ran: ${clause(status)}`;
    case 'cancelled': return status.retrySafe ? `Cancelled before it started: ${clause(status)}` : `Cancelled${ran(status)}: ${clause(status)}`;
    case 'running': return `Running${since(call, now)}.`;
    case 'approval': return `Waiting for approval${since(call, now)}: ${clause(status)}`;
    default: return status.reason ? `Waiting${since(call, now)}: ${clause(status)}` : `Waiting${since(call, now)}.`;
  }
}
