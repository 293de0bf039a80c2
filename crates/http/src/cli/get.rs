//! `seekless get`.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use seekless_base::{Bytes, Exit, Fault};
use seekless_options::longest;
use seekless_output::JsonOption;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::get::{Options, Outcome, Progress, Proxies, download, file_name, parse, shown, trust};

/// Download files, in any order the server prefers; an interrupted download resumes.
///
/// The exit status is 0 only if every file is whole and verified: always by its length, by its digest where
/// the server states one. The rest stays in NAME.part; the same command resumes it.
///
/// A name and password in the URL log in. Proxies are taken from http_proxy, https_proxy, all_proxy and
/// no_proxy.
#[derive(Args, Clone, Debug)]
pub struct GetArgs {
    /// URLs to download (http or https)
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Path of the file (with one URL only)
    #[arg(short, long, value_name = "FILE", conflicts_with = "output_dir")]
    output: Option<PathBuf>,
    /// Folder for the files, which are named as in their URLs [default: the current one]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Downloads at once, 1 to 256
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    parallel: u32,
    /// Download from beginning to end, as other clients do
    #[arg(long)]
    in_order: bool,
    /// Most retries in a row that bring no new bytes, 0 to 1000
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    retries: u32,
    /// Longest silence of a server, more than 0 and at most a week
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = longest)]
    timeout: Duration,
    /// Largest file; a longer one is given up [default: none; half of the free space if the server states no
    /// length]
    #[arg(long, value_name = "SIZE")]
    size_max: Option<Bytes>,
    /// Trust only the certificate authorities in this file (PEM)
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Show no progress bar
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    json: JsonOption,
}

struct Bar(ProgressBar);

impl Progress for Bar {
    fn at(&self, have: u64, size: Option<u64>) {
        if self.0.length() != size
            && let Some(size) = size
        {
            self.0.set_length(size);
        }
        self.0.set_position(have);
    }

    /// Messages go above the progress bars, which exist only on a terminal.
    fn again(&self, why: &str, pause: Duration) {
        self.0.println(format!("seekless get: {why}; the next attempt is in {:.1} s", pause.as_secs_f64()));
    }
}

impl GetArgs {
    /// Each URL with the path of its file.
    fn targets(&self) -> Result<Vec<(String, PathBuf)>, Fault> {
        if let Some(output) = &self.output {
            let [url] = self.urls.as_slice() else {
                return Err(Fault::usage("-o names one file; for several URLs use --output-dir"));
            };
            if output.as_os_str() == "-" {
                return Err(Fault::usage(
                    "-o - cannot work: blocks arrive in any order, and a pipe cannot be verified",
                ));
            }
            parse(url)?;
            return Ok(vec![(url.clone(), output.clone())]);
        }
        let dir = self.output_dir.clone().unwrap_or_default();
        let mut seen: HashMap<String, &str> = HashMap::new();
        let mut targets = Vec::new();
        for url in &self.urls {
            let name = file_name(url)?;
            if let Some(other) = seen.insert(name.clone(), url) {
                let (other, url) = (shown(other), shown(url));
                return Err(Fault::usage(format!("{other} and {url} would both be written to {name}")));
            }
            targets.push((url.clone(), dir.join(name)));
        }
        Ok(targets)
    }
}

/// Runs `seekless get`.
///
/// # Errors
/// Wrong arguments. Downloads that fail are reported one line each; the exit status is that of the first.
pub fn run_get(args: GetArgs) -> Result<Exit, Fault> {
    let targets = args.targets()?;
    let options = Options {
        retries: args.retries,
        timeout: args.timeout,
        any_order: !args.in_order,
        trust: trust(args.cacert.as_ref())?,
        proxies: Proxies::of_environment(),
        size_max: args.size_max.map(|size| size.0),
    };
    let failed = |e: std::io::Error| Fault::failed(format!("cannot start: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let results = runtime.block_on(all(&args, targets, options)).map_err(failed)?;
    let mut exit = Exit::Ok;
    let mut files = Vec::new();
    for (url, path, result) in results {
        files.push(entry(&url, &path, &result));
        if let Err(fault) = result {
            seekless_output::eprintln!("seekless: {fault}");
            if exit == Exit::Ok {
                exit = fault.exit;
            }
        }
    }
    if let Some(path) = args.json.path() {
        seekless_output::json(path, &json!({ "files": files }))?;
    }
    Ok(exit)
}

fn entry(url: &str, path: &std::path::Path, result: &Result<Outcome, Fault>) -> Value {
    match result {
        Ok(outcome) => {
            let mut value = json!(outcome);
            value["url"] = shown(url).into();
            value["path"] = path.display().to_string().into();
            value["ok"] = true.into();
            value
        }
        Err(fault) => json!({ "url": shown(url), "path": path, "ok": false, "error": fault.message }),
    }
}

type Finished = (String, PathBuf, Result<Outcome, Fault>);

/// All downloads, `--parallel` at a time; results in the order of the command line.
async fn all(
    args: &GetArgs,
    targets: Vec<(String, PathBuf)>,
    options: Options,
) -> std::io::Result<Vec<Finished>> {
    let (stop, stopped) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        let _ = stop.send(true);
        // Kept, so that its waiters see a stop and not an end.
        std::future::pending::<()>().await;
    });
    let shown = !args.quiet && std::io::stderr().is_terminal();
    let bars = MultiProgress::with_draw_target(match shown {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    });
    let style =
        ProgressStyle::with_template("{msg:24!} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
    let permits = std::sync::Arc::new(tokio::sync::Semaphore::new(args.parallel as usize));
    let local = tokio::task::LocalSet::new();
    let mut tasks = Vec::new();
    for (url, path) in targets {
        let (options, mut stopped, permits) = (options.clone(), stopped.clone(), permits.clone());
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let (bars, style) = (bars.clone(), style.clone());
        tasks.push(local.spawn_local(async move {
            let _permit = permits.acquire_owned().await;
            let bar = Bar(bars.add(ProgressBar::new(0).with_style(style).with_message(name)));
            let result = download(&url, &path, &options, &bar, &mut stopped).await;
            bar.0.finish_and_clear();
            (url, path, result)
        }));
    }
    let results = local.run_until(async move {
        let mut results = Vec::new();
        for task in tasks {
            match task.await {
                Ok(finished) => results.push(finished),
                Err(error) => return Err(std::io::Error::other(error)),
            }
        }
        Ok(results)
    });
    results.await
}
