// Downloads a file of a Seekless server in whatever order the server likes, and puts each piece where it belongs.
//
//   const result = await download('/film.mp4', sink, { progress(have, size) {}, signal });
//
// A sink takes bytes in any order: fileSink (File System Access, the user's own file), opfsSink (the origin's private
// folder), memorySink (a Blob, where neither is offered). Any HTTP server will do: one that knows nothing of `Prefer:
// any-order` sends the parts, or the whole file, in order, and that is put together in the same way.

const LINE_MAX = 4096;
const LINES_MAX = 64;
const RANGES_MAX = 64;
const ATTEMPTS_MAX = 5;
const RESTARTS_MAX = 3;
// What a digest is made of has to be in memory as a whole: browsers have no digest that takes pieces.
const DIGEST_MAX = 512 * 1024 * 1024;

// Which bytes have arrived: disjoint [from, to), in order.
export class BlockMap {
  constructor(size) {
    this.size = size;
    this.spans = [];
  }

  add(from, to) {
    to = Math.min(to, this.size);
    if (from >= to) return;
    let first = 0;
    let end = this.spans.length;
    // The first that ends at or behind our start.
    while (first < end) {
      const middle = (first + end) >> 1;
      if (this.spans[middle][1] < from) first = middle + 1;
      else end = middle;
    }
    let last = first;
    while (last < this.spans.length && this.spans[last][0] <= to) {
      from = Math.min(from, this.spans[last][0]);
      to = Math.max(to, this.spans[last][1]);
      last++;
    }
    this.spans.splice(first, last - first, [from, to]);
  }

  have() {
    return this.spans.reduce((sum, [from, to]) => sum + to - from, 0);
  }

  missing(most) {
    const gaps = [];
    let at = 0;
    for (const [from, to] of [...this.spans, [this.size, this.size]]) {
      if (from > at && gaps.length < most) gaps.push([at, from]);
      at = to;
    }
    return gaps;
  }
}

function contentRange(text) {
  const found = /^\s*bytes\s+(\d+)-(\d+)\/(\d+)\s*$/i.exec(text ?? '');
  if (!found) return null;
  const [from, last, size] = found.slice(1).map(Number);
  if (!Number.isSafeInteger(size) || last < from || last >= size) return null;
  return { from, to: last + 1, size };
}

// Takes a multipart/byteranges answer apart by the lengths its parts state; never looks for a boundary in the data.
export class Parts {
  constructor(boundary) {
    this.delimiter = `--${boundary}`;
    this.state = 'preamble';
    this.line = '';
    this.lines = 0;
  }

  static of(contentType) {
    const found = /^\s*multipart\/byteranges\s*;(?:.*;)?\s*boundary="?([^";]{1,70})"?/i.exec(contentType ?? '');
    return found && new Parts(found[1].trim());
  }

  ended() {
    return this.state === 'end';
  }

  // Calls part(range) where one begins and data(offset, bytes) for its bytes.
  async take(bytes, part, data) {
    let at = 0;
    while (at < bytes.length && this.state !== 'end') {
      if (this.state === 'data') {
        const n = Math.min(this.range.to - this.offset, bytes.length - at);
        await data(this.offset, bytes.subarray(at, at + n));
        this.offset += n;
        at += n;
        if (this.offset === this.range.to) this.enter('after');
        continue;
      }
      const end = bytes.indexOf(10, at);
      const piece = bytes.subarray(at, end < 0 ? bytes.length : end);
      // Heads are ASCII; anything else in them is of no interest.
      for (const byte of piece) this.line += String.fromCharCode(byte);
      if (this.line.length > LINE_MAX) throw new Error('an answer with an endless line');
      at = end < 0 ? bytes.length : end + 1;
      if (end >= 0) {
        const line = this.line.replace(/\r$/, '');
        this.line = '';
        if (++this.lines > LINES_MAX) throw new Error('an answer with too many lines');
        this.oneLine(line, part);
      }
    }
  }

  enter(state) {
    this.state = state;
    this.lines = 0;
  }

  oneLine(line, part) {
    switch (this.state) {
      case 'preamble':
      case 'boundary': {
        const after = line.startsWith(this.delimiter) ? line.slice(this.delimiter.length).trimEnd() : null;
        if (after === '') {
          this.range = null;
          this.enter('head');
        } else if (after === '--') {
          this.enter('end');
        } else if (this.state === 'boundary') {
          throw new Error('an answer whose parts are not as long as they say');
        }
        return;
      }
      case 'head': {
        const colon = line.indexOf(':');
        if (line !== '') {
          if (colon > 0 && line.slice(0, colon).trim().toLowerCase() === 'content-range') {
            this.range = contentRange(line.slice(colon + 1));
          }
          return;
        }
        if (!this.range) throw new Error('an answer with a part of no known place');
        part(this.range);
        this.offset = this.range.from;
        this.enter('data');
        return;
      }
      case 'after':
        if (line !== '') throw new Error('an answer whose parts are not as long as they say');
        this.enter('boundary');
    }
  }
}

