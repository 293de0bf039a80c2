//! One process: what is known about it, and what follows from that.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use seekless_base::Fault;
use seekless_frontend::advice::Finding;
use seekless_frontend::advice::few_blocked::{WORKERS_MAX, children, few_blocked, folder, reads_at_once};
use seekless_kernel::fstype;
use seekless_kernel::lsm::Lsm;
use seekless_kernel::ring;
use seekless_kernel::topology::{MountTable, mount_id};
use seekless_output::write_line;
use serde::Serialize;

use super::elf::Program;
use super::recommend::{Doors, Process, Recommendation, for_process, none};
use super::{DaemonState, describe_findings};

/// Minimum size of a mapped file that is reported. Smaller ones are locales, fonts, small databases.
const BIG_MAPPING: u64 = 1 << 20;

/// Entry of the auxiliary vector that says whether the loader ignores LD_PRELOAD.
const AT_SECURE: u64 = 23;

/// The facts from `/proc/PID`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) program: Program,
    /// Whether the program was not examined, because its file system may never answer.
    pub(crate) unseen: bool,
    /// The security module that confines it.
    pub(crate) lsm: Option<Lsm>,
    /// Whether `libseekless.so` is mapped.
    pub(crate) shim_mapped: bool,
    pub(crate) ld_preload: Option<String>,
    /// Its `SEEKLESS_SOCKET`.
    pub(crate) socket: Option<PathBuf>,
    /// Sockets of the daemons whose rings it, or else its children, have mapped: those that they have used.
    pub(crate) daemons: Vec<PathBuf>,
    /// Whether its environment is empty, because it wrote its title there, as nginx does.
    pub(crate) overwritten: bool,
    pub(crate) disabled: bool,
    /// Whether `SEEKLESS_SECCOMP` says that its filter allows the shim's calls.
    pub(crate) filter_allowed: bool,
    /// Whether it has closed standard input, output or error.
    pub(crate) standard_closed: bool,
    pub(crate) at_secure: bool,
    pub(crate) io_uring: bool,
    pub(crate) aio: bool,
    /// Large data files it has mapped.
    pub(crate) mapped_files: Vec<String>,
    pub(crate) seccomp: u32,
    /// Whether its processes installed a filter after they were forked.
    pub(crate) sandboxed: bool,
    /// Whether they moved to a network namespace of their own, as vsftpd's do (`isolate_network`).
    pub(crate) isolated: bool,
    /// Whether it, or a child, is in a call that sends a whole file.
    pub(crate) long_calls: bool,
    /// Its root directory, if it differs from ours.
    pub(crate) other_root: Option<PathBuf>,
    /// Whether it is in another network namespace, where the socket's abstract twin is not visible.
    pub(crate) other_network: bool,
    /// Number of its processes that read files themselves, one read at a time: as many misses can be
    /// outstanding. 0 if it is not a server known to do so, or has threads for that.
    pub(crate) reads_at_once: usize,
}

