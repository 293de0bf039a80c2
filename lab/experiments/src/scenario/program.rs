//! Programs that read a part of the disk to its end: what the scenario `works-with-nodes` measures.

use seekless_base::Bytes;
use serde::{Deserialize, Serialize};

/// A program, or the nodes of a system, as lines for a shell.
///
/// The lines find the programs of `needs` by their names, and these variables: `LIBRARY`, the folder of the
/// library's files; `SUMS`, a file of their checksums as `sha256sum` writes them; `DATA`, the folder of the
/// program's own data, which `prepare` fills; `DIR`, a scratch folder of the arm; `TOOLS`, where programs and
/// Python packages were unpacked; `PORT`, `PORT2` to `PORT4`, free ports of 127.0.0.1; `SEEKLESS_LAB`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// As the axis calls it.
    pub name: String,
    /// Name for people; a version is put before the first comma.
    pub title: String,
    /// Programs without which the row is only a reason.
    #[serde(default)]
    pub needs: Vec<String>,
    /// A line that says the version, anywhere in its output.
    pub version: Option<String>,
    /// Writes `DATA`, once, and prints what will be read as lines of `sha256sum`. The program reads the
    /// library where it is absent.
    pub prepare: Option<String>,
    /// It reads the library, though `prepare` writes something beside it.
    #[serde(default)]
    pub of_library: bool,
    /// A server, which ends at SIGTERM. `read` is then its clients, which run outside the memory limit and
    /// without Seekless.
    pub serve: Option<String>,
    /// Reads everything once, and prints what it read as lines of `sha256sum`.
    pub read: String,
    /// The memory limit, where the programs themselves need more than the scenario's.
    pub memory: Option<Bytes>,
    /// What a reader of the table must know: why it cannot gain.
    pub remark: Option<String>,
}

impl Program {
    /// # Errors
    /// What its fields cannot say together.
    pub(super) fn validate(&self) -> Result<(), String> {
        let word = |name: &str| !name.is_empty() && !name.contains(|c: char| c == '/' || c.is_whitespace());
        if !word(&self.name) || !self.needs.iter().all(|name| word(name)) {
            return Err(format!("program `{}`: names have neither blanks nor slashes", self.name));
        }
        if self.memory.is_some_and(|memory| memory.0 < 64 << 20) {
            return Err(format!("program `{}`: memory at least 64MiB", self.name));
        }
        Ok(())
    }
}
