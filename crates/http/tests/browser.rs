//! The download page in a real browser (`scripts/provision --browser` fetches Chromium's headless shell).

mod common;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Site, get, settings};
use seekless_http::digest::{self, Algorithm};
use seekless_http::serve::Server;
use seekless_testing::browser::{chromium, reported};
use serde_json::Value;

/// A page that imports the page's own module and reports what `body` returns.
fn test_page(report: &TcpListener, body: &str) -> String {
    let address = report.local_addr().unwrap();
    format!(
        r#"<!doctype html><meta charset="utf-8"><script type="module">
        import {{ download, fileSink, memorySink, opfsSink, sha256 }} from '/.seekless/download.js';
        const wait = async (test) => {{
          for (let i = 0; i < 1500; i++) {{
            const found = test();
            if (found) return found;
            await new Promise((wake) => setTimeout(wake, 100));
          }}
          throw new Error('waited in vain');
        }};
        const names = async () => {{
          const folder = await navigator.storage.getDirectory();
          const all = [];
          for await (const name of folder.keys()) all.push(name);
          return all.sort();
        }};
        const run = async () => {{ {body} }};
        const value = await run().catch((error) => ({{ error: `${{error}} ${{error.stack}}` }}));
        const bytes = new TextEncoder().encode(JSON.stringify(value));
        const text = [...bytes].map((b) => b.toString(16).padStart(2, '0')).join('');
        await fetch('http://{address}/?' + text, {{ mode: 'no-cors' }});
        </script>"#
    )
}

/// What a proxy does to the first answer that is longer than [`Meddler::AT`].
#[derive(Clone, Copy)]
enum Meddling {
    Cut,
    Flip,
}

/// A proxy in front of the server that meddles once.
struct Meddler {
    address: SocketAddr,
    done: Arc<AtomicU64>,
}

impl Meddler {
    const AT: u64 = 2_000_000;

    fn start(server: SocketAddr, meddling: Meddling) -> Meddler {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(AtomicU64::new(0));
        let count = done.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(server) else { return };
                let (mut from, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
                let count = count.clone();
                std::thread::spawn(move || {
                    let _ = meddle(upstream, client, meddling, &count);
                });
            }
        });
        Meddler { address, done }
    }
}

fn meddle(mut from: TcpStream, mut to: TcpStream, meddling: Meddling, done: &AtomicU64) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    let mut passed = 0;
    loop {
        let n = match from.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(n) => n,
        };
        passed += n as u64;
        if passed > Meddler::AT && done.fetch_add(1, Ordering::SeqCst) == 0 {
            match meddling {
                Meddling::Cut => break,
                // Within the data of a part: parts are longer than this and their heads shorter.
                Meddling::Flip => piece[n / 2] ^= 1,
            }
        }
        to.write_all(&piece[..n])?;
    }
    let _ = from.shutdown(Shutdown::Both);
    to.shutdown(Shutdown::Both)
}

#[test]
fn the_page_is_served_only_if_asked_for() {
    let site = Site::new();
    let server = Server::start(settings(&site.root)).unwrap();
    assert_eq!(get(server.address(), "/.seekless/", &[]).status, 404);
    server.stop();
    let mut own = settings(&site.root);
    own.download_page = true;
    let server = Server::start(own).unwrap();
    for (path, kind) in [("/.seekless/", "html"), ("/.seekless/page.js", "javascript")] {
        let answer = get(server.address(), path, &[]);
        assert_eq!(answer.status, 200);
        assert!(answer.header("content-type").unwrap().contains(kind));
        assert!(answer.header("content-security-policy").unwrap().contains("default-src 'none'"));
    }
    assert_eq!(get(server.address(), "/.seekless/other", &[]).status, 404);
    server.stop();
}

