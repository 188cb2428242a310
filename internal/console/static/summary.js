// What a person decides about, as text that hides nothing. Without elements.
import {safe, safeLine, shorten} from './text.js';

// unseen are characters of ordinary text that nobody sees, or that look like a space.
const unseen = /[\u200c\u200d\u034f\u115f\u1160\u3164\uffa0\u2800\p{Variation_Selector}]|(?! )\p{Zs}/gu;

// strict is safe for a text that somebody decides about: all characters that nobody sees are visible, the ends of lines of other
// systems among them.
export function strict(text) {
  return safe(String(text).replaceAll('\r\n', '^M\n')).replace(unseen, (character) => `<U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}>`);
}

// strictLine is strict for a text that must stay on one line.
export function strictLine(text) { return strict(safeLine(text)); }

// awaits says whether a call waits for a person to decide about it.
export function awaits(call) {
  const {approval, phase, conditions = []} = call.status ?? {};
  if (!approval || ['Succeeded', 'Failed', 'Denied', 'Cancelled'].includes(phase)) return false;
  return conditions.find((condition) => condition.type === 'Approved')?.status === 'Unknown';
}

// asked is what the caller asked for: the script or source as a text of its own, and all the rest; empty when there is none.
export function asked(spec) {
  const {requestedBy, ...rest} = spec;
  const json = (value) => JSON.stringify(value, null, 2);
  if (spec.shell && Object.keys(rest).length === 1 && Object.keys(spec.shell).length === 1) return {text: spec.shell.command ?? '', rest: ''};
  if (spec.shell) return {text: spec.shell.command ?? '', rest: json({...rest, shell: {...spec.shell, command: undefined}})};
  if (spec.code) return {text: spec.code.source ?? '', rest: json({...rest, code: {...spec.code, source: undefined}})};
  return {text: '', rest: json(rest)};
}

// inShort is the action on one line, cut.
export function inShort(spec, length = 200) {
  if (spec.structured) return strictLine(shorten([spec.structured.binary, ...(spec.structured.args ?? [])].join(' '), length));
  if (spec.code) return strictLine(shorten(`${spec.code.language}: ${spec.code.source ?? ''}`, length));
  return strictLine(shorten(spec.shell?.command ?? JSON.stringify({tool: spec.tool, file: spec.file}), length));
}

// indented is a JSON text with its values on lines of their own. Each value stands as it is written: parsing would round numbers.
export function indented(json) {
  JSON.parse(json);
  const tokens = json.match(/"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g) ?? [];
  let depth = 0, text = '';
  const line = () => `\n${'  '.repeat(depth)}`;
  tokens.forEach((token, at) => {
    const before = tokens[at - 1], opens = before === '{' || before === '[';
    if (token === '}' || token === ']') {
      depth--;
      text += opens ? token : line() + token;
    } else {
      if (opens || before === ',') text += line();
      text += token === ':' ? ': ' : token;
      if (token === '{' || token === '[') depth++;
    }
  });
  return text;
}

// comparable is a summary without what each call has another of.
export function comparable(summary) {
  let left = false;
  return indented(summary).split('\n').filter((line) => {
    if (/^ {2}"/.test(line)) left = /^ {2}"(?:call|requestedAt)":/.test(line);
    else if (/^[^ ]/.test(line)) left = false;
    return !left;
  }).join('\n');
}

// isAlike says that two calls are of one session, or of one requester without a session.
export function isAlike(a, b) {
  if (a.spec.sessionRef || b.spec.sessionRef) return a.spec.sessionRef?.name === b.spec.sessionRef?.name;
  return a.spec.requestedBy?.username === b.spec.requestedBy?.username;
}

// isCounted says that an approval, by its UID, counted for a call.
export function isCounted(call, uid) { return (call.status?.approval?.approvedBy ?? []).some((one) => one.uid === uid); }

// digestOf is the digest of a summary. Browsers compute it only over TLS, or on localhost.
export async function digestOf(summary) {
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(summary));
  return `sha256:${Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}

// requestKey is another one whenever anything of what is decided about is: the digest alone may be kept with another summary.
export function requestKey({metadata, status}) { return JSON.stringify([metadata.uid, status?.approval?.digest, status?.approval?.summary]); }

// selectorOf selects the objects that have a value in a field.
export function selectorOf(field, value) { return `${field}=${value.replace(/[\\,=]/g, '\\$&')}`; }
