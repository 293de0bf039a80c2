//! Answers of the simulator kept in a folder, a file each, so that a run of hours that was interrupted goes
//! on where it was. An answer is valid for the program that gave it: one built anew asks everything again.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use seekless_base::Fault;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tools;

/// A folder of answers.
#[derive(Debug)]
pub(super) struct Answers {
    folder: PathBuf,
    /// Size and time of the program.
    program: (u64, i64, i64),
}

#[derive(Serialize, Deserialize)]
struct Kept {
    program: (u64, i64, i64),
    asked: Vec<Vec<String>>,
    value: Value,
    seconds: f64,
}

impl Answers {
    /// Those of this folder, which is made.
    ///
    /// # Errors
    /// The folder cannot be made, or the program cannot be found.
    pub(super) fn new(folder: PathBuf) -> Result<Answers, Fault> {
        crate::results::folder(&folder)?;
        let program = tools::laboratory()?;
        let about = fs::metadata(&program).map_err(|e| seekless_output::input::unreadable(&program, &e))?;
        Ok(Answers { folder, program: (about.size(), about.mtime(), about.mtime_nsec()) })
    }

    /// The stored answer to a question. A malformed file counts as no answer.
    pub(super) fn get(&self, asked: &[Vec<String>]) -> Option<(Value, f64)> {
        let kept: Kept = serde_json::from_str(&fs::read_to_string(self.path(asked)).ok()?).ok()?;
        (kept.program == self.program && kept.asked == asked).then_some((kept.value, kept.seconds))
    }

    /// Keeps an answer. The file appears whole or not at all.
    ///
    /// # Errors
    /// Those of writing it.
    pub(super) fn put(&self, asked: &[Vec<String>], value: &Value, seconds: f64) -> Result<(), Fault> {
        let kept = Kept { program: self.program, asked: asked.to_vec(), value: value.clone(), seconds };
        seekless_output::json(&self.path(asked), &kept)
    }

    fn path(&self, asked: &[Vec<String>]) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        asked.hash(&mut hasher);
        self.folder.join(format!("{:016x}.json", hasher.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_again_by_its_own_program_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut answers = Answers::new(dir.path().join("answers")).unwrap();
        let asked = |text: &str| vec![vec!["sim".to_string(), text.to_string()]];
        assert!(answers.get(&asked("a")).is_none());
        answers.put(&asked("a"), &serde_json::json!({ "x": 1.5 }), 2.0).unwrap();
        assert_eq!(answers.get(&asked("a")), Some((serde_json::json!({ "x": 1.5 }), 2.0)));
        assert!(answers.get(&asked("b")).is_none());
        fs::write(answers.path(&asked("b")), "{ half").unwrap();
        assert!(answers.get(&asked("b")).is_none(), "half a file is no answer");
        answers.program.0 += 1;
        assert!(answers.get(&asked("a")).is_none(), "another program");
    }
}
