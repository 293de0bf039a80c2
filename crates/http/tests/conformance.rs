//! Suites of others against the server: h2spec (HTTP/2) and the cases for plain files of nginx's own tests.
//! Both are skipped where they are not there; `scripts/provision-conformance` fetches them.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Site, settings};
use seekless_http::serve::{Server, tls};

fn cache(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache").join(name)
}

#[test]
fn h2spec_finds_nothing() {
    let h2spec = cache("go/bin/h2spec");
    if !h2spec.is_file() {
        return println!("skipped: h2spec");
    }
    let site = Site::new();
    // The suite wants a window's worth at /.
    site.film("index.html", 300_000);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    let (certificates, key) = (site.dir.path().join("cert.pem"), site.dir.path().join("key.pem"));
    fs::write(&certificates, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut own = settings(&site.root);
    own.tls = Some(tls::TlsFiles { certificates, key });
    let server = Server::start(own).unwrap();
    let output = Command::new(h2spec)
        .args(["--strict", "--tls", "--insecure", "--timeout", "10", "--port"])
        .arg(server.address().port().to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let failures = text.split_once("Failures:").map_or("", |(_, failures)| failures);
    assert!(text.contains(" tests, ") && failures.is_empty(), "{failures}");
    assert!(output.status.success(), "{text}");
    server.stop();
}

/// Cases that ask for what we do otherwise, and why it is right to; docs/HTTP.md says more.
const OTHERWISE: &[(&str, &[&str])] = &[
    (
        "range.t",
        &[
            // A configuration of nginx's, which we have not: recoding, max_ranges.
            "recoded - correct content",
            "max_ranges reached",
            "max_ranges zero",
            // A Range field that is none may be ignored (RFC 9110, 14.2): we send the whole file, nginx 416.
            "not satisfiable - alpha in first byte pos",
            "not satisfiable - alpha in last byte pos",
            "not satisfiable - no hyphen",
            "not satisfiable - no comma",
            // Overlapping ranges: we merge them (RFC 9110, 15.3.7.2), nginx sends the whole file.
            "not satisfiable - malicious byte ranges",
        ],
    ),
    (
        "range_if_range.t",
        // Set by nginx's configuration: other dates of change.
        &["if-range notime - no last modified", "if-range time wrong - last modified", "if-range time"],
    ),
    ("not_modified.t", &[]),
];

#[test]
fn nginx_tests_of_plain_files_differ_only_where_they_should() {
    let suite = cache("nginx-tests");
    if !suite.join("range.t").is_file() {
        return println!("skipped: nginx-tests");
    }
    // The stand-in starts the command; this crate has none, so one built beside this test is needed.
    let exe = std::env::current_exe().unwrap();
    let seekless = exe.parent().and_then(Path::parent).unwrap().join("seekless");
    if !seekless.is_file() {
        return println!("skipped: seekless");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("lib/Test")).unwrap();
    // The suite compares the names of fields with their usual letters, which do not matter and are small in
    // our answers.
    let module = fs::read_to_string(suite.join("lib/Test/Nginx.pm")).unwrap();
    let end = "\tlog_in($reply);\n\treturn $reply;";
    assert!(module.contains(end), "another version of the suite");
    let usual = "\t$reply =~ s{^([a-z][a-z0-9-]*)(?=: )}{join '-', map { $_ eq 'etag' ? 'ETag' : ucfirst } split '-', $1}gem \
                 if defined $reply;\n";
    fs::write(dir.path().join("lib/Test/Nginx.pm"), module.replace(end, &format!("{usual}{end}"))).unwrap();
    for (name, otherwise) in OTHERWISE {
        fs::copy(suite.join(name), dir.path().join(name)).unwrap();
        let output = Command::new("perl")
            .arg(name)
            .current_dir(dir.path())
            .env("SEEKLESS", &seekless)
            .env(
                "TEST_NGINX_BINARY",
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/nginx-for-tests"),
            )
            .output();
        let Ok(output) = output else { return println!("skipped: perl") };
        let text = String::from_utf8_lossy(&output.stdout);
        let all = text.lines().filter(|l| l.starts_with("ok ") || l.starts_with("not ok ")).count();
        assert!(all >= 10, "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
        let failed: BTreeSet<&str> = text
            .lines()
            .filter_map(|l| l.strip_prefix("not ok ")?.split_once(" - ").map(|(_, case)| case))
            .collect();
        assert_eq!(failed, otherwise.iter().copied().collect(), "{name}");
        println!("{name}: {} of {all} cases", all - failed.len());
    }
}
