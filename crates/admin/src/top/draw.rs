//! The screen of `seekless top`, for 40 columns or more.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Wrap};

use super::costs::{self, CostView};
use super::model::{DiskView, View, mib, span};

/// Minimum width for one-line disks.
const WIDE: u16 = 72;

/// Width of the bar on a narrow and on a wide screen.
const BAR_NARROW: usize = 10;
const BAR_WIDE: usize = 20;

/// What the screen shows besides the view.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    /// The disk whose details are shown.
    pub(crate) selected: usize,
    pub(crate) paused: bool,
    pub(crate) help: bool,
    /// Programs and files that cost the disks, instead of details and decisions.
    pub(crate) files: bool,
    pub(crate) sort: Sort,
}

/// The order of the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// As the daemon met them.
    #[default]
    Met,
    /// The busiest first.
    Busy,
    /// The one that reads most first.
    Rate,
    /// The one with the longest waits first.
    Wait,
}

impl Sort {
    pub(crate) fn next(self) -> Sort {
        match self {
            Sort::Met => Sort::Busy,
            Sort::Busy => Sort::Rate,
            Sort::Rate => Sort::Wait,
            Sort::Wait => Sort::Met,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Met => "as met",
            Sort::Busy => "busy",
            Sort::Rate => "rate",
            Sort::Wait => "wait",
        }
    }

    /// The disks in this order.
    pub(crate) fn sorted(self, view: &View) -> Vec<&DiskView> {
        let mut disks: Vec<&DiskView> = view.disks.iter().collect();
        let key = |d: &DiskView| match self {
            Sort::Met => 0.0,
            Sort::Busy => d.spent.idle,
            Sort::Rate => -d.read_bytes_per_s,
            Sort::Wait => -d.wait_mean_ms.unwrap_or(0.0),
        };
        disks.sort_by(|a, b| key(a).total_cmp(&key(b)));
        disks
    }
}

const HELP: &str = "q F10 Esc   quit\n\
                    Up Down k j select a disk\n\
                    s F6        sort: as met, busy, rate, wait\n\
                    f           programs and files\n\
                    p Space     hold the screen, go on\n\
                    + -         look less, more often\n\
                    h F1 ?      this help\n\
                    \n\
                    #  transferring     +  positioning\n\
                    :  held up          .  idle";

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View, shown: Shown) {
    let area = frame.area();
    let disks = shown.sort.sorted(view);
    let rows = (disks.len() as u16).clamp(1, area.height.saturating_sub(9).max(1));
    let [head, list, detail, said, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(rows + 1),
        Constraint::Length(if area.width >= WIDE { 4 } else { 6 }),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header(view, shown)), head);
    let selected = shown.selected.min(disks.len().saturating_sub(1));
    frame.render_widget(Paragraph::new(table(&disks, selected, list)), list);
    if shown.files {
        let below = Rect { height: detail.height + said.height, ..detail };
        costs_below(frame, view, below);
    } else if let Some(disk) = disks.get(selected) {
        frame.render_widget(Paragraph::new(details(disk)).wrap(Wrap { trim: true }), detail);
    }
    if !shown.files {
        decisions(frame, view, said);
    }
    let reverse = Style::new().add_modifier(Modifier::REVERSED);
    let sort = format!("F1 help  F6 sort: {}  f files  p hold  q quit", shown.sort.name());
    frame.render_widget(Paragraph::new(sort).style(reverse), keys);
    if shown.help {
        let (width, height) = (46.min(area.width), 12.min(area.height));
        let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
        frame.render_widget(Clear, place);
        let block = Block::new().borders(Borders::ALL).title("seekless top");
        frame.render_widget(Paragraph::new(HELP).block(block), place);
    }
}

fn header(view: &View, shown: Shown) -> Vec<Line<'static>> {
    let state = match (view.passes_all, shown.paused) {
        (true, _) => Span::styled("every call is passed", Style::new().fg(Color::Yellow)),
        (false, true) => Span::styled("screen held", Style::new().fg(Color::Yellow)),
        (false, false) => Span::styled("serving", Style::new().fg(Color::Green)),
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    vec![
        Line::from(vec![
            Span::styled(format!("seekless {} ", view.version), bold),
            state,
            Span::raw(format!(" up {}", span(view.uptime_s))),
        ]),
        Line::from(format!(
            "{:.0} requests/s  {} connected  mode {}  prefetch {}",
            view.requests_per_s, view.connections, view.mode, view.prefetch
        )),
    ]
}