impl Facts {
    /// # Errors
    /// There is no such process, or it may not be examined.
    pub(crate) fn read(pid: u32) -> Result<Facts, Fault> {
        let dir = folder(pid);
        let fault = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                Fault::missing(format!("there is no process {pid}; see `pgrep -a NAME` for the number"))
            }
            io::ErrorKind::PermissionDenied => Fault::permission(format!(
                "process {pid} may not be inspected; run this as root or as its owner"
            )),
            _ if error.raw_os_error() == Some(3) => Fault::missing(format!("process {pid} has just ended")),
            _ => Fault::failed(format!("cannot inspect process {pid}: {error}")),
        };
        let status = fs::read_to_string(dir.join("status")).map_err(fault)?;
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
        let maps = fs::read(dir.join("maps")).map_err(fault)?;
        // A kernel thread has no program.
        let exe = fs::read_link(dir.join("exe")).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                Fault::missing(format!("process {pid} is a kernel thread or has ended"))
            }
            _ => fault(e),
        })?;
        let environ = fs::read(dir.join("environ")).map_err(fault)?;
        let variable = |name: &str| {
            let value =
                environ.split(|&b| b == 0).find_map(|e| e.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
            value.filter(|v| !v.is_empty())
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let seen = answers(&dir, "exe");
        let program = seen.then(|| Program::read(&dir.join("exe")).ok().flatten()).flatten();
        let mut facts = Facts {
            pid,
            name: field("Name:").unwrap_or("?").to_string(),
            program: program.unwrap_or_default(),
            unseen: !seen,
            lsm: Lsm::of(Path::new("/sys"), &dir),
            ld_preload: variable("LD_PRELOAD").map(text),
            socket: variable("SEEKLESS_SOCKET").map(|v| PathBuf::from(OsStr::from_bytes(v))),
            overwritten: !environ.is_empty() && !environ.contains(&b'='),
            disabled: variable("SEEKLESS_DISABLE").is_some_and(|v| v != b"0"),
            filter_allowed: variable("SEEKLESS_SECCOMP").is_some_and(|v| v == b"allow"),
            standard_closed: (0..=2).any(|n| {
                let at = fs::symlink_metadata(dir.join(format!("fd/{n}")));
                at.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
            }),
            at_secure: at_secure(&fs::read(dir.join("auxv")).unwrap_or_default()),
            io_uring: has_io_uring(&dir),
            seccomp: field("Seccomp:").and_then(|v| v.parse().ok()).unwrap_or(0),
            sandboxed: restricted_by_program(pid, |below, above| filtered(below) && !filtered(above)),
            isolated: restricted_by_program(pid, |below, above| {
                differ(&folder(below), &folder(above), "ns/net")
            }),
            long_calls: in_long_call(&dir)
                || children(&dir).into_iter().any(|child| in_long_call(&folder(child))),
            other_root: other_root(&dir),
            other_network: differ(&dir, Path::new(SELF), "ns/net"),
            ..Facts::default()
        };
        // The loader decides by its own flag if a set-uid program has given up its privileges since.
        facts.at_secure |=
            seen && fs::metadata(dir.join("exe")).is_ok_and(|m| m.permissions().mode() & 0o6000 != 0);
        facts.read_maps(&maps, &exe);
        facts.reads_at_once = reads_at_once(pid, &facts.name);
        if facts.daemons.is_empty() {
            // A master process leaves reading to its workers.
            let maps =
                children(&dir).into_iter().filter_map(|child| fs::read(format!("/proc/{child}/maps")).ok());
            facts.daemons =
                maps.map(|maps| daemons(&maps)).find(|found| !found.is_empty()).unwrap_or_default();
        }
        Ok(facts)
    }

    /// Whether nothing shows which daemon it uses.
    pub(crate) fn asks_unseen(&self) -> bool {
        self.shim_mapped && self.overwritten && self.daemons.is_empty()
    }

    /// Records what the address space shows. `exe` is the program itself.
    fn read_maps<'a>(&mut self, maps: &'a [u8], exe: &Path) {
        let lines = || Mapping::all(maps);
        self.daemons = daemons(maps);
        // Libraries have executable parts; data files do not. Files beside a library belong to the program,
        // like the class archives of a Java machine.
        let code = lines().filter(|m| m.executable && m.path.starts_with(b"/"));
        let folder = |path: &'a [u8]| &path[..path.iter().rposition(|&b| b == b'/').unwrap_or(0)];
        let folders: Vec<&[u8]> = code.map(|m| folder(m.path)).collect();
        for mapping in lines() {
            let file = mapping.path.rsplit(|&b| b == b'/').next().unwrap_or_default();
            self.shim_mapped |= file.starts_with(b"libseekless.so");
            self.aio |= mapping.path.starts_with(b"/[aio]");
            let is_data = mapping.path.starts_with(b"/")
                && !mapping.path.starts_with(b"/dev/")
                && !mapping.path.starts_with(b"/memfd:")
                && !mapping.path.starts_with(b"/[aio]")
                && !mapping.path.starts_with(b"/SYSV")
                && mapping.path != exe.as_os_str().as_bytes()
                && !folders.contains(&folder(mapping.path))
                && !mapping.path.ends_with(b".so")
                && !mapping.path.ends_with(b"/locale-archive");
            let path = String::from_utf8_lossy(mapping.path);
            // A server may map thousands; a few are enough.
            if is_data && mapping.bytes >= BIG_MAPPING && self.mapped_files.len() < 8 {
                let path = path.into_owned();
                if !self.mapped_files.contains(&path) {
                    self.mapped_files.push(path);
                }
            }
        }
    }
}

/// Whether the file behind a link in `/proc/PID` may be opened: its file system is known and is not FUSE,
/// which any user may have mounted and which may never answer.
fn answers(dir: &Path, link: &str) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    // O_PATH names the file without asking its file system.
    let Ok(file) = rustix::fs::open(dir.join(link), flags, Mode::empty()) else { return false };
    let table = MountTable::parse(&fs::read(dir.join("mountinfo")).unwrap_or_default());
    let mount = mount_id(file.as_fd()).and_then(|id| table.by_id(id));
    mount.is_some_and(|mount| !fstype::is_fuse(&mount.fs_type))
}

