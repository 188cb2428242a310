// The files that a call kept. Images are shown on request, if their first bytes are an image's, and short texts as text; everything
// else is saved.
import {chunks, logPath, request} from './api.js';
import {block, button, element, isNew} from './dom.js';
import {problem} from './problem.js';
import {maxSaved, saveAs} from './save.js';
import {bytes, safeLine} from './text.js';

// maxImage bounds the file of an image that is shown. The picture in it may be as large as it wants, and take more memory than the
// page has, so none is shown without being asked for.
const maxImage = 8 << 20;

// magic is how files begin that can't have scripts.
const magic = [
  {type: 'image/png', at: [[0, '\x89PNG\r\n\x1a\n']]},
  {type: 'image/jpeg', at: [[0, '\xff\xd8\xff']]},
  {type: 'image/gif', at: [[0, 'GIF87a']]},
  {type: 'image/gif', at: [[0, 'GIF89a']]},
  {type: 'image/webp', at: [[0, 'RIFF'], [8, 'WEBP']]},
];

// imageType is the type of an image by its first bytes; empty for anything else.
export function imageType(data) {
  const has = ([offset, text]) => [...text].every((c, i) => data[offset + i] === c.charCodeAt(0));
  return magic.find(({at}) => at.every(has))?.type ?? '';
}

// maxText bounds the file of a text that is shown.
const maxText = 256 << 10;

// showArtifacts lists a call's artifacts. It does nothing while they stay the same.
export function showArtifacts(call, into, signal) {
  const {artifacts = [], artifactsMessage, omittedArtifacts} = call.status ?? {};
  if (!isNew(into, call.metadata.uid, artifacts, artifactsMessage, omittedArtifacts)) return;
  into.replaceChildren();
  if (artifacts.length === 0 && !artifactsMessage) return;
  into.append(element('h2', '', 'Artifacts'), element('p', 'note', artifactsMessage, omittedArtifacts ? ` ${omittedArtifacts} more aren't listed.` : ''));
  for (const artifact of artifacts) into.append(new Artifact(call.metadata, artifact, signal).element());
}

function isImage(artifact) { return magic.some(({type}) => type === artifact.mediaType) && artifact.bytes <= maxImage; }

function isText(artifact) { return /^(?:text\/|application\/(?:json|yaml|xml)\b)/.test(artifact.mediaType) && artifact.bytes <= maxText; }

class Artifact {
  #call; #artifact; #signal; #box = element('div', 'artifact'); #state = element('span');

  constructor(call, artifact, signal) {
    this.#call = call;
    this.#artifact = artifact;
    this.#signal = signal;
  }

  // element shows the artifact's line.
  element() {
    const a = this.#artifact;
    const line = element('div', 'line', element('span', 'path text', a.path), element('span', 'number', bytes(a.bytes)),
      element('span', 'note text', `${a.mediaType}${a.state && a.state !== 'Complete' ? `, ${a.state}` : ''}`));
    const named = (text, act) => {
      const made = button(text, () => this.#try(act));
      made.setAttribute('aria-label', `${text} ${safeLine(a.path)}`);
      return made;
    };
    if (a.bytes <= maxSaved) line.append(named('Save', () => this.#save()));
    else line.append(`It is too large for a browser. Use: kubectl toolcall artifacts ${this.#call.name} -n ${this.#call.namespace}`);
    if (isImage(a)) line.append(named('Show', () => this.#show()));
    else if (isText(a)) line.append(named('Show', () => this.#showText()));
    line.append(this.#state);
    this.#box.append(line);
    return this.#box;
  }

  async #try(act) {
    this.#state.textContent = '';
    try {
      await act();
    } catch (error) {
      if (!this.#signal.aborted) this.#state.replaceChildren(problem(error));
    }
  }

  // #read returns the bytes, which are those that the call recorded.
  async #read() {
    const {namespace, name, uid} = this.#call;
    const response = await request(logPath(namespace, name), {artifact: this.#artifact.path, uid}, this.#signal);
    const data = new Uint8Array(this.#artifact.bytes);
    let at = 0;
    for await (const chunk of chunks(response, this.#signal)) {
      if (at + chunk.length > data.length) throw new Error('There are more bytes than the call recorded.');
      data.set(chunk, at);
      at += chunk.length;
    }
    if (at !== data.length) throw new Error(`Only ${at} of its ${data.length} bytes came.`);
    // Browsers hash in secure contexts only: over TLS, or on this machine.
    if (crypto.subtle && this.#artifact.sha256) {
      const sum = Array.from(new Uint8Array(await crypto.subtle.digest('SHA-256', data)), (b) => b.toString(16).padStart(2, '0')).join('');
      if (sum !== this.#artifact.sha256) throw new Error('Its bytes aren\'t those that the call recorded.');
    }
    return data;
  }

  async #save() { saveAs(this.#artifact.path, [await this.#read()]); }

  // #showText shows a text, in which nothing is markup.
  async #showText() {
    const text = block(new TextDecoder().decode(await this.#read()));
    text.tabIndex = 0;
    text.setAttribute('role', 'region');
    text.setAttribute('aria-label', safeLine(this.#artifact.path));
    this.#preview(text);
  }

  #preview(made) {
    this.#box.querySelector('img, pre')?.remove();
    this.#box.append(made);
  }

  async #show() {
    if (!crypto.subtle || !this.#artifact.sha256) {
      this.#state.textContent = this.#artifact.sha256 ? 'Without TLS the browser can\'t check its bytes, so it isn\'t shown.' :
        'The call recorded no SHA-256 of it, so it isn\'t shown.';
      return;
    }
    const data = await this.#read();
    const type = imageType(data);
    if (!type) {
      this.#state.textContent = 'It isn\'t the image that its type says, so it isn\'t shown.';
      return;
    }
    const image = element('img');
    const url = URL.createObjectURL(new Blob([data], {type}));
    const done = () => URL.revokeObjectURL(url);
    image.addEventListener('load', done, {once: true});
    image.addEventListener('error', () => { done(); this.#state.textContent = 'The browser can\'t show this image.'; image.remove(); }, {once: true});
    image.alt = safeLine(this.#artifact.path);
    image.src = url;
    this.#preview(image);
  }
}
