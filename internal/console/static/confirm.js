// The second step of a decision: a dialog that shows what it is about, and takes it.
//
// Its button works once what it is about has been visible, unchanged and read to its end for a while: a click that was meant for
// something else, before the dialog came or the page was uncovered, decides nothing.
import {decide} from './api.js';
import {button, element} from './dom.js';
import {problem} from './problem.js';
import {differenceOf, requestOf} from './request.js';
import {inShort, indented, strictLine} from './summary.js';

// calm is how long everything has to be as it is before the button works, in milliseconds.
const calm = 700;
const maxNote = 1024;

// Guard enables a button when nothing has happened for a while that could have hidden or changed what it is about.
class Guard {
  #button; #timer = 0; #blocked = false; #isReady;

  constructor(guarded, isReady, signal) {
    this.#button = guarded;
    this.#isReady = isReady;
    const restart = () => this.restart();
    document.addEventListener('visibilitychange', restart, {signal});
    for (const event of ['focus', 'blur', 'resize', 'pageshow']) window.addEventListener(event, restart, {signal});
    signal.addEventListener('abort', () => this.block(), {once: true});
    this.restart();
  }

  restart() {
    clearTimeout(this.#timer);
    this.#button.disabled = true;
    if (this.#blocked || document.visibilityState !== 'visible' || !this.#isReady()) return;
    this.#timer = setTimeout(() => { this.#button.disabled = false; }, calm);
  }

  // ready looks again whether the text was read; it disables nothing that works.
  ready() { if (this.#button.disabled) this.restart(); }

  block() {
    this.#blocked = true;
    this.restart();
  }

  unblock() {
    this.#blocked = false;
    this.restart();
  }
}

// Confirmation is the dialog. What it shows stays as it was when it was opened.
export class Confirmation {
  #call; #decision; #text; #state; #note; #dialog; #guard; #onDecided; #onFailed; #signal; #closing = new AbortController(); #isRead = false; #isOver = false;

  constructor(call, decision, {into, signal, onDecided, onFailed}) {
    this.#call = call;
    this.#decision = decision;
    this.#onDecided = onDecided;
    this.#onFailed = onFailed;
    this.#signal = signal;
    const confirm = button(decision, () => this.#send());
    confirm.className = 'primary';
    this.#dialog = this.#make(confirm);
    signal.addEventListener('abort', () => this.close(), {once: true});
    into.append(this.#dialog);
    this.#dialog.showModal();
    this.#text.focus();
    this.#look();
    this.#guard = new Guard(confirm, () => this.#isRead, this.#closing.signal);
  }

  #make(confirm) {
    const {metadata, spec, status} = this.#call;
    const title = element('h2', '', `${this.#decision} call ${metadata.name}?`);
    title.id = 'confirm-title';
    this.#text = element('div', 'confirm-text request', ...requestOf(this.#call));
    this.#text.tabIndex = 0;
    this.#text.setAttribute('role', 'region');
    this.#text.setAttribute('aria-label', 'What you decide about');
    this.#text.addEventListener('scroll', () => this.#look());
    this.#state = element('p', 'note');
    this.#state.setAttribute('role', 'status');
    this.#note = element('textarea');
    this.#note.maxLength = maxNote;
    this.#note.rows = 2;
    this.#note.id = 'note';
    const dialog = element('dialog', 'confirm', title,
      element('p', '', element('span', 'text', strictLine(spec.requestedBy?.username ?? 'Somebody unknown')), ' asks for: ', element('code', 'text', inShort(spec))),
      element('p', '', 'Digest ', element('code', 'digest', status.approval.digest)), this.#text, this.#state,
      element('label', '', 'Note for the caller, who reads it when you deny', this.#note), element('div', 'toolbar', confirm, button('Cancel', () => this.close())));
    dialog.setAttribute('aria-labelledby', 'confirm-title');
    dialog.addEventListener('close', () => this.close());
    return dialog;
  }

  // #look notes that the end of the text was seen. To deny, nobody has to read it all.
  #look() {
    const box = this.#text;
    this.#isRead ||= this.#decision === 'Deny' || box.scrollTop + box.clientHeight >= box.scrollHeight - 2;
    if (!this.#isOver) this.#state.textContent = this.#isRead ? 'You decide about exactly this, for one start.' : 'Read it to the end: then you can approve it.';
    this.#guard?.ready();
  }

  // update has the call as it is now: what was shown must still be what it waits for.
  update(call, waits) {
    if (this.#isOver || (waits && call.metadata.uid === this.#call.metadata.uid && call.status.approval.digest === this.#call.status.approval.digest)) return;
    this.#end(waits ? 'What would run has changed. This is the difference. Close the dialog, and read it again.' : 'The call doesn\'t wait for a decision any more.');
    if (waits) this.#text.replaceChildren(differenceOf(indented(this.#call.status.approval.summary), indented(call.status.approval.summary), 'The text is the same.'));
  }

  // #end leaves nothing to decide.
  #end(why) {
    this.#isOver = true;
    this.#guard.block();
    this.#state.className = 'error';
    this.#state.textContent = why;
  }

  // #send sends the decision once. It goes on when the dialog is closed meanwhile.
  async #send() {
    const {metadata, status} = this.#call;
    this.#guard.block();
    const decision = {callRef: {name: metadata.name, uid: metadata.uid}, digest: status.approval.digest, decision: this.#decision, note: this.#note.value};
    try {
      const made = await decide(metadata.namespace, decision, this.#signal);
      this.close();
      this.#onDecided(made);
    } catch (error) {
      if (!this.#signal.aborted) this.#failed(error);
    }
  }

  #failed(error) {
    const isUnknown = [0, 500, 502, 503, 504].includes(error.code ?? 0);
    const said = [problem(error), isUnknown ? ' It isn\'t known whether the decision arrived: see what became of the call before you decide again.' : ''];
    if (isUnknown || !this.#dialog.open) {
      this.close();
      return this.#onFailed(...said);
    }
    this.#state.replaceChildren(...said);
    this.#guard.unblock();
  }

  close() {
    this.#closing.abort(new DOMException('the dialog is closed', 'AbortError'));
    this.#dialog.close();
    this.#dialog.remove();
  }
}