// A file the user chose. Browsers write to a copy and give it the name at close(); one that turns out wrong after that is
// removed, or emptied where that is not offered.
export async function fileSink(handle) {
  const stream = await handle.createWritable();
  let closed = false;
  return {
    kind: 'file',
    write: (offset, bytes) => stream.write({ type: 'write', position: offset, data: bytes }),
    clear: () => stream.truncate(0),
    close: async () => {
      await stream.close();
      closed = true;
    },
    abort: async () => {
      if (!closed) await stream.abort();
      else if (handle.remove) await handle.remove();
      else await (await handle.createWritable({ keepExistingData: false })).close();
    },
    read: () => handle.getFile(),
  };
}

// A file in the origin's private folder, to be handed over as a link when it is whole.
export async function opfsSink(name) {
  const folder = await navigator.storage.getDirectory();
  const handle = await folder.getFileHandle(name, { create: true });
  const sink = await fileSink(handle);
  const { abort } = sink;
  return {
    ...sink,
    kind: 'opfs',
    abort: async () => {
      await abort();
      await folder.removeEntry(name).catch(() => {});
    },
  };
}

// In memory. Blobs of the pieces, so that the browser may keep them elsewhere.
export function memorySink() {
  let pieces = [];
  const clear = async () => {
    pieces = [];
  };
  return {
    kind: 'memory',
    write: async (offset, bytes) => void pieces.push({ offset, blob: new Blob([bytes]) }),
    clear,
    close: async () => {},
    abort: clear,
    read: async () => {
      const blobs = [];
      let at = 0;
      for (const { offset, blob } of pieces.toSorted((a, b) => a.offset - b.offset)) {
        if (offset > at) throw new Error('a piece is missing');
        // What came twice is taken once.
        if (offset + blob.size <= at) continue;
        blobs.push(blob.slice(at - offset));
        at = offset + blob.size;
      }
      return new Blob(blobs);
    },
  };
}

class Changed extends Error {}
class Fatal extends Error {}

// The digest a server states for the whole file, as base64; null if none we can check.
function statedDigest(headers) {
  return /(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]+):/.exec(headers.get('repr-digest') ?? '')?.[1] ?? null;
}

export async function sha256(blob) {
  const bytes = new Uint8Array(await crypto.subtle.digest('SHA-256', await blob.arrayBuffer()));
  return btoa(String.fromCharCode(...bytes));
}

