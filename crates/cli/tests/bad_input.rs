//! What goes wrong around `serve` and `get` as programs: the status, one line, and nothing half-written under
//! a final name.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use common::{SEEKLESS, Serving, http, public_folder};
use rustix::process::{Pid, Signal, kill_process};

/// A file of `bytes` bytes, old enough for strong validators.
fn film(path: &Path, bytes: usize, fill: u8) {
    std::fs::write(path, vec![fill; bytes]).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The one line, without what stands before it.
fn one_line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_string()
}

fn address(serving: &Serving) -> std::net::SocketAddr {
    serving.url.trim_end_matches('/').split_once("//").unwrap().1.parse().unwrap()
}

#[test]
fn an_expired_certificate() {
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir(&root).unwrap();
    film(&root.join("f"), 1000, 7);
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let (cert_file, key_file) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert_file, parameters.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let (cert, key) = (cert_file.to_str().unwrap(), key_file.to_str().unwrap());
    let serving = Serving::start(&root, &["--tls-cert", cert, "--tls-key", key]);
    let url = format!("https://localhost:{}/f", address(&serving).port());
    let got = dir.path().join("got");
    std::fs::create_dir(&got).unwrap();
    let output = Command::new(&*SEEKLESS)
        .args(["get", &url, "--cacert", cert, "--output-dir"])
        .arg(&got)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = one_line(&output);
    assert!(line.contains("certificate") && line.contains("expired"), "{line}");
    assert_eq!(std::fs::read_dir(&got).unwrap().count(), 0);
}

/// A disk of one megabyte, in a mount namespace of its own so that nothing of it is left.
#[test]
fn a_full_disk_on_the_clients_side() {
    let dir = public_folder();
    let root = dir.path().join("www");
    let small = dir.path().join("small");
    std::fs::create_dir(&root).unwrap();
    std::fs::create_dir(&small).unwrap();
    film(&root.join("f"), 5_000_000, 7);
    let serving = Serving::start(&root, &[]);
    // After the attempt, what is there is listed; then room is made, and the same command goes on.
    let script = "mount -t tmpfs -o size=1m none \"$1\" || exit 77
        \"$2\" get \"$3f\" --output-dir \"$1\"; echo \"status $?\"; ls \"$1\"
        mount -o remount,size=20m \"$1\" || exit 77
        \"$2\" get \"$3f\" --output-dir \"$1\" --quiet; echo \"status $?\"; ls \"$1\"; cksum < \"$1/f\"; cksum < \"$4\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(&small)
        .arg(&*SEEKLESS)
        .arg(&serving.url)
        .arg(root.join("f"))
        .output();
    let output = match output {
        Ok(output) if is_root() && output.status.code() != Some(77) => output,
        _ => return println!("skipped: root"),
    };
    let line = one_line(&output);
    assert!(line.contains("f.part") && line.contains("make room"), "{line}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().filter(|l| !l.contains(" bytes")).collect();
    assert_eq!(lines[0], "status 1", "{text}");
    assert!(!lines[1..].iter().take_while(|l| !l.starts_with("status")).any(|l| *l == "f"), "{text}");
    let after: Vec<&str> = lines[1..].iter().skip_while(|l| !l.starts_with("status")).copied().collect();
    assert_eq!(after[..2], ["status 0", "f"], "{text}");
    assert_eq!(after[2], after[3], "the right bytes: {text}");
}

/// A file replaced while a client has half of it: the next run begins anew, and the old name is untouched
/// until then.
#[test]
fn a_file_replaced_between_two_runs() {
    let dir = public_folder();
    let root = dir.path().join("www");
    let got = dir.path().join("got");
    std::fs::create_dir(&root).unwrap();
    std::fs::create_dir(&got).unwrap();
    film(&root.join("f"), 9_000_000, 1);
    std::fs::write(got.join("f"), "of yesterday").unwrap();
    let serving = Serving::start(&root, &["--rate", "4MB"]);
    let url = format!("{}f", serving.url);
    let mut first =
        Command::new(&*SEEKLESS).args(["get", &url, "--quiet", "--output-dir"]).arg(&got).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    kill_process(Pid::from_raw(first.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(130));
    assert_eq!(std::fs::read_to_string(got.join("f")).unwrap(), "of yesterday");
    let new = root.join("new");
    film(&new, 8_000_000, 2);
    std::fs::rename(new, root.join("f")).unwrap();
    let output =
        Command::new(&*SEEKLESS).args(["get", &url, "--json", "--output-dir"]).arg(&got).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = &report["files"][0];
    assert_eq!(
        (output.status.code(), &file["restarts"], &file["resumed_bytes"]),
        (Some(0), &1.into(), &0.into())
    );
    assert!(std::fs::read(got.join("f")).unwrap() == vec![2; 8_000_000], "one edition, whole");
    assert_eq!(std::fs::read_dir(&got).unwrap().count(), 1);
}

/// Files the server may not read: 403 and no word of theirs; the rest is served.
#[test]
fn files_the_server_may_not_read() {
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir(&root).unwrap();
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o755)).unwrap();
    film(&root.join("open"), 1000, 7);
    film(&root.join("shut"), 1000, 7);
    std::fs::set_permissions(root.join("shut"), PermissionsExt::from_mode(0o600)).unwrap();
    let mut command = Command::new(&*SEEKLESS);
    if is_root() {
        // nobody
        command.uid(65_534).gid(65_534);
    } else {
        std::fs::set_permissions(root.join("shut"), PermissionsExt::from_mode(0o000)).unwrap();
    }
    let serving = match Serving::try_start(command, &root, &[]) {
        Some(serving) => serving,
        None => return println!("skipped: nobody"),
    };
    for (path, status) in [("/open", "200"), ("/shut", "403"), ("/open", "200")] {
        let answer = http::request(address(&serving), "GET", path, &[]).unwrap();
        assert!(answer.status_line.contains(status), "{path}: {}", answer.status_line);
        assert_eq!(answer.body == vec![7; 1000], status == "200", "{path}");
    }
}

