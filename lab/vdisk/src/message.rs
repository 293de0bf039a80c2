//! Faults on their way from one process to another, as a line of JSON.

use seekless_base::{Exit, Fault};
use serde_json::{Value, json};

/// `{"exit": 2, "fault": "..."}`.
pub fn fault_to_json(fault: &Fault) -> Value {
    json!({ "exit": fault.exit as u8, "fault": fault.message })
}

/// The fault in such a line; one that quotes the line if it is not one.
pub fn fault_from_json(text: &str) -> Fault {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return Fault::failed(format!("unexpected words from a process of ours: {text}"));
    };
    let exits = [Exit::Failed, Exit::Usage, Exit::Permission, Exit::Busy, Exit::Missing, Exit::Interrupted];
    let exit = exits.into_iter().find(|e| value["exit"] == *e as u8).unwrap_or(Exit::Failed);
    Fault::new(exit, value["fault"].as_str().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_reads_back_as_sent() {
        for exit in
            [Exit::Failed, Exit::Usage, Exit::Permission, Exit::Busy, Exit::Missing, Exit::Interrupted]
        {
            let fault = Fault::new(exit, "what, where, how");
            assert_eq!(fault_from_json(&fault_to_json(&fault).to_string()), fault);
        }
        assert_eq!(fault_from_json("oops").exit, Exit::Failed);
    }
}
