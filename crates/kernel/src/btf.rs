//! The kernel's own description of its types (BTF): where a structure has a member, what a function takes.
//!
//! Structures differ between kernels. A program that follows a pointer in one needs the offset on the kernel
//! that runs, so it is looked up when the program is made; no compiler and no headers are needed there. The
//! format is that of `Documentation/bpf/btf.rst`: a header, types one after the other (their ids count from
//! 1), and a table of names. `aya-obj` parses it too, but gives no member of a structure.

use std::io;

use crate::tracepoint::Field;

/// Where the kernel has it (`CONFIG_DEBUG_INFO_BTF`).
const KERNEL: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;

/// Maximum number of steps from a type to its definition, and of levels of nested unnamed structures. The
/// kernel's types need about five; a description that refers to itself ends here.
const DEPTH_MAX: u32 = 16;

/// Size of a pointer.
const POINTER: usize = size_of::<*const u8>();

/// Kinds of types.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const POINTER: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNCTION: u32 = 12;
    pub(super) const PROTOTYPE: u32 = 13;
    pub(super) const VARIABLE: u32 = 14;
    pub(super) const SECTION: u32 = 15;
    pub(super) const DECLARATION_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM_64: u32 = 19;
    pub(super) const LAST: u32 = ENUM_64;
}

/// A description of types.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    /// Offset of each type, by its id; the first, `void`, has none.
    types: Vec<usize>,
    names: usize,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its id, for programs at its entry.
    pub id: u32,
    arguments: Vec<String>,
}

impl Function {
    /// Position of the argument of this name, from 0.
    pub fn argument(&self, name: &str) -> Option<usize> {
        self.arguments.iter().position(|n| n == name)
    }
}

/// What every type begins with.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    members: usize,
    /// Offsets of members have their width in bits too.
    bits: bool,
    /// A size, or the id of another type.
    size: u32,
    /// Offset of what follows.
    rest: usize,
}

