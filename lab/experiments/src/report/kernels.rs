//! The table of older kernels on the front page: what `make test-kernels` recorded.

use std::collections::BTreeMap;
use std::path::Path;

use seekless_base::Fault;
use serde::Deserialize;
use serde_json::Value;

use super::number;

/// The record of `scripts/test-kernels`.
const RECORD: &str = "kernels.json";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// The commit that was tested; for whoever reads the record.
    #[serde(rename = "commit")]
    _commit: String,
    disk: Disk,
    kernels: Vec<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Disk {
    commands_s: f64,
    bytes_s: f64,
    streams: u64,
}

/// The table of the record in this folder, and a line on how it was made; empty without a record.
///
/// # Errors
/// [`Exit::Failed`] if the record is not understood.
pub(super) fn table(records: &Path) -> Result<String, Fault> {
    let path = records.join(RECORD);
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(String::new()) };
    let record: Record = serde_json::from_str(&text)
        .map_err(|e| Fault::failed(format!("{}: {e}; run scripts/test-kernels --record", path.display())))?;
    let Disk { commands_s, bytes_s, streams } = record.disk;
    let mut text = String::from(
        "| Kernel | `observe` by | streams found after (s) | as shipped (MB/s) | `observe` | shim | `observe` stopped |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for kernel in &record.kernels {
        let word = |name: &str| kernel.get(name).and_then(Value::as_str).unwrap_or("-");
        let value = |name: &str| kernel.get(name).and_then(Value::as_f64);
        let one = |value: Option<f64>| value.map_or("-".into(), number);
        // The arms alternate twice.
        let both = |name: &str| {
            let [first, second] = [1, 2].map(|round| value(&format!("{name}_{round}")));
            one(first.zip(second).map(|(a, b)| (a + b) / 2.0))
        };
        text += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            word("kernel"),
            word("attachment"),
            one(value("found_s")),
            both("as_shipped"),
            both("observe"),
            both("shim"),
            one(value("stopped")),
        );
    }
    text += &format!(
        "\nnginx, {streams} clients, a disk of {} commands and {} MB a second.\n",
        number(commands_s),
        number(bytes_s / 1e6)
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use seekless_base::Exit;

    use super::*;

    #[test]
    fn a_line_has_the_mean_of_both_rounds() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(table(dir.path()).unwrap(), "");
        let record = r#"{ "commit": "0", "disk": { "commands_s": 50, "bytes_s": 40000000, "streams": 20 },
            "kernels": [ { "kernel": "6.1.0", "as_shipped_1": 6.0, "as_shipped_2": 7.0, "observe_1": 30,
            "observe_2": 40, "attachment": "probes", "found_s": 1.5 } ] }"#;
        std::fs::write(dir.path().join(RECORD), record).unwrap();
        let text = table(dir.path()).unwrap();
        assert!(text.contains("| 6.1.0 | probes | 1.5 | 6.5 | 35 | - | - |"), "{text}");
        std::fs::write(dir.path().join(RECORD), "{}").unwrap();
        assert_eq!(table(dir.path()).unwrap_err().exit, Exit::Failed);
    }
}
