// The page round download.js: asks where to put the file, shows how far it is, says what was checked.
import { download, fileSink, memorySink, opfsSink } from './download.js';

const at = (id) => document.getElementById(id);
const mb = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
let stopping = null;

// `#/folder/film.mp4` names the file, so that it can be linked to.
function fromLink() {
  if (location.hash.startsWith('#/')) at('path').value = location.hash.slice(1);
}
fromLink();
addEventListener('hashchange', fromLink);

// The best place this browser offers. A dialog may only be shown while the click is fresh, so it comes first.
async function chooseSink(name) {
  if (window.showSaveFilePicker) return fileSink(await window.showSaveFilePicker({ suggestedName: name }));
  try {
    return await opfsSink(`seekless-${name}`);
  } catch {
    return memorySink();
  }
}

function nameOf(path) {
  const last = path.split(/[?#]/)[0].split('/').pop();
  try {
    return decodeURIComponent(last) || 'download';
  } catch {
    return last || 'download';
  }
}

at('form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const path = at('path').value;
  const name = nameOf(path);
  // Only ever from this server.
  const url = new URL(path, location.origin);
  if (url.origin !== location.origin) {
    at('state').textContent = 'Failed: a path of this server begins with one slash.';
    return;
  }
  at('save').hidden = true;
  at('start').disabled = true;
  at('state').textContent = '';
  stopping = new AbortController();
  try {
    const sink = await chooseSink(name);
    at('stop').disabled = false;
    const began = performance.now();
    const result = await download(url.href, sink, {
      signal: stopping.signal,
      progress(have, size) {
        at('bar').value = size ? have / size : 0;
        at('state').textContent = size ? `${mb(have)} of ${mb(size)}` : mb(have);
      },
    });
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    const order = result.anyOrder ? "in the server's order" : 'in order';
    const checked = result.digest ? `sha-256 ${result.digest} compared` : 'length compared, no digest';
    at('bar').value = 1;
    at('state').textContent = `Done: ${result.bytes} bytes in ${seconds} s, ${order}; ${checked}.`;
    if (sink.kind !== 'file') {
      if (at('save').href) URL.revokeObjectURL(at('save').href);
      at('save').href = URL.createObjectURL(result.blob);
      at('save').download = name;
      at('save').textContent = `Save ${name}`;
      at('save').hidden = false;
    }
  } catch (error) {
    at('bar').value = 0;
    at('state').textContent = error.name === 'AbortError' ? 'Stopped.' : `Failed: ${error.message}.`;
  } finally {
    at('start').disabled = false;
    at('stop').disabled = true;
    stopping = null;
  }
});

at('stop').addEventListener('click', () => stopping?.abort());
