//! A directory of files straight from the drive model, for users who may not have a block device.
//!
//! Files lie on the drive one after the other in an order given by a seed, with even gaps between them so
//! that the library takes the whole of the disk, and hold the content of their paths. The kernel caches what
//! it reads as for any file system, so a server meets a page cache and its misses meet the drive; what is
//! missing against the block device is the block layer (schedulers, request sizes) and a file system's own
//! reads.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, ReplyOpen, Request,
};
use seekless_base::{Bytes, Fault, SECTOR_BYTES};
use seekless_model::drive::Op;
use seekless_model::workload::content::Content;

use crate::engine::DriveEngine;
use crate::fuse_file::{FOREVER, attributes, configure};
use crate::manifest::Manifest;
use crate::scratch::scratch;

/// Files begin at multiples of this, as on any file system.
const BLOCK: u64 = 4096;

enum TreeNode {
    Dir { parent: u64, children: BTreeMap<OsString, u64> },
    File { start: u64, size: u64, content: Content },
}

/// The file system. Inode numbers are indices into `nodes`, counted from 1, the root.
pub struct Tree {
    engine: Arc<DriveEngine>,
    nodes: Vec<TreeNode>,
}

impl Tree {
    /// Lays the files of `manifest` on a disk of `size` bytes.
    ///
    /// # Errors
    /// `Usage`: they do not fit, or a path is a file and a directory at once.
    pub fn new(engine: Arc<DriveEngine>, manifest: &Manifest, size: u64, seed: u64) -> Result<Tree, Fault> {
        let need: u64 = manifest.files.iter().map(|(_, s)| s.next_multiple_of(BLOCK)).sum();
        if need > size {
            return Err(Fault::usage(format!(
                "the manifest lists {} and the disk holds {}",
                Bytes(need),
                Bytes(size)
            )));
        }
        let gap = (size - need) / manifest.files.len().max(1) as u64 / BLOCK * BLOCK;
        let mut nodes = vec![TreeNode::Dir { parent: 1, children: BTreeMap::new() }];
        let mut start = 0;
        for (path, size) in manifest.shuffled(seed) {
            let mut at = 1;
            let (dirs, name) = path.rsplit_once('/').map_or(("", path.as_str()), |(d, n)| (d, n));
            for part in dirs.split('/').filter(|p| !p.is_empty()) {
                at = child_dir(&mut nodes, at, part)
                    .ok_or_else(|| Fault::usage(format!("{path}: `{part}` is a file")))?;
            }
            let file = TreeNode::File { start, size: *size, content: Content::of_path(path) };
            nodes.push(file);
            let number = nodes.len() as u64;
            let TreeNode::Dir { children, .. } = &mut nodes[at as usize - 1] else { continue };
            if children.insert(name.into(), number).is_some() {
                return Err(Fault::usage(format!("{path} is a file and a directory")));
            }
            start += size.next_multiple_of(BLOCK) + gap;
        }
        Ok(Tree { engine, nodes })
    }

    fn node(&self, ino: INodeNo) -> Option<&TreeNode> {
        self.nodes.get(usize::try_from(ino.0).ok()?.checked_sub(1)?)
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        Some(match self.node(ino)? {
            TreeNode::Dir { .. } => attributes(ino, FileType::Directory, 0, 0o555),
            TreeNode::File { size, .. } => attributes(ino, FileType::RegularFile, *size, 0o444),
        })
    }
}

/// The directory `name` in directory `at`, made if it is not there; `None` if it is a file.
fn child_dir(nodes: &mut Vec<TreeNode>, at: u64, name: &str) -> Option<u64> {
    let fresh = nodes.len() as u64 + 1;
    let TreeNode::Dir { children, .. } = &mut nodes[at as usize - 1] else { return None };
    let number = *children.entry(name.into()).or_insert(fresh);
    if number == fresh {
        nodes.push(TreeNode::Dir { parent: at, children: BTreeMap::new() });
    }
    matches!(nodes[number as usize - 1], TreeNode::Dir { .. }).then_some(number)
}

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        configure(config);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(TreeNode::Dir { children, .. }) = self.node(parent) else {
            return reply.error(Errno::ENOTDIR);
        };
        match children.get(name).and_then(|n| self.attr(INodeNo(*n))) {
            Some(attr) => reply.entry(&FOREVER, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&FOREVER, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Some(TreeNode::Dir { parent, children }) = self.node(ino) else {
            return reply.error(Errno::ENOTDIR);
        };
        let dots = [(OsStr::new("."), ino.0), (OsStr::new(".."), *parent)];
        let entries = dots.into_iter().chain(children.iter().map(|(name, n)| (name.as_os_str(), *n)));
        for (i, (name, number)) in entries.enumerate().skip(offset as usize) {
            let kind = match self.node(INodeNo(number)) {
                Some(TreeNode::File { .. }) => FileType::RegularFile,
                _ => FileType::Directory,
            };
            if reply.add(INodeNo(number), i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.node(ino) {
            // Content never changes, so what is cached stays good from one open to the next.
            Some(TreeNode::File { .. }) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Some(TreeNode::Dir { .. }) => reply.error(Errno::EISDIR),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(TreeNode::File { start, size: file, content }) = self.node(ino) else {
            return reply.error(Errno::EISDIR);
        };
        let (content, len) = (*content, u64::from(size).min(file.saturating_sub(offset)));
        let finish = move |ok: bool| {
            if !ok {
                return reply.error(Errno::EIO);
            }
            scratch(len as usize, |buffer| {
                content.fill(offset, buffer);
                reply.data(buffer);
            });
        };
        // A drive reads whole sectors.
        let whole = len.next_multiple_of(SECTOR_BYTES);
        self.engine.submit(Op::Read, start + offset, whole, Box::new(finish));
    }
}
