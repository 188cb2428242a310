// Makes text of others harmless to show, and formats numbers.

// What kubectl toolcall makes visible too: control characters, characters that reorder or hide text, letters that nobody sees, and
// line separators. Joiners, and the marks that some scripts write before numbers, are part of ordinary text.
const formatting = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u034f\u115f\u1160\u3164\uffa0\u2800]/gu;
const ordinary = /[\u200c\u200d\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u{110bd}\u{110cd}]/u;

function visible(character) {
  const code = character.codePointAt(0);
  if (character === '\n' || character === '\t' || ordinary.test(character)) return character;
  if (code < 0x20 || code === 0x7f) return '^' + String.fromCharCode(code ^ 0x40);
  return '<U+' + code.toString(16).toUpperCase().padStart(4, '0') + '>';
}

// safe returns the text with its control and formatting characters made visible.
export function safe(text) {
  text = String(text);
  if (!/[^\n\t\x20-\x7e]/.test(text)) return text;
  return text.toWellFormed().replaceAll('\r\n', '\n').replace(formatting, visible);
}

// safeLine is safe for a text that must stay on one line.
export function safeLine(text) {
  return safe(String(text).replace(/\r\n|[\n\t]/g, ' '));
}

// shorten cuts a text that is longer than a line should be.
export function shorten(text, length = 300) {
  const characters = Array.from(String(text).slice(0, 2 * length));
  return characters.length > length || text.length > 2 * length ? characters.slice(0, length).join('') + '…' : text;
}

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let unit = -1;
  do { n /= 1024; unit++; } while (n >= 1024 && unit < units.length - 1);
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

export function milliseconds(n) {
  if (n < 1000) return `${n} ms`;
  if (n < 60000) return `${(n / 1000).toFixed(2)} s`;
  const seconds = Math.round(n / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const minutes = Math.round(seconds / 60);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// seconds is a time that goes on, without what changes faster than it is read.
export function seconds(n) { return n < 60000 ? `${Math.floor(n / 1000)} s` : milliseconds(n); }

export function age(timestamp, now = Date.now()) {
  const from = typeof timestamp === 'number' ? timestamp : Date.parse(timestamp);
  const since = Math.max(0, Math.floor((now - from) / 1000));
  if (Number.isNaN(since)) return '';
  for (const [unit, size] of [['d', 86400], ['h', 3600], ['m', 60]]) {
    if (since >= 2 * size) return Math.floor(since / size) + unit;
  }
  return since + 's';
}
