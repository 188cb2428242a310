// The page: asks for a token, and shows what the address after # says.
import {hasToken, isToken, setToken} from './api.js';
import {showCall} from './call.js';
import {forgetPolicies} from './decision.js';
import {button, element, link} from './dom.js';
import {isList, showList} from './list.js';
import {problem, whenUnauthorized} from './problem.js';
import {safeLine} from './text.js';

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const label = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const name = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;

let showing = new AbortController();

// route is what the address after # says; null if it says nothing that there is.
function route() {
  const [view = '', namespace = '', object = '', ...more] = location.hash.replace(/^#\/?/, '').split('/');
  if (more.length || (namespace && !label.test(namespace))) return null;
  if (isList(view) && !object) return {view, namespace};
  if (view === 'call' && namespace && name.test(object)) return {view, namespace, object};
  return view === '' ? {view: 'calls', namespace: ''} : null;
}

function show() {
  showing.abort(new DOMException('another view is shown', 'AbortError'));
  showing = new AbortController();
  main.replaceChildren();
  forgetPolicies();
  if (!hasToken()) return ask();
  const at = route();
  showNav(at);
  if (!at) return main.append(element('p', 'error', 'There is no such page.'));
  document.title = safeLine([at.object || at.view, at.namespace].filter(Boolean).join(' – '));
  const {signal} = showing;
  const view = at.view === 'call' ? showCall(at.namespace, at.object, main, signal) : showList(at.view, at.namespace, main, signal);
  view.catch((error) => { if (!signal.aborted) main.prepend(element('p', '', problem(error))); });
}

function showNav(at) {
  const of = at?.namespace ? [at.namespace] : [];
  const links = ['calls', 'sessions'].map((view) => {
    const made = link(view === 'calls' ? 'Calls' : 'Sessions', view, ...of);
    if (at?.view === view) made.setAttribute('aria-current', 'page');
    return made;
  });
  const all = of.length && isList(at.view) ? [link('All namespaces', at.view)] : [];
  nav.replaceChildren(...links, ...all, button('Forget the token', () => { setToken(''); show(); }));
  nav.hidden = false;
}

// ask asks for a token, and for the namespace to begin with.
function ask(why) {
  nav.hidden = true;
  document.title = 'Tool calls';
  const at = route();
  const token = field('token', 'Token', 'text');
  // Browsers offer to keep what is in a password field.
  token.input.className = 'secret';
  const namespace = field('namespace', 'Namespace; empty for all', 'text');
  namespace.input.value = at?.namespace ?? '';
  const state = element('p', 'error', why);
  const submit = element('button', '', 'Show calls');
  const form = element('form', '', state,
    element('p', 'note', 'The console reads with your token: it shows what you may read, and changes nothing. The page keeps the token in its memory alone, so it is gone when you close or reload the page. ',
      'Use a short-lived one: kubectl create token ACCOUNT -n NAMESPACE --duration=1h'),
    token.label, namespace.label, submit);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const given = token.input.value.trim();
    const chosen = namespace.input.value.trim();
    if (!isToken(given)) return void (state.textContent = 'That isn\'t a token.');
    if (chosen && !label.test(chosen)) return void (state.textContent = 'That isn\'t the name of a namespace.');
    token.input.value = '';
    setToken(given);
    const to = at?.view === 'call' && at.namespace === chosen ? location.hash : `#/${at && isList(at.view) ? at.view : 'calls'}${chosen ? `/${chosen}` : ''}`;
    if (location.hash === to) show();
    else location.hash = to;
  });
  main.replaceChildren(form);
  token.input.focus();
}

function field(id, text, type) {
  const input = element('input');
  input.id = id;
  input.type = type;
  input.autocomplete = 'off';
  input.spellcheck = false;
  return {input, label: element('label', '', text, input)};
}

whenUnauthorized((error) => {
  if (!hasToken()) return;
  setToken('');
  showing.abort(new DOMException('the token is not valid', 'AbortError'));
  ask(`${safeLine(error.message)}: ${error.hint}`);
});
window.addEventListener('hashchange', show);
show();
