//! `seekless top`: shows a running daemon, updated every second.

mod costs;
mod draw;
mod model;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use seekless_base::{Exit, Fault, Nanos};
use seekless_frontend::control;
use seekless_frontend::socket::SocketOption;
use seekless_output::JsonOption;

use self::draw::{Shown, draw};
use self::model::{Follower, View, text};

/// Shortest and longest time between two samples, seconds. A daemon writes its status in a millisecond.
const EVERY: (f64, f64) = (0.1, 60.0);

/// Show what a running daemon does with its disks, until `q`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    at: SocketOption,
    /// Time between two samples, in seconds (0.1 to 60)
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = every)]
    interval: f64,
    /// Show which programs and files cost the disks: reads, bytes, seeks and disk time, by disk time
    #[arg(long)]
    files: bool,
    /// Sample one interval, print it as text, and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    json: JsonOption,
}

fn every(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<Nanos>().ok().map(Nanos::as_secs_f64);
    let seconds = seconds.filter(|s| (EVERY.0..=EVERY.1).contains(s));
    seconds.ok_or_else(|| format!("write {} to {} seconds", EVERY.0, EVERY.1))
}

/// `seekless top`.
///
/// # Errors
/// No daemon answers, or there is no terminal to show it on.
pub fn run_top(args: TopArgs) -> Result<Exit, Fault> {
    let socket = args.at.path()?;
    let interval = Duration::from_secs_f64(args.interval);
    if args.once || args.json.path().is_some() {
        let view = look_once(&socket, interval)?;
        let shown = || text(&view, args.files);
        return seekless_output::json_or(args.json.path(), &view, shown).map(|()| Exit::Ok);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let message = "the screen needs a terminal; `seekless top --once` and `--json` need none";
        return Err(Fault::missing(message));
    }
    // Before the screen changes, so that a missing daemon gives an error line and no flicker.
    let mut screen = Screen {
        socket,
        interval,
        follower: Follower::default(),
        view: View::default(),
        shown: Shown { files: args.files, ..Shown::default() },
    };
    screen.look()?;
    let fault = |e: io::Error| Fault::failed(format!("the terminal cannot be used: {e}"));
    let mut terminal = ratatui::try_init().map_err(fault)?;
    let ended = screen.show(&mut terminal);
    ratatui::restore();
    ended.map_err(fault)?.map(|()| Exit::Ok)
}

/// Two reports, one interval apart.
fn look_once(socket: &Path, interval: Duration) -> Result<View, Fault> {
    let mut follower = Follower::default();
    follower.next(control::status(socket)?.1);
    std::thread::sleep(interval);
    Ok(follower.next(control::status(socket)?.1))
}

struct Screen {
    socket: PathBuf,
    interval: Duration,
    follower: Follower,
    view: View,
    shown: Shown,
}

impl Screen {
    fn look(&mut self) -> Result<(), Fault> {
        self.view = self.follower.next(control::status(&self.socket)?.1);
        Ok(())
    }

    /// Runs until a key ends it. The inner error is the daemon's.
    fn show(&mut self, terminal: &mut DefaultTerminal) -> io::Result<Result<(), Fault>> {
        let mut next = Instant::now() + self.interval;
        loop {
            terminal.draw(|frame| draw(frame, &self.view, self.shown))?;
            if event::poll(next.saturating_duration_since(Instant::now()))?
                && let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && self.key(key)
            {
                return Ok(Ok(()));
            }
            if Instant::now() >= next {
                next = Instant::now() + self.interval;
                if !self.shown.paused
                    && let Err(fault) = self.look()
                {
                    return Ok(Err(fault));
                }
            }
        }
    }

    /// Handles a key. Returns whether it ends the program.
    fn key(&mut self, key: KeyEvent) -> bool {
        let last = self.view.disks.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Esc if self.shown.help => self.shown.help = false,
            KeyCode::Char('q') | KeyCode::F(10) | KeyCode::Esc => return true,
            KeyCode::Up | KeyCode::Char('k') => self.shown.selected = self.shown.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.shown.selected = (self.shown.selected + 1).min(last),
            KeyCode::Char('s') | KeyCode::F(6) => self.shown.sort = self.shown.sort.next(),
            KeyCode::Char('f') => self.shown.files = !self.shown.files,
            KeyCode::Char('p' | ' ') => self.shown.paused = !self.shown.paused,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.shown.help = !self.shown.help,
            KeyCode::Char('+') => self.interval = (self.interval * 2).min(Duration::from_secs_f64(EVERY.1)),
            KeyCode::Char('-') => self.interval = (self.interval / 2).max(Duration::from_secs_f64(EVERY.0)),
            _ => {}
        }
        false
    }
}
