//! Where programs are: our own binary and shim, and the servers unpacked by `scripts/provision`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use seekless_base::Fault;

/// The `seekless` binary, which has the daemon and the servers: `$SEEKLESS_BIN`, else beside this program,
/// else in PATH.
pub(crate) fn seekless() -> Result<PathBuf, Fault> {
    if let Some(path) = std::env::var_os("SEEKLESS_BIN") {
        return Ok(path.into());
    }
    let beside = laboratory()?.with_file_name("seekless");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::iter::once(beside)
        .chain(std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join("seekless")))
        .find(|program| program.is_file());
    found.ok_or_else(|| {
        let message = "the program seekless is neither beside seekless-lab nor in PATH: install the package \
                       seekless (in a checkout: cargo build --release), or set SEEKLESS_BIN";
        Fault::missing(message)
    })
}

/// The `seekless-lab` binary, which has the software disk, the load and the simulator: this program itself.
pub(crate) fn laboratory() -> Result<PathBuf, Fault> {
    std::env::current_exe().map_err(|e| Fault::failed(format!("cannot find our own program: {e}")))
}

/// Commands of `seekless-lab` that an experiment starts; the others are those of `seekless`.
const LABORATORY: [&str; 9] =
    ["sim", "vdisk", "load", "plan", "file-server", "sums", "hostile", "probe", "writer"];

/// `seekless ARGS...`, or `seekless-lab ARGS...` where the first word is a command of that.
pub(crate) fn command(args: &[&str]) -> Result<Command, Fault> {
    let ours = args.first().is_some_and(|word| LABORATORY.contains(word));
    let mut command = Command::new(if ours { laboratory()? } else { seekless()? });
    // An experiment's options are its own, whatever this machine is configured for.
    command.args(args).env("SEEKLESS_CONFIG", "");
    Ok(command)
}

/// An error line of either program, without the program's name.
pub(crate) fn without_name(line: &str) -> &str {
    ["seekless: ", "seekless-lab: "].iter().find_map(|name| line.strip_prefix(name)).unwrap_or(line)
}

/// libseekless.so: `$SEEKLESS_SHIM`, next to the program, or in ../lib/seekless/.
pub(crate) fn shim() -> Result<PathBuf, Fault> {
    near_the_program(
        "SEEKLESS_SHIM",
        &["libseekless.so", "../lib/seekless/libseekless.so", "../libseekless.so"],
        ("../lib/seekless", "cargo build --release"),
    )
}

/// libseekless_order.so: `$SEEKLESS_ORDER_LIBRARY`, next to the program, or in ../lib/.
pub(crate) fn order_library() -> Result<PathBuf, Fault> {
    near_the_program(
        "SEEKLESS_ORDER_LIBRARY",
        &["libseekless_order.so", "../lib/libseekless_order.so"],
        ("../lib", "cargo build --release -p seekless-order-c"),
    )
}

/// A library that a variable names, else the first of these paths from the program's folder that is there.
/// The message names the first, the other folder and how it is built.
fn near_the_program(variable: &str, paths: &[&str], (folder, build): (&str, &str)) -> Result<PathBuf, Fault> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let program = seekless()?;
    let program = program.canonicalize().unwrap_or(program);
    let dir = program.parent().unwrap_or(Path::new("/"));
    paths.iter().map(|relative| dir.join(relative)).find(|path| path.exists()).ok_or_else(|| {
        Fault::missing(format!(
            "{} is neither beside {} nor in {folder}: build it (`{build}`) or set {variable}",
            paths[0],
            program.display()
        ))
    })
}

/// Folder of the Python package: `$SEEKLESS_PYTHON`, else `python` in a folder above the program or the
/// current one.
pub(crate) fn python_package() -> Result<PathBuf, Fault> {
    if let Some(path) = std::env::var_os("SEEKLESS_PYTHON") {
        return Ok(path.into());
    }
    let starts = [std::env::current_dir().ok(), seekless().ok()];
    let above = starts.iter().flatten().flat_map(|start| start.ancestors());
    above.map(|dir| dir.join("python")).find(|dir| dir.join("seekless_order/__init__.py").is_file()).ok_or_else(
        || {
            let message = "the Python package seekless_order is not here: call this in a checkout, or set SEEKLESS_PYTHON";
            Fault::missing(message)
        },
    )
}

