//! A folder's content as a page. Made by a helper thread: reading a directory may wait for the disk.

use std::fmt::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType};

use crate::path::encode_segment;

/// Most entries shown. A page of more is of no use to anybody and takes memory.
const ENTRIES_MAX: usize = 10_000;

/// The page for an open folder shown as `title`.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn page(folder: BorrowedFd<'_>, title: &Path, hidden: bool) -> rustix::io::Result<String> {
    let mut entries: Vec<(bool, Vec<u8>, u64)> = Vec::new();
    let mut more = false;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." || (name.starts_with(b".") && !hidden) {
            continue;
        }
        if entries.len() == ENTRIES_MAX {
            more = true;
            break;
        }
        // Links are shown for what they lead to; those that lead nowhere are left out.
        let Ok(stat) = rustix::fs::statat(folder, entry.file_name(), AtFlags::empty()) else { continue };
        let is_folder = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => continue,
        };
        entries.push((is_folder, name.to_vec(), stat.st_size as u64));
    }
    entries.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let title = escape(&String::from_utf8_lossy(title.as_os_str().as_bytes()));
    let mut page = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>/{title}</title></head>\n<body><h1>/{title}</h1>\n<pre>\n"
    );
    if !title.is_empty() {
        page.push_str("<a href=\"../\">../</a>\n");
    }
    for (is_folder, name, size) in entries {
        let slash = if is_folder { "/" } else { "" };
        let size = if is_folder { "-".into() } else { size.to_string() };
        let text = escape(&String::from_utf8_lossy(&name));
        let _ =
            writeln!(page, "{size:>16}  <a href=\"./{}{slash}\">{text}{slash}</a>", encode_segment(&name));
    }
    if more {
        let _ = writeln!(page, "... and more than {ENTRIES_MAX} in all");
    }
    page.push_str("</pre></body></html>\n");
    Ok(page)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn names_are_shown_and_cannot_break_the_page() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("<b>&\"x y"), "123").unwrap();
        std::fs::write(dir.path().join(".secret"), "").unwrap();
        std::os::unix::fs::symlink("/nowhere", dir.path().join("dangling")).unwrap();
        let folder = std::fs::File::open(dir.path()).unwrap();
        let page = page(folder.as_fd(), Path::new("a&b"), false).unwrap();
        assert!(page.contains("<a href=\"./sub/\">sub/</a>"), "{page}");
        assert!(page.contains("3  <a href=\"./%3Cb%3E%26%22x%20y\">&lt;b&gt;&amp;&quot;x y</a>"), "{page}");
        assert!(page.contains("<h1>/a&amp;b</h1>") && page.contains("../"), "{page}");
        assert!(!page.contains("secret") && !page.contains("dangling"), "{page}");
    }
}
