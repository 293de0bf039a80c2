// A Node host: synchronous, asynchronous (its thread pool), streams, and a worker.
const fs = require("fs"), crypto = require("crypto");
const { Worker, isMainThread, workerData, parentPort } = require("worker_threads");
const sha = (b) => crypto.createHash("sha256").update(b).digest("hex");

if (!isMainThread) {
  parentPort.postMessage(sha(fs.readFileSync(workerData)));
} else {
  const path = process.argv[2];
  const say = (name, b) => console.log(name, b.length, sha(b));
  (async () => {
    say("sync", fs.readFileSync(path));
    say("async", await fs.promises.readFile(path));
    const handle = await fs.promises.open(path);
    const parts = await Promise.all(
      [...Array(16).keys()].map((i) => handle.read(Buffer.alloc(100000), 0, 100000, i * 250000)),
    );
    parts.forEach((p, i) => say("part " + i, p.buffer));
    await handle.close();
    const chunks = [];
    for await (const c of fs.createReadStream(path, { highWaterMark: 70000 })) chunks.push(c);
    say("stream", Buffer.concat(chunks));
    const copy = path + ".copy." + process.pid;
    await fs.promises.copyFile(path, copy);
    say("copy", fs.readFileSync(copy));
    fs.unlinkSync(copy);
    const w = new Worker(__filename, { workerData: path });
    w.on("message", (m) => console.log("worker", m));
  })();
}
