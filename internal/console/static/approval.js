// One call that waits for a person: who asks for what, what exactly will run, and what is different from the last one.
import {ApiError, listPath, whoAmI} from './api.js';
import {Confirmation} from './confirm.js';
import {button, element, fields, link} from './dom.js';
import {lastApproved, maxCompared} from './lastapproved.js';
import {Live} from './live.js';
import {problem, untilRetried} from './problem.js';
import {differenceOf, requestOf} from './request.js';
import {head, reachable, section} from './elements.js';
import {asked, awaits, comparable, digestOf, requestKey, strictLine} from './summary.js';
import {shorten} from './text.js';
import {keep, metadataOf} from './watch.js';

function listed(texts) { return (texts ?? []).map((text) => shorten(strictLine(text), 400)).join('; '); }

// factsOf is who asks, because of what, and who decided so far.
function factsOf(call) {
  const {spec, metadata, status = {}} = call;
  const request = status.approval ?? {};
  return fields([
    ['Requested by', strictLine(spec.requestedBy?.username ?? '')],
    ['Session', spec.sessionRef?.name],
    ['Environment', status.environment?.name ?? spec.environmentRef?.name],
    ['Because of', listed(request.causes)],
    ['Says', listed(request.messages)],
    ['Ask', listed(request.approvers)],
    ['Needed', request.needed === undefined ? '' : request.needed === 1 ? '1 approval' : `${request.needed} approvals, by different people`],
    ['Approved by', listed(request.approvedBy?.map((one) => one.username))],
    ['Denied by', listed(request.deniedBy ? [request.deniedBy.username] : [])],
    ['Digest', request.digest && element('code', '', request.digest)],
    ['Call', link(metadata.name, 'call', metadata.namespace, metadata.name)],
  ]);
}