impl Btf {
    /// That of the running kernel.
    ///
    /// # Errors
    /// It cannot be read: `ENOENT` if the kernel was built without. `InvalidData`: it is not understood.
    pub fn of_kernel() -> io::Result<Btf> {
        Btf::parse(std::fs::read(KERNEL)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parses a description. `None` if it is not one, or ends too early.
    pub fn parse(bytes: Vec<u8>) -> Option<Btf> {
        let header = |at: usize| number(&bytes, at).map(|n| n as usize);
        if u16::from_ne_bytes(*bytes.first_chunk()?) != MAGIC {
            return None;
        }
        let begin = header(4)?;
        let at = begin.checked_add(header(8)?)?;
        let end = at.checked_add(header(12)?)?;
        let names = begin.checked_add(header(16)?)?;
        let mut btf = Btf { types: vec![0], names, bytes };
        let mut next = at;
        while next < end {
            btf.types.push(next);
            next = btf.behind(next)?;
        }
        (next == end).then_some(btf)
    }

    fn number(&self, at: usize) -> Option<u32> {
        number(&self.bytes, at)
    }

    fn at(&self, at: usize) -> Option<Type> {
        let info = self.number(at + 4)?;
        Some(Type {
            name: self.number(at)?,
            kind: info >> 24 & 0x1f,
            members: (info & 0xffff) as usize,
            bits: info >> 31 != 0,
            size: self.number(at + 8)?,
            rest: at + 12,
        })
    }

    /// Offset of the type behind the one at this offset.
    fn behind(&self, at: usize) -> Option<usize> {
        let it = self.at(at)?;
        Some(
            it.rest
                + match it.kind {
                    kind::INT | kind::VARIABLE | kind::DECLARATION_TAG => 4,
                    kind::ARRAY => 12,
                    kind::STRUCT | kind::UNION | kind::SECTION | kind::ENUM_64 => 12 * it.members,
                    kind::ENUM | kind::PROTOTYPE => 8 * it.members,
                    0 => return None,
                    other if other > kind::LAST => return None,
                    _ => 0,
                },
        )
    }

    fn of_id(&self, id: u32) -> Option<Type> {
        match id {
            0 => None,
            id => self.at(*self.types.get(id as usize)?),
        }
    }

    fn is_named(&self, it: Type, name: &str) -> bool {
        let rest = self.names.checked_add(it.name as usize).and_then(|at| self.bytes.get(at..));
        rest.is_some_and(|rest| rest.starts_with(name.as_bytes()) && rest.get(name.len()) == Some(&0))
    }

    fn find(&self, kind: u32, name: &str) -> Option<(u32, Type)> {
        (1..self.types.len() as u32)
            .filter_map(|id| Some((id, self.of_id(id)?)))
            .find(|(_, it)| it.kind == kind && self.is_named(*it, name))
    }

    /// The function of this name. A function that the compiler put into its callers is not found.
    pub fn function(&self, name: &str) -> Option<Function> {
        let (id, it) = self.find(kind::FUNCTION, name)?;
        let prototype = self.of_id(it.size).filter(|p| p.kind == kind::PROTOTYPE)?;
        let argument = |i: usize| {
            let from = self.names.checked_add(self.number(prototype.rest + 8 * i)? as usize)?;
            let rest = self.bytes.get(from..)?;
            let end = rest.iter().position(|byte| *byte == 0)?;
            Some(String::from_utf8_lossy(&rest[..end]).into_owned())
        };
        Some(Function { id, arguments: (0..prototype.members).map(argument).collect::<Option<_>>()? })
    }

    /// The place of a member in the structure of this name, also if it is in an unnamed part of it. `None` if
    /// there is no such member, or it is neither a number nor a pointer in whole bytes.
    pub fn field(&self, structure: &str, member: &str) -> Option<Field> {
        let (_, it) = self.find(kind::STRUCT, structure)?;
        self.member(it, member, DEPTH_MAX)
    }

    fn member(&self, of: Type, name: &str, depth: u32) -> Option<Field> {
        (0..of.members).find_map(|i| {
            let at = of.rest + 12 * i;
            let (id, bits) = (self.number(at + 4)?, self.number(at + 8)?);
            let member = Type { name: self.number(at)?, ..of };
            let offset = if of.bits { bits & 0xff_ffff } else { bits } as usize;
            let is_part = of.bits && bits >> 24 != 0;
            if member.name == 0 {
                let inner = self.stands_for(id)?;
                if depth == 0 || !matches!(inner.kind, kind::STRUCT | kind::UNION) {
                    return None;
                }
                let field = self.member(inner, name, depth - 1)?;
                return Some(Field { offset: offset / 8 + field.offset, ..field });
            }
            if is_part || !offset.is_multiple_of(8) || !self.is_named(member, name) {
                return None;
            }
            let it = self.stands_for(id)?;
            let size = match it.kind {
                kind::POINTER => POINTER,
                kind::INT | kind::ENUM | kind::ENUM_64 => it.size as usize,
                _ => return None,
            };
            matches!(size, 1 | 2 | 4 | 8).then_some(Field { offset: offset / 8, size })
        })
    }

    /// The type behind names and qualifiers.
    fn stands_for(&self, mut id: u32) -> Option<Type> {
        for _ in 0..DEPTH_MAX {
            let it = self.of_id(id)?;
            match it.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = it.size
                }
                _ => return Some(it),
            }
        }
        None
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct a { int x; union { struct { long y; int z : 3; }; const int *p; }; }`, `void f(int x, a *y)`.
    fn small() -> Vec<u8> {
        let names = b"\0a\0x\0y\0z\0p\0f\0int\0long\0";
        let [a, x, y, z, p, f, int, long] = [1, 3, 5, 7, 9, 11, 13, 17];
        let head = |name: u32, kind: u32, members: u32, size: u32| vec![name, kind << 24 | members, size];
        let types = [
            [head(int, 1, 0, 4), vec![32]].concat(),
            [head(long, 1, 0, 8), vec![64]].concat(),
            head(0, 10, 0, 1),
            head(0, 2, 0, 3),
            [head(0, 4, 2 | 1 << 7 << 24, 16), vec![y, 2, 0, z, 1, 3 << 24 | 64]].concat(),
            [head(0, 5, 2, 16), vec![0, 5, 0, p, 4, 0]].concat(),
            [head(a, 4, 2, 24), vec![x, 1, 0, 0, 6, 64]].concat(),
            [head(0, 13, 2, 0), vec![x, 1, y, 4]].concat(),
            head(f, 12, 0, 8),
        ];
        let types: Vec<u8> = types.concat().iter().flat_map(|n| n.to_ne_bytes()).collect();
        let mut all = MAGIC.to_ne_bytes().to_vec();
        all.extend([1, 0]);
        for n in [24, 0, types.len(), types.len(), names.len()] {
            all.extend((n as u32).to_ne_bytes());
        }
        [all, types, names.to_vec()].concat()
    }

    #[test]
    fn members_are_found_also_in_unnamed_parts() {
        let btf = Btf::parse(small()).unwrap();
        assert_eq!(btf.field("a", "x"), Some(Field { offset: 0, size: 4 }));
        assert_eq!(btf.field("a", "y"), Some(Field { offset: 8, size: 8 }));
        assert_eq!(btf.field("a", "p"), Some(Field { offset: 8, size: POINTER }));
        assert_eq!(btf.field("a", "z"), None, "a part of a byte");
        assert_eq!(btf.field("a", "q"), None);
        assert_eq!(btf.field("b", "x"), None);
    }

    #[test]
    fn a_function_has_its_arguments_in_order() {
        let function = Btf::parse(small()).unwrap().function("f").unwrap();
        assert_eq!((function.id, function.argument("y"), function.argument("z")), (9, Some(1), None));
        assert_eq!(Btf::parse(small()).unwrap().function("a"), None, "a structure");
    }

    #[test]
    fn what_is_cut_short_or_altered_is_refused_or_finds_nothing() {
        let whole = small();
        for len in 0..whole.len() {
            if let Some(btf) = Btf::parse(whole[..len].to_vec()) {
                let _ = (btf.field("a", "p"), btf.function("f"));
            }
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7f, 0xff] {
                let mut altered = whole.clone();
                altered[at] = byte;
                if let Some(btf) = Btf::parse(altered) {
                    let _ = (btf.field("a", "p"), btf.function("f"));
                }
            }
        }
    }

    #[test]
    fn the_running_kernel_describes_its_page_cache() {
        match Btf::of_kernel() {
            Ok(btf) => {
                assert_eq!(btf.field("inode", "i_ino").map(|f| f.size), Some(8));
                assert_eq!(btf.field("iov_iter", "count").map(|f| f.size), Some(8));
                assert_eq!(btf.function("filemap_fault").and_then(|f| f.argument("vmf")), Some(0));
            }
            Err(error) => println!("skipped: {error}"),
        }
    }
}
