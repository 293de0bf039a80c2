//! HAProxy before several nodes: `deploy/haproxy.cfg` with addresses of this machine in the place of its
//! examples.

use std::process::Command;

use seekless_base::{Exit, Fault};

use super::{Site, write};
use crate::tools;

const DEPLOYED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/haproxy.cfg"));

/// The command that runs it, in the foreground.
pub(super) fn command(nodes: &[u16], site: &Site<'_>, port: u16) -> Result<Command, Fault> {
    let config = write(site, "haproxy.cfg", &configured(nodes, port)?)?;
    let mut command = tools::find("haproxy")?.command();
    command.arg("-db").arg("-f").arg(config);
    Ok(command)
}

/// One line `server` a node, all else as it is.
fn configured(nodes: &[u16], port: u16) -> Result<String, Fault> {
    let is_node = |line: &&str| line.trim_start().starts_with("server ");
    let wrong = || Fault::new(Exit::Failed, "deploy/haproxy.cfg names no address to replace");
    let mut text: Vec<String> = DEPLOYED.lines().filter(|l| !is_node(l)).map(String::from).collect();
    let bind = text.iter_mut().find(|l| l.contains("bind 0.0.0.0:8000")).ok_or_else(wrong)?;
    *bind = bind.replace("0.0.0.0:8000", &format!("127.0.0.1:{port}"));
    for (i, node) in nodes.iter().enumerate() {
        text.push(format!("    server node{} 127.0.0.1:{node}", i + 1));
    }
    Ok(text.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deployed_file_with_other_addresses() {
        let text = configured(&[7001, 7002], 8123).unwrap();
        assert!(text.contains("bind 127.0.0.1:8123") && !text.contains("10.0.0."), "{text}");
        // Nodes belong to the last section.
        let (_, nodes) = text.split_once("\nbackend nodes").unwrap();
        assert!(nodes.contains("server node1 127.0.0.1:7001\n    server node2 127.0.0.1:7002"));
        assert!(nodes.contains("hash-type consistent"));
    }
}
