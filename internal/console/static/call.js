// One call: what was decided about it, its timing, its output and its artifacts.
import {ApiError, listPath} from './api.js';
import {showArtifacts} from './artifacts.js';
import {showDecision} from './decision.js';
import {block, element, fields, phase, table} from './dom.js';
import {Output} from './output.js';
import {problem, untilRetried} from './problem.js';
import {age, milliseconds, shorten} from './text.js';
import {timing} from './timing.js';
import {keep, metadataOf} from './watch.js';

const terminal = ['Succeeded', 'Failed', 'Denied', 'Cancelled'];
const maxCommand = 16 << 10;

// action is what a call runs, as text.
function action(spec) {
  if (spec.structured) return [spec.structured.binary, ...(spec.structured.args ?? [])].map(quoted).join(' ');
  if (spec.shell) return spec.shell.command;
  if (spec.code) return spec.code.source;
  if (spec.file) return fileAction(spec.file);
  if (spec.tool) return `${spec.tool.name} ${JSON.stringify(spec.tool.arguments ?? {})}`;
  return '';
}

// fileAction is an operation on files with all that it is given: the changes of an Edit as in a diff, then the rest.
function fileAction({operation, path, destination, oldString, newString, replaceAll, edits, ...rest}) {
  const changes = edits ?? (oldString === undefined ? [] : [{oldString, newString, replaceAll}]);
  return [
    [operation, path, destination].filter(Boolean).map(quoted).join(' '),
    ...changes.flatMap(change),
    ...Object.entries(rest).map(([name, value]) => `${name}: ${value}`),
  ].join('\n');
}

function change({oldString, newString, replaceAll}, index) {
  const lines = (text, mark) => (text ? text.split('\n').map((line) => mark + line) : []);
  return [`@@ ${index + 1}${replaceAll ? ', everywhere' : ''} @@`, ...lines(oldString, '-'), ...lines(newString, '+')];
}

function quoted(argument) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll('\'', '\'\\\'\'')}'`;
}

function summary(call) {
  const {spec, status = {}, metadata} = call;
  const of = status.action ? `${status.action.type} (tool ${status.action.tool})` : '';
  return fields([
    ['Phase', element('span', '', phase(status.phase || 'Pending'), status.reason ? ` (${status.reason})` : '')],
    ['Message', status.message],
    ['Exit code', status.exitCode],
    ['Signal', status.signal],
    ['Cancellation', spec.cancel ? 'requested' : ''],
    ['Safe to retry', status.retrySafe === undefined ? '' : status.retrySafe ? 'yes, the command never started' : 'no, the command may have run'],
    ['Requested by', spec.requestedBy?.username],
    ['Session', spec.sessionRef ? spec.sessionRef.name + (spec.background ? ', in the background' : '') : ''],
    ['Environment', status.environment?.name ?? spec.environmentRef?.name],
    ['Directory', status.environment?.workingDir ?? spec.workingDir],
    ['Action', of],
    ['Time limit', status.timeoutSeconds ? `${status.timeoutSeconds} s` : ''],
    ['Process ran', status.durationMilliseconds === undefined ? '' : milliseconds(status.durationMilliseconds)],
    ['Pod', status.pod],
    ['Node', status.node],
    ['Created', `${metadata.creationTimestamp} (${age(metadata.creationTimestamp)} ago)`],
  ]);
}

function conditions(list) {
  return table(['Condition', 'Status', 'Reason', 'Message', 'Since'],
    list.map((c) => [c.type, c.status, c.reason, shorten(c.message ?? '', 1000), c.lastTransitionTime]));
}

// CallView shows a call as the watch has it.
class CallView {
  #namespace; #name; #signal; #uid = ''; #streams; #state; #parts = {}; #call = null; #deleted = false; #said = '';

  constructor(namespace, name, into, signal) {
    this.#namespace = namespace;
    this.#name = name;
    this.#signal = signal;
    this.#state = element('p', 'note', 'Reading…');
    this.#state.setAttribute('role', 'status');
    this.#state.id = 'state';
    into.append(element('h2', '', `Call ${name} in ${namespace}`), this.#state);
    for (const part of ['summary', 'decision', 'timing', 'output', 'artifacts', 'conditions']) {
      this.#parts[part] = element('section');
      this.#parts[part].id = part;
      into.append(this.#parts[part]);
    }
  }

  columns() {}

  reset(calls) {
    if (calls.length === 0 && this.#call) return this.remove();
    if (calls.length === 0) return this.interrupted(new ApiError(404, {message: `There is no call ${this.#name} in ${this.#namespace}.`}));
    this.put(calls[0]);
  }

  put(call) {
    const status = call.status ?? {};
    this.#call = call;
    this.#deleted = false;
    if (metadataOf(call).uid !== this.#uid) this.#begin(call);
    const command = action(call.spec);
    this.#parts.summary.replaceChildren(summary(call), element('h3', '', 'Command'), block(command.slice(0, maxCommand)));
    if (command.length > maxCommand) this.#parts.summary.append(element('p', 'note', 'The rest of the command isn\'t shown.'));
    showDecision(call, this.#parts.decision, this.#signal);
    this.#showTiming();
    showArtifacts(call, this.#parts.artifacts, this.#signal);
    this.#parts.conditions.replaceChildren(element('h3', '', 'Conditions'), conditions(status.conditions ?? []));
    this.#streams.forEach((stream) => stream.update(status));
    this.#said = terminal.includes(status.phase) ? 'The call has finished.' : 'Live.';
    this.connected();
  }

  remove() {
    this.#deleted = true;
    this.#streams?.forEach((stream) => stream.deleted());
    this.#said = 'The call was deleted. What is here is what it was.';
    this.connected();
  }

  connected() { if (this.#said) this.#state.textContent = this.#said; }
  interrupted(error) { this.#state.replaceChildren(problem(error)); }
  failed(error) { return untilRetried(error, this.#state); }

  #showTiming() { this.#parts.timing.replaceChildren(element('h3', '', 'Timing'), timing(this.#call)); }

  // tick draws the time of a call that goes on.
  tick() { if (this.#call && !this.#deleted && !terminal.includes(this.#call.status?.phase)) this.#showTiming(); }

  // #begin shows the streams of a call; another call of the same name has others.
  #begin(call) {
    this.#uid = metadataOf(call).uid;
    this.#streams?.forEach((stream) => stream.stop());
    const panes = element('div', 'streams');
    this.#streams = [['Standard output', 'stdout'], ['Standard error', 'stderr']].map(([title, stream]) =>
      new Output({title, stream, namespace: this.#namespace, name: this.#name, uid: this.#uid, into: panes, signal: this.#signal}));
    this.#parts.output.replaceChildren(element('h3', '', 'Output'), panes);
  }
}

// showCall shows a call until the signal.
export async function showCall(namespace, name, into, signal) {
  const view = new CallView(namespace, name, into, signal);
  const timer = setInterval(() => view.tick(), 1000);
  signal.addEventListener('abort', () => clearInterval(timer), {once: true});
  await keep(listPath('toolcalls', namespace), {fieldSelector: `metadata.name=${name}`}, view, signal);
}