#[test]
fn a_browser_downloads_in_any_order_and_checks_what_came() {
    let Some(browser) = chromium() else { return println!("skipped: chromium") };
    let site = Site::new();
    let film = site.film("film 1.bin", 5_000_003);
    site.film("small", 1000);
    site.film("empty", 0);
    let (value, _) = digest::of(Algorithm::Sha256, &mut film.as_slice()).unwrap();
    let right = digest::field(Algorithm::Sha256, &value);
    let right = right.trim_start_matches("sha-256=:").trim_end_matches(':');
    let mut own = settings(&site.root);
    own.download_page = true;
    let server = Server::start(own).unwrap();
    let report = TcpListener::bind("127.0.0.1:0").unwrap();

    // Every place a file can go to, and files too small for any order.
    let body = r#"
        const folder = await navigator.storage.getDirectory();
        const chosen = await folder.getFileHandle('chosen', { create: true });
        const results = {};
        for (const [path, kind, sink] of [
          ['/film%201.bin', 'memory', memorySink()],
          ['/film%201.bin', 'opfs', await opfsSink('a film')],
          ['/film%201.bin', 'file', await fileSink(chosen)],
          ['/small', 'small', memorySink()],
          ['/empty', 'empty', memorySink()],
        ]) {
          const { blob, ...rest } = await download(path, sink);
          results[kind] = { ...rest, sha256: await sha256(blob), length: blob.size };
        }
        const missing = await download('/none', await opfsSink('none')).catch((error) => error.message);
        return { results, missing, names: await names() };"#;
    fs::write(site.root.join("sinks.html"), test_page(&report, body)).unwrap();
    let value = reported(&browser, &format!("{}sinks.html", server.url()), &report);
    for kind in ["memory", "opfs", "file"] {
        let result = &value["results"][kind];
        assert_eq!(result["sha256"], right, "{kind}: {value}");
        assert_eq!(result["digest"], right, "{kind}: the page compared it itself: {value}");
        assert_eq!(result["anyOrder"], true, "{kind}: {value}");
        assert_eq!(result["requests"], 1, "{kind}: {value}");
    }
    for (kind, bytes) in [("small", 1000), ("empty", 0)] {
        assert_eq!(value["results"][kind]["length"], bytes, "{value}");
        assert_eq!(value["results"][kind]["anyOrder"], false, "{value}");
    }
    assert_eq!(value["missing"], "the server says 404");
    assert_eq!(value["names"], serde_json::json!(["a film", "chosen"]), "nothing is left of what failed");

    // The page itself, as a person uses it: a link to the file, one click, a dialog that names a file.
    let body = r#"
        const folder = await navigator.storage.getDirectory();
        const page = async (link, picker) => {
          const frame = document.createElement('iframe');
          frame.src = '/.seekless/#' + link;
          document.body.append(frame);
          await new Promise((loaded) => frame.addEventListener('load', loaded));
          const inside = frame.contentDocument;
          if (picker) frame.contentWindow.showSaveFilePicker = picker;
          else delete frame.contentWindow.showSaveFilePicker;
          inside.getElementById('start').click();
          const state = inside.getElementById('state');
          const text = await wait(() => /^(Done|Failed)/.test(state.textContent) && state.textContent);
          const save = inside.getElementById('save');
          return { text, href: save.hidden ? null : save.href, name: save.download };
        };
        const chosen = await folder.getFileHandle('by dialog', { create: true });
        const dialog = await page('/film%201.bin', async () => chosen);
        const plain = await page('/film%201.bin', null);
        const none = await page('/none', null);
        const saved = plain.href && await sha256(await (await fetch(plain.href)).blob());
        return { dialog, dialogSha256: await sha256(await chosen.getFile()), plain, saved, none };"#;
    let page = test_page(&report, body).replace("<script", "<body></body><script");
    fs::write(site.root.join("page.html"), page).unwrap();
    let value = reported(&browser, &format!("{}page.html", server.url()), &report);
    assert_eq!((&value["dialogSha256"], &value["saved"]), (&right.into(), &right.into()), "{value}");
    let done = value["plain"]["text"].as_str().unwrap();
    assert!(done.starts_with("Done: 5000003 bytes") && done.contains("in the server's order"), "{done}");
    assert!(done.contains(right), "{done}");
    assert_eq!(value["plain"]["name"], "film 1.bin");
    assert_eq!(value["dialog"]["href"], Value::Null, "it is where the dialog said");
    assert_eq!(value["none"]["text"], "Failed: the server says 404.");

    // A connection that breaks is resumed; a byte that is wrong is found out, and nothing stays.
    let body = r#"
        const result = await download('/film%201.bin', await opfsSink('film'))
          .then(async ({ blob, ...rest }) => ({ ...rest, sha256: await sha256(blob) }), (error) => error.message);
        return { result, names: await names() };"#;
    fs::write(site.root.join("meddled.html"), test_page(&report, body)).unwrap();
    for (meddling, wanted) in [(Meddling::Cut, "film"), (Meddling::Flip, "")] {
        let proxy = Meddler::start(server.address(), meddling);
        let value = reported(&browser, &format!("http://{}/meddled.html", proxy.address), &report);
        assert!(proxy.done.load(Ordering::SeqCst) > 0, "it did meddle");
        if wanted.is_empty() {
            assert_eq!(value["result"], "the digest is wrong", "{value}");
            assert_eq!(value["names"], serde_json::json!([]), "{value}");
        } else {
            assert_eq!(value["result"]["sha256"], right, "{value}");
            assert_eq!(value["result"]["requests"], 2, "{value}");
            assert_eq!(value["result"]["restarts"], 0, "{value}");
        }
    }
    server.stop();
}
