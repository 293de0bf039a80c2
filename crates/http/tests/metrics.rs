//! What the server shows at its metrics address.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Site, get, settings};
use seekless_frontend::metrics::{Address, MetricsServer};
use seekless_http::serve::Server;

#[test]
fn answers_are_counted_at_the_metrics_address() {
    let site = Site::new();
    site.film("film.mp4", 300_000);
    let server = Server::start(settings(&site.root)).unwrap();
    let metrics = MetricsServer::start(Address(([127, 0, 0, 1], 0).into()), server.source()).unwrap();
    assert_eq!(get(server.address(), "/film.mp4", &[]).body.len(), 300_000);
    let mut stream = TcpStream::connect(metrics.address()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    for line in [
        concat!("seekless_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",door=\"serve\"} 1"),
        "seekless_http_requests_total 1",
        "seekless_http_body_bytes_total 300000",
        "seekless_connections_accepted_total 1",
    ] {
        assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
    }
    assert!(server.is_whole());
}