function minutes(time) {
  const seconds = Math.round(time / 1000);
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

// timesOf is how long the call has waited, and how long it still does.
function timesOf({requestedAt, expiresAt}, now = Date.now()) {
  const since = Math.max(0, now - Date.parse(requestedAt)), left = Date.parse(expiresAt) - now;
  return `It has waited for ${minutes(since)}, and ${left > 0 ? `waits for ${minutes(left)} more` : 'its time is over'}.`;
}

// comparison is what is different from a call that was approved: the script or source by lines, and all that will happen.
function comparison(before, call) {
  const {name, namespace} = metadataOf(before);
  const [old, now] = [asked(before.spec).text, asked(call.spec).text];
  return [
    element('p', 'note', 'It was call ', link(name, 'call', namespace, name), '.'),
    ...(old && now && old !== now ? [element('h3', '', 'The text'), differenceOf(old, now, '')] : []),
    element('h3', '', 'What will happen'), differenceOf(comparable(before.status.approval.summary), comparable(call.status.approval.summary), 'This call does the same.'),
  ];
}

// ApprovalView shows the call as the watch has it.
class ApprovalView {
  #state; #times = element('p', 'note'); #facts = element('div'); #request = element('div', 'request'); #before = element('div'); #decided = element('div'); #warning = element('p', 'error');
  #buttons; #into; #signal; #call = null; #shown = ''; #isSound = false; #user = null; #confirmation = null; #gone = false;

  constructor(namespace, name, into, signal) {
    this.#into = into;
    this.#signal = signal;
    this.#state = head(`Approval of call ${name}`, namespace, into);
    this.#buttons = [button('Approve…', () => this.#confirm('Approve')), button('Deny…', () => this.#confirm('Deny'))];
    this.#times.id = 'times';
    this.#warning.setAttribute('role', 'alert');
    into.append(this.#times, this.#decided, section('facts', 'Who asks, and why', this.#facts), section('difference', 'Difference to the last call that you approved', this.#before),
      section('request', 'What you decide about', this.#request), this.#warning, element('div', 'toolbar', ...this.#buttons));
    this.#tell();
  }

  columns() {}

  reset(calls) {
    if (calls.length) return this.put(calls[0]);
    if (this.#call) return this.remove();
    this.interrupted(new ApiError(404, {message: 'There is no such call.'}));
  }

  put(call) {
    this.#call = call;
    this.#gone = false;
    this.#facts.replaceChildren(factsOf(call));
    const key = requestKey(call);
    if (key !== this.#shown) this.#begin(call, key);
    this.#confirmation?.update(call, awaits(call));
    this.#tell();
  }

  remove() {
    this.#gone = true;
    this.#confirmation?.update(this.#call, false);
    this.#tell();
  }

  connected() { this.#tell(); }
  interrupted(error) { this.#state.replaceChildren(problem(error)); }
  failed(error) { return untilRetried(error, this.#state); }

  // tick shows the time that is left.
  tick() { this.#times.textContent = this.#call && awaits(this.#call) && !this.#gone ? timesOf(this.#call.status.approval) : ''; }

  #tell() {
    const call = this.#call, waits = call !== null && !this.#gone && awaits(call);
    for (const one of this.#buttons) one.disabled = !waits || !this.#isSound;
    this.#buttons[0].disabled ||= this.#isOwn();
    if (call === null) return;
    const {phase, reason, message} = call.status ?? {};
    this.tick();
    this.#state.textContent = this.#gone ? 'The call was deleted.' : waits ? 'The call waits for approval.' :
      strictLine(shorten(`The call doesn't wait for approval: it is ${[phase || 'Pending', reason].filter(Boolean).join(', ')}. ${message ?? ''}`, 600));
  }

  #isOwn() { return Boolean(this.#user) && this.#call?.spec.requestedBy?.username === this.#user; }

  // #begin shows another request, and looks whether the summary is the one that the digest says.
  async #begin(call, key) {
    this.#shown = key;
    this.#isSound = false;
    this.#warning.textContent = '';
    this.#before.replaceChildren();
    const request = call.status?.approval;
    if (!request) return this.#request.replaceChildren(element('p', 'note', 'The call needs no approval.'));
    try {
      this.#request.replaceChildren(...requestOf(call));
      reachable(this.#request);
    } catch {
      this.#request.replaceChildren();
      this.#warning.textContent = 'The summary can\'t be read: don\'t decide, and tell the cluster\'s administrator.';
      return;
    }
    const digest = await digestOf(request.summary).catch(() => '');
    if (key !== this.#shown || this.#signal.aborted) return;
    this.#isSound = digest === request.digest;
    if (digest === '') this.#warning.textContent = 'This browser can\'t compute the digest of the summary: open the console over TLS.';
    else if (!this.#isSound) this.#warning.textContent = 'The summary doesn\'t have the digest that the call\'s status says: don\'t decide, and tell the cluster\'s administrator.';
    this.#tell();
    await this.#compare(call, key);
  }

  // #compare shows what is different from the last call that the user approved. Where that can't be read, the decision doesn't need it.
  async #compare(call, key) {
    this.#before.replaceChildren(element('p', 'note', 'Looking for it…'));
    let shown;
    try {
      this.#user ??= await whoAmI(this.#signal);
      const before = await lastApproved(this.#user, call, this.#signal);
      shown = before ? comparison(before, call) : [element('p', 'note', `Of the last ${maxCompared} calls that you approved, none is of this session, or of this requester, and still there.`)];
    } catch (error) {
      if (this.#signal.aborted) return;
      shown = [element('p', '', 'It can\'t be compared. ', problem(error))];
    }
    if (key !== this.#shown) return;
    this.#before.replaceChildren(...shown);
    reachable(this.#before);
    if (this.#isOwn()) this.#warning.textContent = 'You asked for this call yourself: you can deny it, and somebody else has to approve it.';
    this.#tell();
  }

  #confirm(decision) {
    this.#confirmation?.close();
    this.#decided.replaceChildren();
    this.#confirmation = new Confirmation(this.#call, decision, {
      into: this.#into, signal: this.#signal, onDecided: (made) => this.#follow(made), onFailed: (...said) => this.#decided.replaceChildren(...said),
    });
  }

  // #follow shows what becomes of a decision.
  #follow(made) {
    const {name, namespace} = made.metadata;
    const state = element('p', '', 'The operator hasn\'t said yet whether your decision counts.');
    state.setAttribute('role', 'status');
    state.id = 'decided';
    this.#decided.replaceChildren(state);
    const live = new Live(state, () => {
      const decision = [...live.objects.values()][0];
      const why = decision?.status?.conditions?.find((condition) => condition.type === 'Accepted');
      if (decision?.status?.phase === 'Accepted') state.textContent = `Your decision counts: ${decision.spec.decision}.`;
      if (decision?.status?.phase === 'Rejected') state.textContent = strictLine(`Your decision doesn't count: ${why?.reason ?? ''}: ${why?.message ?? ''}`);
    });
    live.follow(listPath('toolcallapprovals', namespace), {fieldSelector: `metadata.name=${name}`}, this.#signal).catch((error) => live.interrupted(error));
  }
}

// showApproval shows a call until the signal.
export async function showApproval(namespace, name, into, signal) {
  const view = new ApprovalView(namespace, name, into, signal);
  const timer = setInterval(() => view.tick(), 1000);
  signal.addEventListener('abort', () => clearInterval(timer), {once: true});
  await keep(listPath('toolcalls', namespace), {fieldSelector: `metadata.name=${name}`}, view, signal);
}