/// Folders programs were unpacked into: `$SEEKLESS_TOOLS`, else `.cache/debian/root` in a folder above the
/// program or the current one.
fn roots() -> Vec<PathBuf> {
    if let Some(root) = std::env::var_os("SEEKLESS_TOOLS") {
        return vec![root.into()];
    }
    let starts = [std::env::current_dir().ok(), seekless().ok()];
    let above = starts.iter().flatten().flat_map(|start| start.ancestors());
    above.map(|dir| dir.join(".cache/debian/root")).filter(|root| root.is_dir()).collect()
}

/// The folder that programs were unpacked into, if there is one.
pub(crate) fn unpacked() -> Option<PathBuf> {
    roots().into_iter().next()
}

/// An unpacked or installed program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The executable itself, no launcher script: what is preloaded into it must not be preloaded into a
    /// shell.
    pub(crate) path: PathBuf,
    /// Root of the unpacked tree, or `/`.
    pub(crate) root: PathBuf,
    /// Private libraries it needs.
    libraries: Option<OsString>,
}

impl Program {
    /// A command that runs it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if let Some(libraries) = &self.libraries {
            let mut all = libraries.clone();
            if let Some(more) = std::env::var_os("LD_LIBRARY_PATH") {
                all.push(":");
                all.push(more);
            }
            command.env("LD_LIBRARY_PATH", all);
        }
        command
    }

    /// A file or folder of its package, e.g. `usr/lib/apache2/modules`.
    pub(crate) fn file(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }
}

/// Finds a server in Go: built into `.cache/go/bin` by `scripts/provision-go` first, then as [`find`] does.
pub(crate) fn find_go(name: &str) -> Result<Program, Fault> {
    let starts = [std::env::current_dir().ok(), seekless().ok()];
    let built = starts.iter().flatten().flat_map(|start| start.ancestors());
    built
        .map(|dir| dir.join(".cache/go/bin").join(name))
        .find(|path| path.is_file())
        .map(|path| Program { path, root: "/".into(), libraries: None })
        .map_or_else(|| find(name), Ok)
        .map_err(|_| {
            Fault::missing(format!(
                "{name} is neither built nor installed: run scripts/provision-go (needs Go)"
            ))
        })
}

/// The libraries of Kafka, fetched into `.cache/kafka` by `scripts/provision-kafka`; Java is here too.
pub(crate) fn kafka() -> Result<PathBuf, Fault> {
    find("java")?;
    let starts = [std::env::current_dir().ok(), seekless().ok()];
    let above = starts.iter().flatten().flat_map(|start| start.ancestors());
    above.map(|dir| dir.join(".cache/kafka/libs")).find(|dir| dir.is_dir()).ok_or_else(|| {
        Fault::missing("Kafka is not here: run scripts/provision-kafka (needs Java and Maven)")
    })
}

/// Finds a server: unpacked first, then in PATH and the sbin folders.
pub(crate) fn find(name: &str) -> Result<Program, Fault> {
    for root in roots() {
        for place in ["usr/sbin", "usr/bin", "sbin", "bin"] {
            let path = root.join(place).join(name);
            // bin/ also holds launcher scripts of the same names, but those come last.
            if path.is_file() {
                let list = std::fs::read_to_string(root.join(".libs")).unwrap_or_default();
                let libraries = Some(list.trim()).filter(|l| !l.is_empty()).map(OsString::from);
                return Ok(Program { path, root, libraries });
            }
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .map(|path| Program { path, root: "/".into(), libraries: None })
        .ok_or_else(|| {
            Fault::missing(format!(
                "{name} is neither unpacked nor installed: run scripts/provision or install it"
            ))
        })
}
