// The page: asks for a token, and shows what the address after # says.
import {hasToken, isToken, setToken} from './api.js';
import {showApprovals} from './approvals.js';
import {showCall} from './call.js';
import {button, element, link} from './dom.js';
import {showCalls} from './list.js';
import {showPolicies} from './policies.js';
import {forgetPolicies} from './policy.js';
import {problem, whenUnauthorized} from './problem.js';
import {isLabel, routeOf} from './route.js';
import {showSessions} from './sessions.js';
import {safeLine} from './text.js';
import {showUse} from './use.js';

// views shows each view for a namespace, or all if it is empty, and an object, into an element, until a signal.
const views = {calls: showCalls, sessions: showSessions, call: showCall, approvals: showApprovals, use: showUse, policies: showPolicies};
const titles = {calls: 'Calls', sessions: 'Sessions', approvals: 'Approvals', use: 'Use', policies: 'Policies'};

const main = document.getElementById('main');
const nav = document.getElementById('nav');

let showing = new AbortController();

function show() {
  showing.abort(new DOMException('another view is shown', 'AbortError'));
  showing = new AbortController();
  main.replaceChildren();
  forgetPolicies();
  if (!hasToken()) return ask();
  const at = routeOf(location.hash);
  showNav(at);
  if (!at) return main.append(element('p', 'error', 'There is no such page.'));
  document.title = safeLine([at.object || titles[at.view], at.namespace].filter(Boolean).join(' – '));
  const {signal} = showing;
  views[at.view](at.namespace, at.object, main, signal).catch((error) => {
    if (!signal.aborted) main.prepend(element('p', '', problem(error)));
  });
}

function showNav(at) {
  const of = at?.namespace ? [at.namespace] : [];
  const links = Object.entries(titles).map(([view, title]) => {
    const made = link(title, view, ...of);
    if (at?.view === view || (view === 'calls' && at?.view === 'call')) made.setAttribute('aria-current', 'page');
    return made;
  });
  const where = element('span', 'where', at?.namespace ? element('span', 'text', at.namespace) : 'all namespaces');
  if (of.length) where.append(link('All namespaces', titles[at.view] ? at.view : 'calls'));
  where.append(button('Forget the token', () => { setToken(''); show(); }));
  nav.replaceChildren(...links, where);
  nav.hidden = false;
}

// ask asks for a token, and for the namespace to begin with.
function ask(why) {
  nav.hidden = true;
  document.title = 'Tool calls';
  const at = routeOf(location.hash);
  const token = field('token', 'Token', 'text');
  // Browsers offer to keep what is in a password field.
  token.input.className = 'secret';
  const namespace = field('namespace', 'Namespace; empty for all', 'text');
  namespace.input.value = at?.namespace ?? '';
  const state = element('p', 'error', why);
  state.setAttribute('role', 'alert');
  const submit = element('button', 'primary', 'Show calls');
  const form = element('form', 'card', element('h1', '', 'What did the agents do?'), state,
    element('p', 'note', 'The console works with your token: it shows what you may read. The page keeps the token in its memory alone, so it is gone when you close or reload the page. ',
      'Use a short-lived one:'), element('code', '', 'kubectl create token ACCOUNT -n NAMESPACE --duration=1h'),
    token.label, namespace.label, submit);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const given = token.input.value.trim();
    const chosen = namespace.input.value.trim();
    if (!isToken(given)) return void (state.textContent = 'That isn\'t a token.');
    if (chosen && !isLabel(chosen)) return void (state.textContent = 'That isn\'t the name of a namespace.');
    token.input.value = '';
    setToken(given);
    const same = at && at.namespace === chosen;
    const to = same ? location.hash || '#/calls' : `#/${at && titles[at.view] ? at.view : 'calls'}${chosen ? `/${chosen}` : ''}`;
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
document.getElementById('skip').addEventListener('click', (event) => { event.preventDefault(); main.focus(); });
window.addEventListener('hashchange', show);
show();