/// A line of `/proc/PID/maps`.
struct Mapping<'a> {
    bytes: u64,
    executable: bool,
    path: &'a [u8],
}

impl<'a> Mapping<'a> {
    fn all(maps: &'a [u8]) -> impl Iterator<Item = Mapping<'a>> {
        maps.split(|&b| b == b'\n').filter_map(Mapping::parse)
    }

    fn parse(line: &'a [u8]) -> Option<Mapping<'a>> {
        let mut fields = line.splitn(6, |&b| b == b' ');
        let range = std::str::from_utf8(fields.next()?).ok()?;
        let (from, upto) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let executable = fields.next()?.contains(&b'x');
        let path = fields.nth(3)?.trim_ascii_start();
        Some(Mapping { bytes: number(upto)?.checked_sub(number(from)?)?, executable, path })
    }
}

/// Maximum number of daemons of one process that are asked; it has mapped the rings of former ones too.
const DAEMONS_MAX: usize = 8;

/// Sockets of the daemons whose rings are mapped.
fn daemons(maps: &[u8]) -> Vec<PathBuf> {
    let mut daemons: Vec<PathBuf> = Vec::new();
    for socket in Mapping::all(maps).filter_map(|m| ring::listens_at(m.path)).filter(|s| s.is_absolute()) {
        if daemons.len() < DAEMONS_MAX && !daemons.iter().any(|known| known == socket) {
            daemons.push(socket.to_path_buf());
        }
    }
    daemons
}

/// A number in `/proc/PID/status`; 0 if missing.
fn number(pid: u32, field: &str) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|l| l.strip_prefix(field)).and_then(|v| v.trim().parse().ok()).unwrap_or(0)
}

/// Our own process.
const SELF: &str = "/proc/self";

/// Whether the process runs under a seccomp filter.
fn filtered(pid: u32) -> bool {
    number(pid, "Seccomp:") == 2
}

/// Whether `shut` is true of a process and its parent of the same program, from the parent of this process
/// down to its grandchildren. Then the program itself did it, and restricts its processes. What a container
/// or a unit does applies to both, or came with another program.
fn restricted_by_program(pid: u32, shut: impl Fn(u32, u32) -> bool) -> bool {
    let exe = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let below = |pid: u32| children(&folder(pid)).into_iter().take(WORKERS_MAX);
    let parent = number(pid, "PPid:");
    let above = (parent > 0).then_some((pid, parent));
    let children = below(pid).map(|child| (child, pid));
    let grandchildren = below(pid).flat_map(|child| below(child).map(move |grandchild| (grandchild, child)));
    let mut pairs = above.into_iter().chain(children).chain(grandchildren);
    pairs.any(|(below, above)| exe(below).is_some() && exe(below) == exe(above) && shut(below, above))
}

/// A call that sends more than this at once to a blocking descriptor keeps the kernel reading the file piece
/// by piece inside the call. A server that alternates between clients requests at most a few MiB (nginx 2).
const LONG_CALL: u64 = 16 << 20;

/// Number of the system call sendfile.
const SENDFILE: u64 = if cfg!(target_arch = "x86_64") { 40 } else { 71 };

/// Whether a thread of the process is in such a call.
fn in_long_call(dir: &Path) -> bool {
    let threads = fs::read_dir(dir.join("task")).into_iter().flatten().flatten();
    threads.take(WORKERS_MAX).any(|thread| {
        let Ok(call) = fs::read_to_string(thread.path().join("syscall")) else { return false };
        long_call(&call).is_some_and(|fd| {
            fs::read_to_string(dir.join(format!("fdinfo/{fd}"))).is_ok_and(|info| blocks(&info))
        })
    })
}

/// The descriptor to which a line of `/proc/PID/syscall` sends a whole file.
fn long_call(line: &str) -> Option<u64> {
    let mut fields = line.split_whitespace();
    if fields.next()?.parse() != Ok(SENDFILE) {
        return None;
    }
    let hex = |text: Option<&str>| u64::from_str_radix(text?.strip_prefix("0x")?, 16).ok();
    let to = hex(fields.next())?;
    // The file and the offset are between.
    (hex(fields.nth(2))? >= LONG_CALL).then_some(to)
}

