//! The models of drives name nothing of `std`: no files, clocks or threads.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_models_of_drives_use_no_standard_library() {
    let mut files = Vec::new();
    for model in ["drive", "platter"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(model), &mut files);
    }
    assert!(files.len() > 10, "they have moved");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let names = code.lines().find(|l| !l.trim_start().starts_with("//") && l.contains("std::"));
        assert_eq!(names, None, "{}", file.display());
    }
}