/// One line for each disk, below a line of titles.
fn table(disks: &[&DiskView], selected: usize, area: Rect) -> Vec<Line<'static>> {
    let wide = area.width >= WIDE;
    let bar = if wide { BAR_WIDE } else { BAR_NARROW };
    let title = match wide {
        true => format!(
            "{:8} {:bar$} {:>7} {:>7} {:>7} {:>8} {:>9}",
            "DISK", "SECOND", "READ", "TAKEN", "STREAMS", "WAIT", "SIZE"
        ),
        false => format!("{:8} {:bar$} {:>6} {:>7}", "DISK", "SECOND", "READ", "STREAMS"),
    };
    let mut lines = vec![Line::styled(title, Style::new().add_modifier(Modifier::BOLD))];
    if disks.is_empty() {
        lines.push(Line::from("no disk has been read yet"));
    }
    // The selected disk is always visible.
    let room = area.height.saturating_sub(1) as usize;
    let first = (selected + 1).saturating_sub(room);
    for (i, d) in disks.iter().enumerate().skip(first).take(room) {
        let mut spans = vec![Span::raw(format!("{:8} ", cut(&d.name, 8)))];
        spans.extend(second(d, bar));
        let wait = d.wait_mean_ms.map_or("-".to_string(), |ms| format!("{ms:.1}ms"));
        spans.push(Span::raw(match wide {
            true => format!(
                " {:>7.1} {:>7.1} {:>7} {:>8} {:>9}",
                d.read_bytes_per_s / 1e6,
                d.delivered_bytes_per_s / 1e6,
                d.streams,
                wait,
                mib(d.prefetch_bytes)
            ),
            false => format!(" {:>6.1} {:>7}", d.read_bytes_per_s / 1e6, d.streams),
        }));
        let style = if i == selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        lines.push(Line::from(spans).style(style));
    }
    lines
}

/// How a disk spent a second, in `columns` characters; readable without colour.
fn second(d: &DiskView, columns: usize) -> Vec<Span<'static>> {
    let parts = [
        (d.spent.transferring, "#", Color::Green),
        (d.spent.positioning.unwrap_or(0.0), "+", Color::Red),
        (d.spent.held_up, ":", Color::Yellow),
    ];
    let mut left = columns;
    let mut spans = Vec::new();
    for (share, mark, colour) in parts {
        let n = ((share * columns as f64).round() as usize).min(left);
        left -= n;
        spans.push(Span::styled(mark.repeat(n), Style::new().fg(colour)));
    }
    spans.push(Span::styled(".".repeat(left), Style::new().fg(Color::DarkGray)));
    spans
}

fn details(d: &DiskView) -> Vec<Line<'static>> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let busy = match d.spent.positioning {
        Some(p) => format!("transferring {}, positioning {}", percent(d.spent.transferring), percent(p)),
        None => format!("reading {}", percent(d.spent.transferring)),
    };
    let each = if d.streams > 0 { d.delivered_bytes_per_s / d.streams as f64 / 1e3 } else { 0.0 };
    let passed = match d.passed.is_empty() {
        true => "none".to_string(),
        false => d.passed.iter().map(|(why, n)| format!("{why} {n}")).collect::<Vec<_>>().join(", "),
    };
    vec![
        Line::from(format!(
            "{}: {busy}, held up {}; file sets {}, writes {}",
            d.name,
            percent(d.spent.held_up),
            percent(d.file_sets),
            percent(d.writes)
        )),
        Line::from(format!(
            "unread {} of {}; a stream {each:.0} kB/s; {} waiting",
            mib(d.unread_bytes),
            mib(d.budget_bytes),
            d.waiting
        )),
        Line::from(d.memory.clone()),
        Line::from(format!("passed: {passed}; evicted {}", mib(d.evicted_unused_bytes))),
    ]
}

/// Programs, and files below them: a third and two thirds of the lines.
fn costs_below(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let programs_max = (area.height / 3).max(2);
    let of_programs = (view.programs.len() as u16).clamp(1, programs_max.saturating_sub(1).max(1)) + 1;
    let [programs, files] =
        Layout::vertical([Constraint::Length(of_programs), Constraint::Min(1)]).areas(area);
    for (what, list, place) in [("PROGRAM", &view.programs, programs), ("FILE", &view.files, files)] {
        frame.render_widget(Paragraph::new(cost_lines(what, list, place.height)), place);
    }
}

fn cost_lines(what: &str, list: &[CostView], height: u16) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(costs::title(what), Style::new().add_modifier(Modifier::BOLD))];
    lines.extend(list.iter().take(height.saturating_sub(1) as usize).map(|c| {
        let c = CostView { disk: cut(&c.disk, 8), ..c.clone() };
        Line::from(costs::row(&c))
    }));
    if list.is_empty() {
        lines.push(Line::from("nothing was read"));
    }
    lines
}