/// Whether a descriptor with this `/proc/PID/fdinfo` blocks when it is full.
fn blocks(fdinfo: &str) -> bool {
    const NONBLOCK: u32 = 0o4000;
    let flags = fdinfo.lines().find_map(|l| l.strip_prefix("flags:"));
    flags.and_then(|v| u32::from_str_radix(v.trim(), 8).ok()).is_some_and(|flags| flags & NONBLOCK == 0)
}

fn at_secure(auxv: &[u8]) -> bool {
    let (pairs, _) = auxv.as_chunks::<16>();
    pairs.iter().any(|pair| {
        let (key, value) = pair.split_at(8);
        key == AT_SECURE.to_ne_bytes() && value != [0; 8]
    })
}

fn has_io_uring(dir: &Path) -> bool {
    let Ok(fds) = fs::read_dir(dir.join("fd")) else { return false };
    fds.flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .any(|target| target.as_os_str().as_bytes().starts_with(b"anon_inode:[io_uring]"))
}

fn other_root(dir: &Path) -> Option<PathBuf> {
    let root = fs::read_link(dir.join("root")).ok()?;
    let ours = fs::read_link("/proc/self/root").ok()?;
    (root != ours || differ(dir, Path::new(SELF), "ns/mnt")).then_some(root)
}

/// Whether two processes, given by their folders, are in different namespaces of this kind, as far as
/// visible.
fn differ(one: &Path, other: &Path, namespace: &str) -> bool {
    match (fs::read_link(one.join(namespace)), fs::read_link(other.join(namespace))) {
        (Ok(one), Ok(other)) => one != other,
        _ => false,
    }
}

/// The doctor's report on a process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProcessReport {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// Whether the shim is loaded and not switched off.
    pub(crate) hooked: bool,
    pub(crate) daemon: DaemonState,
    pub(crate) findings: Vec<Finding>,
    pub(crate) recommendation: Recommendation,
}

impl ProcessReport {
    pub(super) fn describe(&self) -> String {
        let hooked = if self.hooked { "is hooked" } else { "is NOT hooked" };
        let mut text = String::new();
        let _ =
            write_line!(text, "process {} ({}) {hooked}; {}", self.pid, self.name, self.daemon.describe());
        describe_findings(&self.findings, &mut text);
        text.push_str(&self.recommendation.describe());
        text
    }
}

/// What helps a server that cannot use the shim.
const NO_PRELOAD: &str =
    "`seekless watch` or `seekless observe` serves it, and `seekless disk tune` helps where neither runs";

/// Findings that affect only the shim.
const NO_HOOK: [&str; 5] = ["go", "static", "at_secure", "not_loaded", "not_preloaded"];

pub(crate) fn diagnose(facts: &Facts, daemon: DaemonState, doors: Doors) -> ProcessReport {
    let mut findings = Vec::new();
    let mut found = |kind, blocks, what: &str, advice: &str| {
        findings.push(Finding { kind, blocks, what: what.to_string(), advice: advice.to_string() });
    };
    if !facts.shim_mapped {
        why_not_hooked(facts, &mut found);
    }
    if facts.disabled {
        found("disabled", true, "SEEKLESS_DISABLE is set in it", "start it without that variable");
    }
    if !daemon.answers && facts.asks_unseen() {
        let what = "the daemon that it asks is unknown: it has overwritten its environment, and mapped no ring of a daemon yet";
        let advice = "ask again after it has read a file (by default the daemon hands out a ring then), or name the daemon with --socket";
        found("daemon_unseen", false, what, advice);
    } else if !daemon.answers {
        let what = "its daemon does not answer: every call goes straight to the kernel";
        found("no_daemon", true, what, "start `seekless daemon`; the process needs no restart");
    }
    bypasses(facts, &mut found);
    findings.extend(few_blocked(&facts.name, facts.reads_at_once));
    let off = facts.disabled || (facts.seccomp != 0 && !facts.filter_allowed);
    let hooked = facts.shim_mapped && !off;
    let has = |kinds: &[&str]| findings.iter().any(|f| kinds.contains(&f.kind));
    let preloadable = !has(&["go", "static", "at_secure"]);
    let seen = !has(&["io_uring", "aio", "mmap", "sandbox", "isolated"]);
    let half_heard = match facts.long_calls {
        true => Some("a whole file sent by one call"),
        false => has(&["mmap"]).then_some("a mapped file"),
    };
    let process = Process { hooked, preloadable, seen, half_heard };
    let mut recommendation = for_process(process, doors);
    if let Some(other) = daemon.without_hook.as_ref().filter(|_| !hooked) {
        // Findings that affect only the shim do not affect the other doors.
        findings.iter_mut().filter(|f| NO_HOOK.contains(&f.kind)).for_each(|f| f.blocks = false);
        recommendation.first.clear();
        if other.command == "watch" {
            recommendation = none(&format!("{}, hooked or not", other.describe()));
        }
    }
    ProcessReport { pid: facts.pid, name: facts.name.clone(), hooked, daemon, findings, recommendation }
}

