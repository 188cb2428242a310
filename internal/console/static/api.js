// Sends the page's reads to the API server, through the console. The token is in this variable and nowhere else.
let token = '';

export function setToken(value) { token = value; }
export function hasToken() { return token !== ''; }
export function isToken(text) { return text.length < 16000 && /^[A-Za-z0-9._~+/-]+=*$/.test(text); }

const group = '/apis/toolcall.dev/v1alpha1/';
const outputGroup = '/apis/subresources.toolcall.dev/v1alpha1/';
const maxError = 64 << 10;

export function listPath(resource, namespace) {
  return group + (namespace ? `namespaces/${encodeURIComponent(namespace)}/` : '') + resource;
}

export function objectPath(resource, namespace, name) { return `${listPath(resource, namespace)}/${encodeURIComponent(name)}`; }

export function logPath(namespace, name) {
  return `${outputGroup}namespaces/${encodeURIComponent(namespace)}/toolcalls/${encodeURIComponent(name)}/log`;
}

// grantOf is how one gets the right that a message says is missing.
function grantOf(message) {
  if (message.includes('executionpolicies')) return 'The ClusterRole toolcall-policy-viewer, bound in the whole cluster, has it.';
  if (/toolcallapprovals|"approve"/.test(message)) return 'The ClusterRole toolcall-approver, bound in the namespace, has those to decide about calls.';
  return 'The ClusterRole toolcall-viewer, bound in the namespace, has those that this page needs.';
}

// ApiError is an answer that is an error; code 0 is none at all.
export class ApiError extends Error {
  constructor(code, status = {}) {
    super(status.message || `the answer has the code ${code}`);
    this.code = code;
    this.causes = status.details?.causes ?? [];
    this.retryAfter = status.details?.retryAfterSeconds ?? 0;
  }

  // passing says that asking again may help.
  get passing() { return [0, 429, 500, 502, 503, 504].includes(this.code); }

  // hint says what the user can do.
  get hint() {
    switch (this.code) {
      case 0: return 'Is the console still running, and kubectl port-forward, if you use it?';
      case 401: return 'The token is wrong, or has expired. Give a new one.';
      case 403: return `The message says which right is missing. ${grantOf(this.message)}`;
      case 421: return 'Use a name of the console that its flag --hosts lists.';
      case 429: return 'It is tried again.';
      case 502: case 503: case 504: return 'What is needed is away for the moment. It is tried again.';
      default: return '';
    }
  }
}

// whoAmI is the user name that the API server has for the token.
export async function whoAmI(signal) {
  const review = await readObject('/apis/authentication.k8s.io/v1/selfsubjectreviews', {}, signal);
  return review.status?.userInfo?.username ?? '';
}

// decide writes a decision about a call: the only thing that the page writes. It isn't sent again, whatever comes of it.
export async function decide(namespace, decision, signal) {
  const response = await request(listPath('toolcallapprovals', namespace), {}, signal, {
    // The console wants to know that the request is its own page's: without a referrer, browsers send Origin: null.
    method: 'POST', body: JSON.stringify(decision), referrerPolicy: 'same-origin', headers: {'Content-Type': 'application/json'},
  });
  return response.json();
}

// request returns an answer that is no error.
export async function request(path, parameters, signal, {headers, ...more} = {}) {
  const query = new URLSearchParams(parameters).toString();
  let response;
  try {
    response = await fetch(query ? `${path}?${query}` : path, {
      headers: {...headers, Authorization: `Bearer ${token}`}, signal,
      cache: 'no-store', credentials: 'omit', redirect: 'error', mode: 'same-origin', referrerPolicy: 'no-referrer', ...more,
    });
  } catch (error) {
    signal?.throwIfAborted();
    throw new ApiError(0, {message: 'The console can\'t be reached.'});
  }
  if (response.ok) return response;
  let status = {};
  try {
    const text = await response.text();
    if (text.length < 2 * maxError) status = JSON.parse(text);
  } catch {
    // An answer that isn't the console's. Its code says what there is to say.
  }
  throw new ApiError(response.status, status);
}

export async function readObject(path, parameters, signal) {
  const response = await request(path, parameters, signal);
  try {
    return await response.json();
  } catch {
    signal?.throwIfAborted();
    throw Object.assign(new ApiError(0, {message: 'The answer broke off.'}), {brokeOff: true});
  }
}

// chunks are the bytes of an answer as they come.
export async function* chunks(response, signal) {
  const reader = response.body.getReader();
  try {
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch {
        signal?.throwIfAborted();
        throw new ApiError(0, {message: 'The connection broke.'});
      }
      if (part.done) return;
      yield part.value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// maxLine bounds an event of a watch: no object is larger.
const maxLine = 32 << 20;

// events are those of a watch. An end in the middle of one isn't an event.
export async function* events(response, signal) {
  const decoder = new TextDecoder();
  let line = '';
  for await (const chunk of chunks(response, signal)) {
    const parts = decoder.decode(chunk, {stream: true}).split('\n');
    parts[0] = line + parts[0];
    line = parts.pop();
    if (line.length > maxLine) throw new ApiError(502, {message: 'An event is too long.'});
    for (const part of parts) if (part) yield JSON.parse(part);
  }
}

// sleep waits, and ends with the signal.
export function sleep(duration, signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const timer = setTimeout(() => { signal.removeEventListener('abort', stop); resolve(); }, duration);
    const stop = () => { clearTimeout(timer); reject(signal.reason); };
    signal.addEventListener('abort', stop, {once: true});
  });
}

// Backoff waits longer each time, until something was reached.
export class Backoff {
  #wait = 500; #connected = Infinity;

  reached() { this.#wait = 500; }

  connected() { this.#connected = Date.now(); }

  // lasted says whether what was connected went on for a while. It was reached then, however it ended.
  lasted() {
    const lasted = Date.now() - this.#connected > 1000;
    this.#connected = Infinity;
    if (lasted) this.reached();
    return lasted;
  }

  async pause(error, signal) {
    const least = Math.min(error?.retryAfter ?? 0, 30) * 1000;
    const wait = Math.max(least, this.#wait * (0.75 + Math.random() / 2));
    this.#wait = Math.min(2 * this.#wait, 30000);
    await sleep(wait, signal);
  }
}