fn decisions(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let block = Block::new().borders(Borders::TOP).title("decisions");
    let lines: Vec<Line<'_>> = match view.decisions.is_empty() {
        true => vec![Line::from("none since this began")],
        false => view.decisions.iter().map(|said| Line::from(said.as_str())).collect(),
    };
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// The end of a name is more telling than its beginning, because mount points are paths.
fn cut(name: &str, columns: usize) -> String {
    let count = name.chars().count();
    name.chars().skip(count.saturating_sub(columns)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::Follower;
    use super::super::model::tests::report;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn view() -> View {
        let mut follower = Follower::default();
        follower.next(report(100.0));
        follower.next(report(101.0))
    }

    fn screen(width: u16, height: u16, view: &View, shown: Shown) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view, shown)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_string()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_string()).collect()
    }

    #[test]
    fn eighty_columns_show_all_of_a_disk() {
        let screen = screen(80, 24, &view(), Shown::default());
        let all = screen.join("\n");
        assert!(screen[0].starts_with("seekless 0.1.0 serving up 1 min 41 s"), "{all}");
        assert_eq!(screen[2], "DISK     SECOND                  READ   TAKEN STREAMS     WAIT      SIZE");
        assert_eq!(
            screen[3], "sda      ############++++++..    60.0     0.0      40   25.0ms   4.0 MiB",
            "{all}"
        );
        assert!(all.contains("unread 100.0 MiB of 256.0 MiB"), "{all}");
        assert!(all.contains("memory is not short; longest wait"), "{all}");
        assert!(all.contains("passed: random 202"), "{all}");
        assert!(all.contains("sda: 2 calls passed: random"), "{all}");
        assert!(screen[23].starts_with("F1 help"), "{all}");
    }

    #[test]
    fn programs_and_files_take_the_place_of_details() {
        let mut view = view();
        let cost = |name: &str, disk_ms| CostView {
            disk: "sda".into(),
            name: name.into(),
            reads: 12,
            bytes: 48_000_000,
            seeks: 7,
            disk_ms,
            share: disk_ms / 1e3,
            ..Default::default()
        };
        view.programs = vec![cost("nginx", 500.0), cost("rsync (backup.service)", 300.0)];
        view.files = (0..40).map(|i| cost(&format!("/srv/film{i}.mkv"), f64::from(100 - i))).collect();
        let screen = screen(80, 24, &view, Shown { files: true, ..Default::default() });
        let all = screen.join("\n");
        assert_eq!(screen[4], "DISK         TIME  SHARE   READS       MB   SEEKS  PROGRAM", "{all}");
        assert_eq!(screen[5], "sda        500 ms   50 %      12     48.0       7  nginx", "{all}");
        assert!(screen[7].ends_with("FILE") && screen[8].ends_with("/srv/film0.mkv"), "{all}");
        assert!(screen[22].ends_with("/srv/film14.mkv"), "{all}");
        assert!(!all.contains("passed:") && screen[23].contains("f files"), "{all}");
    }

    #[test]
    fn forty_columns_lose_columns_and_no_disk() {
        let screen = screen(40, 14, &view(), Shown::default());
        assert_eq!(screen[2], "DISK     SECOND       READ STREAMS");
        assert_eq!(screen[3], "sda      ######+++.   60.0      40");
        assert!(screen.iter().all(|line| line.chars().count() <= 40));
        assert!(screen.join("\n").contains("256.0 MiB"));
    }

    #[test]
    fn many_disks_keep_the_selected_one_in_sight_and_sort() {
        let mut many = view();
        let one = many.disks[0].clone();
        many.disks = (0..30)
            .map(|i| DiskView { name: format!("disk{i}"), read_bytes_per_s: f64::from(i), ..one.clone() })
            .collect();
        let shown = Shown { selected: 29, ..Default::default() };
        assert!(screen(80, 20, &many, shown).iter().any(|l| l.starts_with("disk29 ")));
        let by_rate = Shown { sort: Sort::Rate, ..Default::default() };
        assert!(screen(80, 20, &many, by_rate)[3].starts_with("disk29 "));
    }

    #[test]
    fn a_screen_too_small_for_anything_does_not_fail() {
        for (width, height) in [(1, 1), (5, 2), (20, 3), (200, 60)] {
            screen(width, height, &view(), Shown { help: true, ..Default::default() });
            screen(width, height, &View::default(), Shown::default());
            screen(width, height, &view(), Shown { files: true, ..Default::default() });
        }
    }
}