fn why_not_hooked(facts: &Facts, found: &mut impl FnMut(&'static str, bool, &str, &str)) {
    if facts.unseen {
        let what = "its program was not inspected: it is on a FUSE file system, or on one that was unmounted";
        found("unseen", false, what, "copy it to a disk and start it from there, or use `seekless observe`");
        return;
    }
    let interpreter = facts.program.interpreter.as_deref();
    if facts.program.go && interpreter.is_none() {
        let advice =
            format!("a Go program makes its system calls itself, so a preload cannot see them; {NO_PRELOAD}");
        found("go", true, "it is a Go program, linked statically", &advice);
    } else if facts.program.go {
        let advice =
            format!("even a dynamically linked Go program makes its system calls itself; {NO_PRELOAD}");
        found("go", true, "it is a Go program", &advice);
    } else if interpreter.is_none() {
        let what = match facts.program.musl {
            true => "it is linked statically, with musl as it seems",
            false => "it is linked statically",
        };
        let advice =
            format!("nothing can be preloaded into it: use a dynamically linked build; {NO_PRELOAD}");
        found("static", true, what, &advice);
    } else if facts.program.musl {
        let advice = "nothing to do for that: the same shim loads there";
        found("musl", false, "it runs on musl", advice);
    }
    if facts.at_secure {
        let advice = "the loader ignores LD_PRELOAD for it: start it as root without the set-uid or set-gid bit or file \
                      capabilities, or list the shim in /etc/ld.so.preload";
        found("at_secure", true, "it gains rights when it starts (set-uid, set-gid or capabilities)", advice);
    }
    let cannot = facts.program.go || facts.at_secure || interpreter.is_none();
    if cannot {
        // The reason is reported already; that the shim is missing adds nothing.
        return;
    }
    match &facts.ld_preload {
        Some(list) if list.contains("libseekless.so") => {
            let what = format!("LD_PRELOAD is {list}, and yet the shim is not loaded");
            let advice = "check that the process can read the file (chroot, container) and that it is built for this processor; the loader reports the error on the process's standard error at its start";
            found("not_loaded", true, &what, advice);
        }
        _ => {
            let advice = "start it with `seekless run -- CMD ...`, or with LD_PRELOAD=/path/to/libseekless.so in its unit file";
            found("not_preloaded", true, "it was started without the shim", advice);
        }
    }
}

fn bypasses(facts: &Facts, found: &mut impl FnMut(&'static str, bool, &str, &str)) {
    if let Some(lsm) = &facts.lsm {
        let what = match lsm {
            Lsm::SELinux => "SELinux confines it".to_string(),
            Lsm::AppArmor(profile) => format!("AppArmor confines it to the profile {profile}"),
        };
        let advice = "it must be allowed to map the shim and to connect to the daemon's socket; deploy/selinux and \
                      deploy/apparmor have the lines, and `ausearch -m avc -ts recent` or `journalctl -k -g apparmor` shows \
                      what is denied";
        found("lsm", false, &what, advice);
    }
    if facts.io_uring {
        let advice =
            "reads made through it are not seen; switch it off in the server, or use its thread pool";
        found("io_uring", false, "it has an io_uring", advice);
    }
    if facts.aio {
        let advice = "reads made through it are not seen; in nginx write `aio threads;` and no `directio`";
        found("aio", false, "it uses Linux AIO", advice);
    }
    if !facts.mapped_files.is_empty() {
        let what = format!("it maps data files, for example {}", facts.mapped_files[0]);
        let advice =
            "reads by page fault are not seen; in Apache write `EnableMMAP Off` and `EnableSendfile On`";
        found("mmap", false, &what, advice);
    }
    if facts.long_calls {
        let advice = "the kernel reads the file inside the call, and `watch` hears only of its beginning; the shim sends it in parts, so preload it; else let it read piece by piece (vsftpd: `use_sendfile=NO`)";
        found("long_calls", false, "it sends a whole file by one call", advice);
    }
    if facts.isolated {
        let what = "its processes leave the network of the system";
        let advice = "the shim does not reach the daemon from there; switch it off (vsftpd: `isolate_network=NO`), or use \
                      `seekless observe` or `seekless watch`";
        found("isolated", false, what, advice);
    }
    match facts.seccomp {
        _ if facts.sandboxed => {
            let what = "its processes install a seccomp filter";
            let advice = "such a filter forbids what the shim needs; switch it off (vsftpd: `seccomp_sandbox=NO`), or use \
                          `seekless observe` or `seekless watch`";
            found("sandbox", false, what, advice);
        }
        0 => {}
        1 => found(
            "seccomp",
            true,
            "it runs in strict seccomp",
            "it may not connect to the daemon; run it without strict seccomp",
        ),
        _ if facts.filter_allowed => {
            let what =
                "it has a seccomp filter, and SEEKLESS_SECCOMP=allow says that it allows what the shim does";
            let advice = "check that it allows cachestat, mincore, socket, connect, sendmsg, recvmsg, recvfrom, getsockopt, ppoll and fcntl: a filter that ends the program at such a call ends it when the shim makes one";
            found("seccomp", false, what, advice);
        }
        _ => {
            let what = "it has a seccomp filter, so the shim stays off in it";
            let advice = "let the filter allow cachestat, mincore, socket, connect, sendmsg, recvmsg, recvfrom, getsockopt, \
                          ppoll and fcntl, and start it with SEEKLESS_SECCOMP=allow; or use `seekless observe` or \
                          `seekless watch`";
            found("seccomp", true, what, advice);
        }
    }
    if facts.standard_closed {
        let what = "it has closed standard input, output or error";
        let advice = "the shim stays off while one of the descriptors 0 to 2 is closed; have it open /dev/null there, \
                      or use `seekless observe` or `seekless watch`";
        found("standard_closed", true, what, advice);
    }
    if let Some(root) = facts.other_root.as_ref().filter(|_| !facts.isolated) {
        let what = format!("its root directory is another one ({} as seen from here)", root.display());
        if facts.other_network {
            let advice = "and its network namespace too, so it sees neither the daemon's socket nor its abstract twin: mount \
                          the socket's folder into it";
            found("root", true, &what, advice);
        } else {
            let advice = "it reaches the daemon by the socket's abstract twin; nothing to do";
            found("root", false, &what, advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::WithoutHook;
    use seekless_base::Exit;

    use super::*;

    const ALL: Doors = Doors { watch: Ok(()), observe: Ok(()) };

    fn daemon(answers: bool) -> DaemonState {
        DaemonState {
            socket: "/s".into(),
            answers,
            mode: answers.then(|| "both".into()),
            error: None,
            without_hook: None,
        }
    }

    fn dynamic() -> Facts {
        let program =
            Program { interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()), ..Program::default() };
        Facts { pid: 1, program, ..Facts::default() }
    }

    fn kinds(facts: &Facts) -> Vec<&'static str> {
        diagnose(facts, daemon(true), ALL).findings.iter().map(|f| f.kind).collect()
    }

    #[test]
    fn a_hooked_process_with_a_daemon_is_well() {
        let report = diagnose(&Facts { shim_mapped: true, ..dynamic() }, daemon(true), ALL);
        assert!(report.hooked && report.findings.is_empty(), "{report:?}");
        let report = diagnose(&Facts { shim_mapped: true, disabled: true, ..dynamic() }, daemon(false), ALL);
        assert!(!report.hooked);
        assert_eq!(report.findings.iter().map(|f| f.kind).collect::<Vec<_>>(), ["disabled", "no_daemon"]);
    }

    #[test]
    fn what_another_door_serves_is_not_called_lost() {
        let with = |command| DaemonState {
            without_hook: Some(WithoutHook { command, folders: vec!["/srv/media".into()] }),
            ..daemon(true)
        };
        let watched = diagnose(&dynamic(), with("watch"), ALL);
        assert!(!watched.hooked && watched.findings.iter().all(|f| !f.blocks), "{watched:?}");
        assert_eq!(watched.recommendation.way, "none");
        assert!(watched.describe().contains("`seekless watch` serves what reads under /srv/media"));
        let observed = diagnose(&dynamic(), with("observe"), ALL);
        assert_eq!((observed.recommendation.first.as_str(), observed.recommendation.way), ("", "shim"));
        let hooked = diagnose(&Facts { shim_mapped: true, disabled: true, ..dynamic() }, daemon(true), ALL);
        assert!(hooked.findings.iter().any(|f| f.blocks));
    }

    #[test]
    fn each_reason_has_its_name() {
        let with = |interpreter: Option<&str>, go| Facts {
            program: Program {
                interpreter: interpreter.map(String::from),
                go,
                musl: interpreter.is_some_and(|loader| loader.contains("musl")),
            },
            ..dynamic()
        };
        assert_eq!(kinds(&dynamic()), ["not_preloaded"]);
        assert_eq!(kinds(&with(None, false)), ["static"]);
        assert_eq!(kinds(&with(None, true)), ["go"]);
        assert_eq!(kinds(&with(Some("/lib/ld-linux.so.2"), true)), ["go"]);
        let musl = with(Some("/lib/ld-musl-x86_64.so.1"), false);
        assert_eq!(kinds(&musl), ["musl", "not_preloaded"]);
        assert_eq!(diagnose(&musl, daemon(true), ALL).recommendation.way, "shim");
        assert_eq!(kinds(&Facts { at_secure: true, ..dynamic() }), ["at_secure"]);
        let set = Facts { ld_preload: Some("/x/libseekless.so".into()), ..dynamic() };
        assert_eq!(kinds(&set), ["not_loaded"]);
        let hooked = Facts { shim_mapped: true, ..dynamic() };
        let bypassing = Facts {
            io_uring: true,
            aio: true,
            mapped_files: vec!["/data/x".into()],
            seccomp: 2,
            other_root: Some("/jail".into()),
            ..hooked
        };
        assert_eq!(kinds(&bypassing), ["io_uring", "aio", "mmap", "seccomp", "root"]);
        let sandboxed = Facts { sandboxed: true, long_calls: true, seccomp: 2, ..dynamic() };
        assert_eq!(kinds(&sandboxed), ["not_preloaded", "long_calls", "sandbox"]);
        assert_eq!(diagnose(&sandboxed, daemon(true), ALL).recommendation.way, "observe");
        let (other_root, other_network) = (Some("/jail".into()), true);
        let isolated = Facts { isolated: true, long_calls: true, other_root, other_network, ..dynamic() };
        assert_eq!(kinds(&isolated), ["not_preloaded", "long_calls", "isolated"]);
        assert_eq!(diagnose(&isolated, daemon(true), ALL).recommendation.way, "observe");
        let long = Facts { long_calls: true, ..dynamic() };
        assert_eq!(kinds(&long), ["not_preloaded", "long_calls"]);
        assert_eq!(diagnose(&long, daemon(true), ALL).recommendation.way, "shim");
    }

    #[test]
    fn what_a_program_does_to_its_own_processes_is_told_from_what_others_do() {
        // A shell, another one, and another program.
        let line = "(sleep 60; :) & wait";
        let mut shell = std::process::Command::new("sh").args(["-c", line]).spawn().unwrap();
        let below = |pid: u32| children(&folder(pid)).first().copied();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let named = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let mut found = None;
        while found.is_none() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let child = below(shell.id());
            found = child.and_then(|child| Some((child, below(child)?))).filter(|f| named(f.1) == "sleep\n");
        }
        let (child, other) = found.unwrap();
        let shut = |of: u32, in_: u32| move |below: u32, above: u32| (below, above) == (in_, of);
        let by_shell = [shell.id(), child].map(|pid| restricted_by_program(pid, shut(shell.id(), child)));
        let by_another = [shell.id(), child, other].map(|pid| restricted_by_program(pid, shut(child, other)));
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(other as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        shell.wait().unwrap();
        assert_eq!((by_shell, by_another), ([true; 2], [false; 3]));
        assert!(!differ(&folder(std::process::id()), Path::new(SELF), "ns/net"));
    }

    #[test]
    fn a_server_without_threads_is_told_which_setting_helps() {
        let with = |name: &str, reads_at_once| {
            let facts = Facts { shim_mapped: true, name: name.into(), reads_at_once, ..dynamic() };
            diagnose(&facts, daemon(true), ALL).findings
        };
        let findings = with("nginx", 2);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.contains("2 workers") && findings[0].advice.contains("`aio threads;`"));
        assert!(with("lighttpd", 1)[0].advice.contains("server.max-worker"));
        assert_eq!(with("nginx", 0), [], "it has a pool of threads");
    }

    #[test]
    fn a_call_that_sends_a_whole_file_is_known() {
        let line = |count: u64| format!("{SENDFILE} 0x7 0x8 0x7ffd0 {count:#x} 0x0 0x0 0x7ffc0 0x7f00");
        assert_eq!(long_call(&line(LONG_CALL)), Some(7));
        assert_eq!(long_call(&line(2 << 20)), None, "nginx");
        assert_eq!(long_call("0 0x7 0x8 0x7ffd0 0xfffffff 0x0 0x0 0x0 0x0"), None, "a read");
        assert_eq!(long_call("running"), None);
        assert!(blocks("pos:\t0\nflags:\t02\nmnt_id:\t8\n"));
        assert!(!blocks("pos:\t0\nflags:\t02004002\n") && !blocks(""));
    }

    /// A thread of this process sends a file to a reader that takes nothing.
    #[test]
    fn a_process_in_such_a_call_is_found() {
        let dir = Path::new("/proc/self");
        if let Err(error) = fs::read_to_string(dir.join("syscall")) {
            return seekless_testing::skip::skipped(format!("the kernel does not tell of calls ({error})"));
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 20).unwrap();
        let (to, reader) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!in_long_call(dir));
        let thread = std::thread::spawn(move || rustix::fs::sendfile(to, file, None, 64 << 20));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !in_long_call(dir) && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(in_long_call(dir));
        drop(reader);
        let _ = thread.join();
    }

    #[test]
    fn address_spaces_are_read() {
        let mut facts = dynamic();
        let maps = b"55d0-55d1 r--p 00000000 fe:00 1 /usr/sbin/server\n\
            7f0000000000-7f0000200000 r--s 00000000 fe:00 7    /data/a film.mp4\n\
            7f0000200000-7f0000201000 r--s 00000000 fe:00 8    /data/small\n\
            7f0000300000-7f0000600000 r--p 00000000 fe:00 9    /usr/lib/libbig.so.6\n\
            7f0000600000-7f0000700000 r-xp 00000000 fe:00 9    /usr/lib/libbig.so.6\n\
            7f0000610000-7f0000690000 rwxp 00000000 00:00 0    \n\
            7f0000a00000-7f0000d00000 r--s 00000000 fe:00 13   /usr/lib/classes.jsa\n\
            7f0000d00000-7f0001000000 r--s 00000000 fe:00 14   /film at the root.mp4\n\
            7f0000700000-7f0000701000 r-xp 00000000 fe:00 10   /opt/libseekless.so (deleted)\n\
            7f0000800000-7f0000801000 rw-s 00000000 00:0f 11   /[aio] (deleted)\n\
            7f0000900000-7f0000940000 rw-s 00000000 00:01 12   /memfd:seekless-hits:/run/a b.sock (deleted)\n\
            7ffd00000000-7ffd00100000 rw-p 00000000 00:00 0    [stack]\n";
        facts.read_maps(maps, Path::new("/usr/sbin/server"));
        assert!(facts.shim_mapped && facts.aio);
        assert_eq!(facts.mapped_files, ["/data/a film.mp4", "/film at the root.mp4"]);
        assert_eq!(facts.daemons, [Path::new("/run/a b.sock")]);
    }

    #[test]
    fn a_daemon_that_cannot_be_seen_is_not_said_to_be_silent() {
        let hidden = Facts { shim_mapped: true, overwritten: true, ..dynamic() };
        let kinds = |facts: &Facts| {
            let report = diagnose(facts, daemon(false), ALL);
            report.findings.iter().map(|f| f.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&hidden), ["daemon_unseen"]);
        assert_eq!(kinds(&Facts { daemons: vec!["/s".into()], ..hidden }), ["no_daemon"]);
    }

    #[test]
    fn the_auxiliary_vector_is_read() {
        let entry = |k: u64, v: u64| [k.to_ne_bytes(), v.to_ne_bytes()].concat();
        assert!(at_secure(&[entry(6, 4096), entry(23, 1), entry(0, 0)].concat()));
        assert!(!at_secure(&[entry(6, 4096), entry(23, 0), entry(0, 0)].concat()));
        assert!(!at_secure(&[1, 2, 3]));
    }

    #[test]
    fn our_own_process_can_be_read_and_a_missing_one_is_named() {
        let facts = Facts::read(std::process::id()).unwrap();
        assert!(facts.program.interpreter.is_some());
        assert_eq!(Facts::read(0x7fff_fff0).unwrap_err().exit, Exit::Missing);
        assert_eq!(Facts::read(2).map(|f| f.pid).unwrap_or(2), 2);
    }
}