/// A folder that the server may not enter: nothing of it could be served, so it does not begin.
#[test]
fn a_folder_the_server_may_not_enter() {
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir(&root).unwrap();
    let mut command = Command::new(&*SEEKLESS);
    command.args(["serve", "--listen", "127.0.0.1:0"]).arg(&root);
    if is_root() {
        std::fs::set_permissions(&root, PermissionsExt::from_mode(0o700)).unwrap();
        command.uid(65_534).gid(65_534);
    } else {
        std::fs::set_permissions(&root, PermissionsExt::from_mode(0o000)).unwrap();
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return println!("skipped: nobody: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("cannot serve {}: ", root.display())), "{said}");
}

/// Ranges and paths as people type them wrong, against the program itself.
#[test]
fn wrong_requests_get_the_right_status() {
    let dir = public_folder();
    let root = dir.path().join("www");
    std::fs::create_dir(&root).unwrap();
    film(&root.join("f"), 1000, 7);
    film(&root.join(".hidden"), 1000, 7);
    std::os::unix::fs::symlink("/etc/passwd", root.join("out")).unwrap();
    std::os::unix::fs::symlink("..", root.join("up")).unwrap();
    let serving = Serving::start(&root, &[]);
    // One that is read, and one longer than what is looked at.
    let many =
        |most| format!("bytes={}", (0..most).map(|n| format!("{n}-{n}")).collect::<Vec<_>>().join(","));
    let (thousand, thousands) = (many(1000), many(1400));
    for (path, range, status, bytes) in [
        ("/f", "bytes=0-0", "206", Some(1)),
        ("/f", "bytes=-1", "206", Some(1)),
        ("/f", "bytes=1-0", "200", Some(1000)),
        ("/f", "bytes=x", "200", Some(1000)),
        ("/f", "lines=0-1", "200", Some(1000)),
        ("/f", "bytes=1000-", "416", None),
        ("/f", "bytes=-0", "416", None),
        ("/f", "bytes=0-5,3-9,0-", "206", Some(1000)),
        ("/f", thousand.as_str(), "206", Some(1000)),
        ("/f", thousands.as_str(), "200", Some(1000)),
        ("/f/", "bytes=0-", "404", None),
        ("/../f", "bytes=0-", "400", None),
        ("/%2e%2e/f", "bytes=0-", "400", None),
        ("/..%2ff", "bytes=0-", "404", None),
        ("/up/f", "bytes=0-", "403", None),
        ("/out", "bytes=0-", "403", None),
        ("/.hidden", "bytes=0-", "404", None),
        ("/f%00", "bytes=0-", "404", None),
        ("/f%", "bytes=0-", "400", None),
    ] {
        let answer = http::request(address(&serving), "GET", path, &[("Range", range)]).unwrap();
        let shown = &range[..range.len().min(40)];
        assert!(answer.status_line.contains(status), "{path} {shown}: {}", answer.status_line);
        if let Some(bytes) = bytes {
            assert!(answer.body == vec![7; bytes], "{path} {shown}: {} bytes", answer.body.len());
        }
    }
}
