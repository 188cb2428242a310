// One call: what became of it, its output, what ran and what to do now; below that, everything else that is known.
import {ApiError, listPath} from './api.js';
import {showAbout} from './about.js';
import {showAdvice} from './advice.js';
import {showArtifacts} from './artifacts.js';
import {showDecision} from './decision.js';
import {showConditions, showYAML} from './details.js';
import {badge, element, isNew, link} from './dom.js';
import {isFinished, isMessageWhole, outcomeOf, outcomes, sentence} from './outcome.js';
import {Output} from './output.js';
import {problem, untilRetried} from './problem.js';
import {timing} from './timing.js';
import {keep, metadataOf} from './watch.js';

// parts are those of the page, in their order: beside the output, and below it.
const parts = {outcome: '', output: 'card', beside: 'beside', below: 'below'};
const beside = ['advice', 'summary'], below = ['decision', 'timing', 'artifacts', 'conditions', 'yaml'];

// CallView shows a call as the watch has it.
class CallView {
  #namespace; #name; #signal; #uid = ''; #output; #state; #badge; #message; #sentence; #parts = {}; #call = null; #deleted = false; #said = '';

  constructor(namespace, name, into, signal) {
    this.#namespace = namespace;
    this.#name = name;
    this.#signal = signal;
    this.#state = element('p', 'note', 'Reading…');
    this.#state.setAttribute('role', 'status');
    this.#state.id = 'state';
    const page = element('div', 'callpage');
    for (const [part, className] of Object.entries(parts)) page.append(this.#part(part, className));
    for (const part of beside) this.#parts.beside.append(this.#part(part, 'card'));
    for (const part of below) this.#parts.below.append(this.#part(part, 'card'));
    this.#badge = element('span');
    this.#message = element('p', 'text');
    this.#sentence = element('h1', '', `Call ${name}`);
    this.#parts.outcome.append(element('p', 'crumbs', link('Calls', 'calls', namespace), ' / ', element('span', 'text', name), this.#badge), this.#sentence, this.#message, this.#state);
    into.append(page);
    for (const part of ['output', ...beside, ...below]) this.#parts[part].hidden = true;
  }

  #part(id, className) {
    this.#parts[id] = element('section', className);
    this.#parts[id].id = id;
    return this.#parts[id];
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
    this.#showOutcome();
    showAbout(call, this.#parts.summary);
    showAdvice(call, this.#parts.advice, this.#signal);
    showDecision(call, this.#parts.decision, this.#signal);
    this.#showTiming();
    showArtifacts(call, this.#parts.artifacts, this.#signal);
    showConditions(call, this.#parts.conditions);
    showYAML(call, this.#parts.yaml);
    for (const part of ['output', ...beside, ...below]) this.#parts[part].hidden = this.#parts[part].childElementCount === 0;
    if (status.phase === 'Denied') this.#parts.output.hidden = this.#parts.timing.hidden = true;
    this.#output.update(status);
    this.#said = isFinished(status.phase) ? 'The call has finished.' : 'Live.';
    this.connected();
  }

  remove() {
    this.#deleted = true;
    this.#output?.deleted();
    this.#said = 'The call was deleted. What is here is what it was.';
    this.connected();
  }

  connected() { if (this.#said) this.#state.textContent = this.#said; }
  interrupted(error) { this.#state.replaceChildren(problem(error)); }
  failed(error) { return untilRetried(error, this.#state); }

  // tick draws the time of a call that goes on.
  tick() {
    if (!this.#call || this.#deleted || isFinished(this.#call.status?.phase)) return;
    this.#showOutcome();
    this.#showTiming();
  }

  #showOutcome() {
    const status = this.#call.status ?? {}, outcome = outcomes[outcomeOf(status.phase, status.reason)];
    const text = sentence(this.#call);
    if (!isNew(this.#badge, outcome, text, status.message)) return;
    this.#badge.replaceChildren(badge(outcome.class, outcome.word));
    this.#sentence.replaceChildren(element('span', 'text', text));
    this.#message.replaceChildren(...(isMessageWhole(status) ? [] : [element('span', 'text', status.message)]));
    this.#parts.outcome.className = `card outcomecard ${outcome.class}`;
  }

  #showTiming() { this.#parts.timing.replaceChildren(element('h2', '', 'Timing'), timing(this.#call)); }

  // #begin shows the streams of a call; another call of the same name has others.
  #begin() {
    this.#uid = metadataOf(this.#call).uid;
    this.#output?.stop();
    this.#output = new Output({namespace: this.#namespace, name: this.#name, uid: this.#uid, into: this.#parts.output, signal: this.#signal});
  }
}

// showCall shows a call until the signal.
export async function showCall(namespace, name, into, signal) {
  const view = new CallView(namespace, name, into, signal);
  const timer = setInterval(() => view.tick(), 1000);
  signal.addEventListener('abort', () => clearInterval(timer), {once: true});
  await keep(listPath('toolcalls', namespace), {fieldSelector: `metadata.name=${name}`}, view, signal);
}