async function attempt(url, sink, known, signal, progress) {
  const resuming = known.validator !== null && (known.map?.have() ?? 0) > 0;
  if (!resuming && known.map) {
    // Nothing says whether what comes now belongs to what is here.
    known.map = null;
    await sink.clear();
  }
  let ranges = '0-0,1-';
  if (resuming) {
    // Only of an answer to several ranges may the parts come in any order.
    const gaps = known.map.missing(RANGES_MAX);
    const [from, to] = gaps[0];
    const split = gaps.length === 1 && to - from > 1;
    ranges = split ? `${from}-${from},${from + 1}-${to - 1}` : gaps.map(([a, b]) => `${a}-${b - 1}`).join(',');
  }
  const headers = { range: `bytes=${ranges}`, prefer: 'any-order', 'want-repr-digest': 'sha-256=5' };
  if (known.plainly) delete headers.range;
  else if (resuming) headers['if-range'] = known.validator;
  const answer = await fetch(url, { headers, signal, cache: 'no-store' });
  known.requests++;
  if (answer.status === 416 || answer.status === 400) {
    if (resuming) throw new Changed('the file changed on the server');
    if (known.plainly) throw new Fatal(`the server says ${answer.status}`);
    known.plainly = true;
    throw new Error(`the server says ${answer.status}`);
  }
  if (answer.status !== 200 && answer.status !== 206) {
    const passing = answer.status >= 500 || answer.status === 429 || answer.status === 408;
    throw new (passing ? Error : Fatal)(`the server says ${answer.status}`);
  }
  const etag = answer.headers.get('etag');
  const strong = etag?.startsWith('"') ? etag : null;
  const validator = strong ?? (etag ? null : answer.headers.get('last-modified'));
  if (resuming && (answer.status === 200 || validator !== known.validator)) {
    await answer.body?.cancel();
    throw new Changed('the file changed on the server');
  }
  known.validator ??= validator;
  known.digest = statedDigest(answer.headers) ?? known.digest;
  known.anyOrder ||= /(?:^|,)\s*any-order\s*(?:[;,]|$)/i.test(answer.headers.get('preference-applied') ?? '');
  const sizeIs = (size) => {
    known.map ??= new BlockMap(size);
    if (known.map.size !== size) throw new Changed('the file changed its size on the server');
  };
  const write = async (offset, bytes) => {
    await sink.write(offset, bytes);
    known.map?.add(offset, offset + bytes.length);
    known.streamed = offset + bytes.length;
    progress?.(known.map ? known.map.have() : known.streamed, known.map?.size);
  };
  const parts = answer.status === 206 ? Parts.of(answer.headers.get('content-type')) : null;
  const one = answer.status === 206 && !parts ? contentRange(answer.headers.get('content-range')) : null;
  if (answer.status === 206 && !parts && !one) throw new Fatal('the server does not say which bytes it sent');
  if (one) sizeIs(one.size);
  if (answer.status === 200) {
    // The whole of it, from the start.
    known.map = null;
    const length = answer.headers.get('content-length');
    if (length !== null && !answer.headers.has('content-encoding')) sizeIs(Number(length));
  }
  let at = one?.from ?? 0;
  const reader = answer.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (parts) {
        await parts.take(value, (range) => sizeIs(range.size), write);
      } else {
        const bytes = one ? value.subarray(0, Math.max(0, one.to - at)) : value;
        if (bytes.length > 0) await write(at, bytes);
        at += bytes.length;
      }
    }
  } catch (error) {
    await reader.cancel().catch(() => {});
    throw error;
  }
  // Without a length only the proper end of the answer says that it is whole.
  if (answer.status === 200) known.map ??= Object.assign(new BlockMap(at), { spans: at ? [[0, at]] : [] });
  if (parts && !parts.ended()) throw new Error('the answer ended before its last part');
}

// Fetches `url` into `sink`. Returns { bytes, digest, anyOrder, requests, restarts, blob }: `digest` is the sha-256 that was
// compared, or null if the server states none (or the page may not compute one). Throws one line, and leaves nothing.
export async function download(url, sink, { progress, signal } = {}) {
  const fresh = () => ({ map: null, validator: null, digest: null, anyOrder: false, plainly: false, streamed: 0 });
  let known = { ...fresh(), requests: 0 };
  let restarts = 0;
  let failures = 0;
  let best = 0;
  try {
    for (;;) {
      try {
        await attempt(url, sink, known, signal, progress);
        if (known.map?.missing(1).length === 0) break;
        throw new Error('the answer ended before the file was whole');
      } catch (error) {
        if (error instanceof Fatal || signal?.aborted) throw error;
        if (error instanceof Changed) {
          if (++restarts > RESTARTS_MAX) throw new Error(`${error.message}; it keeps changing`);
          known = { ...fresh(), requests: known.requests };
          best = 0;
          await sink.clear();
          continue;
        }
        const have = known.map?.have() ?? 0;
        failures = have > best ? 1 : failures + 1;
        best = Math.max(best, have);
        if (failures > ATTEMPTS_MAX) throw error;
        await new Promise((wake) => setTimeout(wake, Math.min(30000, 250 * 2 ** failures)));
      }
    }
    const size = known.map.size;
    const checkable = known.digest !== null && globalThis.crypto?.subtle && size <= DIGEST_MAX;
    await sink.close();
    const blob = await sink.read();
    if (blob.size !== size) throw new Error(`${blob.size} bytes arrived and not ${size}`);
    if (checkable && (await sha256(blob)) !== known.digest) throw new Error('the digest is wrong');
    const { anyOrder, requests } = known;
    return { bytes: size, digest: checkable ? known.digest : null, anyOrder, requests, restarts, blob };
  } catch (error) {
    await sink.abort().catch(() => {});
    throw error;
  }
}
