//! The functions of the page cache that replace its tracepoints where the kernel lacks them (before 6.11):
//! which ones exist, and where their arguments have what a program records.
//!
//! A program runs at the entry of a function, before the pages are in memory; otherwise its events are those
//! of the tracepoints. A read that first asks without waiting (io_uring) raises two. The choice depends on
//! what the kernel describes ([`crate::btf`]), not on its version.

use std::ffi::CStr;
use std::io;
use std::sync::OnceLock;

use super::{ADDED, Layout, Taken};
use crate::btf::{Btf, Function};
use crate::tracepoint::{Field, TraceError, Tracefs};

/// A number that a program finds at a function: an argument, or what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// Position of the argument, from 0.
    pub(super) argument: usize,
    /// The members to follow: all but the last are pointers.
    pub(super) members: Vec<Field>,
    /// The argument points to a number and not to a structure: the kernel does not let a program follow it.
    pub(super) plain: bool,
}

/// The pages that a function is called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// Bytes: their offset, their number.
    Bytes(Value, Value),
    /// Pages: the first, the last.
    Pages(Value, Value),
}

/// A function of the page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) taken: Taken,
    pub(super) name: &'static CStr,
    /// Its id in the kernel's BTF.
    pub(super) id: u32,
    /// Its inode.
    pub(super) inode: Value,
    pub(super) span: Span,
    pub(super) members: Inode,
}

/// Members of an inode, and of what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) number: Field,
    pub(super) file_system: Field,
    pub(super) device: Field,
}

/// What the running kernel has.
#[derive(Clone, Debug)]
pub(super) struct Functions {
    pub(super) sites: Vec<Site>,
    /// The one tracepoint that is older than the others.
    pub(super) added: Layout,
}

/// Files and inodes of the structures that the functions take.
struct Kernel<'a>(&'a Btf);

impl Kernel<'_> {
    fn field(&self, structure: &str, member: &str) -> Result<Field, String> {
        self.0.field(structure, member).ok_or_else(|| format!("member {member} of {structure}"))
    }

    fn value(&self, of: &Function, argument: &str, members: &[(&str, &str)]) -> Result<Value, String> {
        let position = of.argument(argument).ok_or_else(|| format!("argument {argument}"))?;
        let members = members.iter().map(|(s, m)| self.field(s, m)).collect::<Result<_, String>>()?;
        Ok(Value { argument: position, members, plain: false })
    }

    fn site(&self, taken: Taken, name: &'static CStr) -> Result<Site, String> {
        let text = name.to_string_lossy();
        let of = self.0.function(&text).ok_or_else(|| format!("function {text}"))?;
        let value = |argument: &str, members: &[(&str, &str)]| {
            self.value(&of, argument, members).map_err(|what| format!("{what} of {text}"))
        };
        const FILE: [(&str, &str); 2] = [("file", "f_mapping"), ("address_space", "host")];
        let file = |way: &[(&'static str, &'static str)]| [way, FILE.as_slice()].concat();
        let (inode, span) = match text.as_ref() {
            "filemap_splice_read" => {
                let position =
                    Value { members: vec![Field { offset: 0, size: 8 }], plain: true, ..value("ppos", &[])? };
                (value("in", &file(&[]))?, Span::Bytes(position, value("len", &[])?))
            }
            "filemap_map_pages" => {
                let inode = value("vmf", &file(&[("vm_fault", "vma"), ("vm_area_struct", "vm_file")]))?;
                (inode, Span::Pages(value("start_pgoff", &[])?, value("end_pgoff", &[])?))
            }
            "filemap_fault" => {
                let inode = value("vmf", &file(&[("vm_fault", "vma"), ("vm_area_struct", "vm_file")]))?;
                let page = value("vmf", &[("vm_fault", "pgoff")])?;
                (inode, Span::Pages(page.clone(), page))
            }
            _ => {
                let inode = value("iocb", &file(&[("kiocb", "ki_filp")]))?;
                let position = value("iocb", &[("kiocb", "ki_pos")])?;
                (inode, Span::Bytes(position, value("iter", &[("iov_iter", "count")])?))
            }
        };
        let members = Inode {
            number: self.field("inode", "i_ino")?,
            file_system: self.field("inode", "i_sb")?,
            device: self.field("super_block", "s_dev")?,
        };
        Ok(Site { taken, name, id: of.id, inode, span, members })
    }
}

/// The functions in this description of a kernel.
///
/// # Errors
/// What is missing.
fn sites(btf: &Btf) -> Result<Vec<Site>, String> {
    let kernel = Kernel(btf);
    // The second name is that of before 5.12.
    let read = kernel
        .site(Taken::Read, c"filemap_read")
        .or_else(|why| kernel.site(Taken::Read, c"generic_file_buffered_read").map_err(|_| why))?;
    let mut sites = vec![read];
    // Before 6.5 `sendfile` reads as others do.
    sites.extend(kernel.site(Taken::Read, c"filemap_splice_read"));
    sites.push(kernel.site(Taken::Mapped, c"filemap_map_pages")?);
    sites.push(kernel.site(Taken::Fault, c"filemap_fault")?);
    Ok(sites)
}

impl Functions {
    /// Those of the running kernel. Its description has some megabytes, so it is read once.
    ///
    /// # Errors
    /// The kernel describes no types, or not these; or it has no tracepoints at all.
    pub(super) fn find() -> Result<Functions, TraceError> {
        static SITES: OnceLock<Vec<Site>> = OnceLock::new();
        let sites = match SITES.get() {
            Some(sites) => sites,
            None => {
                let btf = Btf::of_kernel().map_err(|e| match e.kind() {
                    io::ErrorKind::InvalidData => TraceError::Missing("BTF in a form that is known".into()),
                    _ => TraceError::of("BTF (/sys/kernel/btf/vmlinux)", e),
                })?;
                let found = sites(&btf).map_err(|what| TraceError::Missing(format!("{what} in its BTF")))?;
                SITES.get_or_init(|| found)
            }
        };
        let added = super::layout(&Tracefs::open()?, ADDED)?;
        Ok(Functions { sites: sites.clone(), added })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_them() {
        match Functions::find() {
            Ok(functions) => {
                let taken: Vec<Taken> = functions.sites.iter().map(|site| site.taken).collect();
                assert_eq!(taken.first(), Some(&Taken::Read));
                assert!(taken.ends_with(&[Taken::Mapped, Taken::Fault]), "{taken:?}");
                assert_eq!(functions.added.taken, Taken::Added);
            }
            Err(error) => println!("skipped: {error}"),
        }
    }
}
