//! The content of a folder as a page. A helper thread makes it, because reading a directory may wait for the
//! disk.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::Dir;
use seekless_output::html_escaped;

use super::tree::{Entry, Tree};
use crate::path::encode_segment;

/// Most entries shown. A longer page helps no reader and takes memory.
const ENTRIES_MAX: usize = 10_000;

/// The page of an open folder with this `title`. It lists what can be fetched: each name is opened as for a
/// request, so nothing outside of the tree, and nothing that may not be read, is shown.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn page(
    tree: &Tree,
    folder: BorrowedFd<'_>,
    title: &Path,
    hidden: bool,
) -> rustix::io::Result<String> {
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
        let (is_folder, size) = match tree.get(&title.join(OsStr::from_bytes(name)), true) {
            Ok(Entry::Folder(_)) => (true, 0),
            Ok(Entry::File(file)) => (false, file.size),
            Err(_) => continue,
        };
        entries.push((is_folder, name.to_vec(), size));
    }
    entries.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let title = html_escaped(&String::from_utf8_lossy(title.as_os_str().as_bytes()));
    let mut page = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>/{title}</title></head>\n<body><h1>/{title}</h1>\n<pre>\n"
    );
    if !title.is_empty() {
        page.push_str("<a href=\"../\">../</a>\n");
    }
    for (is_folder, name, size) in entries {
        let slash = if is_folder { "/" } else { "" };
        let size = if is_folder { "-".into() } else { size.to_string() };
        let text = html_escaped(&String::from_utf8_lossy(&name));
        let _ =
            writeln!(page, "{size:>16}  <a href=\"./{}{slash}\">{text}{slash}</a>", encode_segment(&name));
    }
    if more {
        let _ = writeln!(page, "... and more than {ENTRIES_MAX} in all");
    }
    page.push_str("</pre></body></html>\n");
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn listed(root: &Path, sub: &str) -> String {
        let tree = Tree::open(&[root.to_path_buf()]).unwrap();
        let folder = std::fs::File::open(root.join(sub)).unwrap();
        page(&tree, folder.as_fd(), Path::new(sub), false).unwrap()
    }

    #[test]
    fn names_are_shown_and_cannot_break_the_page() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join("a&b").join(name);
        std::fs::create_dir_all(at("sub")).unwrap();
        std::fs::write(at("<b>&\"x y"), "123").unwrap();
        std::fs::write(at(".secret"), "").unwrap();
        std::os::unix::fs::symlink("/nowhere", at("dangling")).unwrap();
        let page = listed(dir.path(), "a&b");
        assert!(page.contains("<a href=\"./sub/\">sub/</a>"), "{page}");
        assert!(page.contains("3  <a href=\"./%3Cb%3E%26%22x%20y\">&lt;b&gt;&amp;&quot;x y</a>"), "{page}");
        assert!(page.contains("<h1>/a&amp;b</h1>") && page.contains("../"), "{page}");
        assert!(!page.contains("secret") && !page.contains("dangling"), "{page}");
    }

    /// The kernel decides whether a name leads out of the tree, in the listing as for a request.
    #[test]
    fn nothing_is_told_of_what_lies_outside_or_cannot_be_fetched() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("www");
        std::fs::create_dir_all(root.join("sub/deep")).unwrap();
        std::fs::write(dir.path().join("outside"), vec![0; 123_456]).unwrap();
        std::fs::write(root.join("inside"), vec![0; 654_321]).unwrap();
        symlink("../../outside", root.join("sub/leads-out")).unwrap();
        symlink(dir.path(), root.join("sub/folder-outside")).unwrap();
        symlink("/etc/hostname", root.join("sub/absolute")).unwrap();
        symlink("../inside", root.join("sub/stays-inside")).unwrap();
        symlink("deep", root.join("sub/folder-inside")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, root.join("sub/fifo"), fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let page = listed(&root, "sub");
        for name in ["stays-inside", "folder-inside/", "deep/"] {
            assert!(page.contains(name), "{name}: {page}");
        }
        assert!(page.contains("654321"), "{page}");
        for hidden in ["leads-out", "123456", "folder-outside", "absolute", "fifo"] {
            assert!(!page.contains(hidden), "{hidden}: {page}");
        }
    }
}
