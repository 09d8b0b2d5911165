//! The picture as text.

use std::fmt;

use super::picture::{Cause, Lane, Picture, Step};
use crate::output::visible;

/// Microseconds of a column, from near to far.
const ZOOMS_US: [u64; 8] = [
    5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
];

/// Columns for what is said of a lane.
const LABEL: u16 = 42;
/// As many where the screen has no room for that.
const SHORT_LABEL: u16 = 19;
/// Screens of fewer columns have short labels.
const NARROW: u16 = 64;
/// On screens of fewer lines nothing but lanes gets more lines than it has on a wide one.
const LOW: u16 = 16;

/// What is seen of the picture, and how.
pub(super) struct View {
    base: String,
    zoom: usize,
    /// The time at the right edge, where it stands still.
    paused_us: Option<u64>,
    /// Columns that time has.
    columns: u64,
}

impl View {
    pub(super) fn new(base: &str) -> Self {
        Self {
            base: base.to_owned(),
            zoom: 3,
            paused_us: None,
            columns: 1,
        }
    }

    pub(super) fn pause(&mut self, picture: &Picture) {
        self.paused_us = match self.paused_us {
            Some(_) => None,
            None => Some(picture.now_us),
        };
    }

    pub(super) fn zoom(&mut self, nearer: bool) {
        let farthest = ZOOMS_US.len() - 1;
        self.zoom = if nearer {
            self.zoom.saturating_sub(1)
        } else {
            farthest.min(self.zoom + 1)
        };
    }

    /// Moves to earlier or later times, where it stands still.
    pub(super) fn scroll(&mut self, earlier: bool) {
        let by = ZOOMS_US[self.zoom] * self.columns / 4;
        if let Some(us) = &mut self.paused_us {
            *us = if earlier {
                us.saturating_sub(by)
            } else {
                *us + by
            };
        }
    }

    /// The screen, line by line.
    pub(super) fn draw(&mut self, picture: &Picture, (width, height): (u16, u16)) -> Vec<Line> {
        let label = if width < NARROW { SHORT_LABEL } else { LABEL };
        self.columns = u64::from(width.saturating_sub(label)).max(1);
        let column_us = ZOOMS_US[self.zoom];
        let right = self.paused_us.unwrap_or(picture.now_us);
        let window = Window {
            left_us: right.saturating_sub(self.columns * column_us),
            column_us,
            columns: self.columns,
            label,
        };
        let width = usize::from(width);
        let wrap_at = if height < LOW { usize::MAX } else { width };
        let mut lines = self.head(picture, wrap_at);
        let keys = self.keys(wrap_at);
        // Below the lanes are two lines of steps and the keys.
        let room = usize::from(height).saturating_sub(lines.len() + 2 + keys.len());
        lines.extend(lanes(picture, window, room));
        lines.extend(heights(picture, window).map(Line::from));
        lines.extend(keys);
        // One line more, and the screen would scroll.
        lines.truncate(height.into());
        for line in &mut lines {
            line.cut(width);
        }
        lines
    }

    fn keys(&self, width: usize) -> Vec<Line> {
        let space = match self.paused_us {
            Some(_) => "space go on",
            None => "space stand still",
        };
        let zoom = format!("+ - zoom ({} a column)", milliseconds(ZOOMS_US[self.zoom]));
        let keys = [
            "q end",
            space,
            &zoom,
            "\u{2190} \u{2192} move while it stands",
        ];
        let signs = [Cell::Reads, Cell::Writes, Cell::Waits, Cell::Stalls];
        let meanings = ["reads", "writes", "waits", "longer than the bound"];
        let signs = signs.iter().zip(meanings);
        let signs = signs.map(|(cell, does)| format!("{} {does}", cell.sign()));
        let parts = keys.iter().map(|key| (*key).to_owned()).chain(signs);
        let lines = wrapped(parts, "  ", width);
        let dim = |text| Line::from(Span(text, Style::Dim));
        lines.into_iter().map(dim).collect()
    }

    fn head(&self, picture: &Picture, width: usize) -> Vec<Line> {
        let (state, rates) = (&picture.state, picture.rates());
        let bound = state.stall.in_force_us.map_or_else(
            || "no bound".to_owned(),
            |us| format!("bound {}", milliseconds(us)),
        );
        let counts = &state.counts;
        let share = |part: u64| 100 * part / state.blocks.total.max(1);
        let error = rates
            .error
            .map(|error| format!("steps took {:.0} % of what was expected", error * 100.0));
        let requests = &state.requests;
        let name = Span("andante ".to_owned(), Style::Bold);
        let server = [self.base.clone(), format!("{}, {bound}", state.profile)];
        let server = wrapped(server, "  ", width.saturating_sub(name.0.len()));
        let mut lines: Vec<Line> = server.into_iter().map(Line::from).collect();
        lines[0].0.insert(0, name);
        let mut speed = vec![
            format!("answers {:.0} tokens/s", rates.decode),
            format!("prompts {:.0} tokens/s", rates.prefill),
            format!(
                "{:.0} steps/s, {:.0} % of the time",
                rates.steps,
                rates.busy * 100.0
            ),
        ];
        speed.extend(error);
        let work = vec![
            format!(
                "{} write, {} read, {} wait, {} unread",
                counts.active, counts.prefilling, counts.queued, counts.parked,
            ),
            format!(
                "KV {} % held, {} % kept",
                share(state.blocks.used),
                share(state.blocks.cached),
            ),
            format!(
                "{} finished, {} failed, {} left, {} refused",
                requests.finished, requests.failed, requests.cancelled, requests.refused,
            ),
        ];
        for parts in [speed, work] {
            lines.extend(wrapped(parts, "   ", width).into_iter().map(Line::from));
        }
        lines.extend(longest_gap(picture, width));
        lines.push(Line::from(String::new()));
        lines
    }
}

/// The longest gap between two tokens, and who is to blame.
fn longest_gap(picture: &Picture, width: usize) -> Vec<Line> {
    let Some(gap) = &picture.gap else {
        return vec![Line::from("no gap yet".to_owned())];
    };
    let why = match gap.cause {
        Cause::Prompt { id, tokens } => format!("beside {tokens} tokens of the prompt of {id}"),
        Cause::Io => "loading or saving KV".to_owned(),
        Cause::Disturbance => "the step took far longer than expected".to_owned(),
        Cause::Answers => "answers alone".to_owned(),
    };
    let style = if is_over(gap.us, picture.state.stall.in_force_us) {
        Style::Red
    } else {
        Style::Plain
    };
    let gap = format!(
        "longest gap {} in the answer of {}",
        milliseconds(gap.us),
        gap.id
    );
    let lines = wrapped([gap, why], ": ", width).into_iter();
    lines.map(|text| Line::from(Span(text, style))).collect()
}

/// The sequences that are seen, in `room` lines, empty ones below where there are fewer.
fn lanes(picture: &Picture, window: Window, room: usize) -> Vec<Line> {
    let seen = picture.lanes.iter().filter(|(_, lane)| window.shows(lane));
    let mut seen: Vec<_> = seen.collect();
    // Those that go on come first; of the rest the latest.
    seen.sort_by_key(|(id, lane)| (lane.ended.is_some(), std::cmp::Reverse(**id)));
    let more = seen.len() > room;
    let shown = if more { room.saturating_sub(1) } else { room };
    let lane = |(id, lane): &(&u64, &Lane)| {
        let mut line = Line::from(window.label(**id, lane));
        line.0.extend(window.cells(picture, **id, lane));
        line
    };
    let mut lines: Vec<Line> = seen.iter().take(shown).map(lane).collect();
    if more {
        let text = format!("and {} more", seen.len() - shown);
        lines.push(Line::from(Span(text, Style::Dim)));
    }
    lines.resize_with(room, || Line::from(String::new()));
    lines
}

/// What is on the screen.
#[derive(Clone, Copy)]
struct Window {
    left_us: u64,
    column_us: u64,
    columns: u64,
    /// Columns before them, for what is said of a lane.
    label: u16,
}

impl Window {
    fn label(self, id: u64, lane: &Lane) -> String {
        let does = match lane.doing() {
            "reading" => format!(
                "reading {} %",
                100 * lane.processed / lane.prompt_tokens.max(1)
            ),
            other => other.to_owned(),
        };
        let text = if self.label == SHORT_LABEL {
            format!("{id:>5} {does:<13}")
        } else {
            let tenant: String = lane.tenant.chars().take(8).collect();
            format!(
                "{id:>5} {tenant:<8} {does:<13}{:>5} {:>4.0} ms ",
                lane.tokens,
                lane.longest_gap_us as f64 / 1000.0
            )
        };
        self.padded(&text)
    }

    /// As wide as a label.
    fn padded(self, text: &str) -> String {
        format!("{text:<width$.width$}", width = usize::from(self.label))
    }

    fn right_us(self) -> u64 {
        self.left_us + self.columns * self.column_us
    }

    fn shows(self, lane: &Lane) -> bool {
        lane.arrived_us <= self.right_us()
            && lane
                .ended
                .as_ref()
                .is_none_or(|(at_us, _)| *at_us >= self.left_us)
    }

    /// The columns that something covers.
    fn columns_of(self, start_us: u64, end_us: u64) -> std::ops::Range<usize> {
        let column = |us: u64| us.saturating_sub(self.left_us) / self.column_us;
        if end_us <= self.left_us || start_us >= self.right_us() {
            return 0..0;
        }
        column(start_us) as usize..(column(end_us - 1) + 1).min(self.columns) as usize
    }

    /// A lane: what the sequence did in each column.
    fn cells(self, picture: &Picture, id: u64, lane: &Lane) -> Vec<Span> {
        let mut cells = vec![Cell::Nothing; self.columns as usize];
        let end = lane
            .ended
            .as_ref()
            .map_or(picture.now_us, |(at_us, _)| *at_us);
        cells[self.columns_of(lane.arrived_us, end.max(lane.arrived_us + 1))].fill(Cell::Waits);
        for step in self.steps(picture) {
            let does = if step.prefill.iter().any(|range| range.id == id) {
                Cell::Reads
            } else if step.decode.contains(&id) {
                if is_long(step) {
                    Cell::Stalls
                } else {
                    Cell::Writes
                }
            } else {
                continue;
            };
            for cell in
                &mut cells[self.columns_of(step.started_us, step.started_us + step.actual_us)]
            {
                *cell = (*cell).max(does);
            }
        }
        let runs = cells.chunk_by(|a, b| a == b);
        runs.map(|run| Span(run[0].sign().repeat(run.len()), run[0].style()))
            .collect()
    }

    fn steps(self, picture: &Picture) -> impl Iterator<Item = &Step> {
        let shown = picture.steps.iter().rev();
        let shown = shown.take_while(move |step| step.started_us + step.actual_us >= self.left_us);
        shown.filter(move |step| step.started_us < self.right_us())
    }
}

fn is_long(step: &Step) -> bool {
    step.contended && is_over(step.actual_us, step.budget_us)
}

/// Whether it is more than the bound and a tenth, as the server counts stalls.
fn is_over(us: u64, bound_us: Option<u64>) -> bool {
    bound_us.is_some_and(|bound| us > bound + bound / 10)
}

/// In the order in which one hides another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    Nothing,
    Waits,
    Writes,
    Reads,
    Stalls,
}

impl Cell {
    fn sign(self) -> &'static str {
        match self {
            Self::Nothing => " ",
            Self::Waits => "·",
            Self::Writes => "█",
            Self::Reads => "░",
            Self::Stalls => "!",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Nothing | Self::Waits => Style::Dim,
            Self::Writes => Style::Green,
            Self::Reads => Style::Blue,
            Self::Stalls => Style::Red,
        }
    }
}

/// How text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Blue,
}

impl Style {
    /// The number of the terminal's attribute (ECMA-48, SGR).
    fn attribute(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Bold => 1,
            Self::Dim => 2,
            Self::Red => 31,
            Self::Green => 32,
            Self::Blue => 34,
        }
    }
}

/// Text that looks alike; each character is one column wide.
#[derive(Debug)]
pub(super) struct Span(String, Style);

/// A line of the screen.
#[derive(Debug)]
pub(super) struct Line(Vec<Span>);

impl From<Span> for Line {
    fn from(span: Span) -> Self {
        Self(vec![span])
    }
}

impl From<String> for Line {
    fn from(text: String) -> Self {
        Span(text, Style::Plain).into()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|Span(text, style)| {
            // Names are the server's and its clients'.
            let text = visible(text, &[]);
            write!(f, "\x1b[{}m{text}\x1b[0m", style.attribute())
        })
    }
}

impl Line {
    /// Leaves out what is beyond so many columns.
    fn cut(&mut self, mut columns: usize) {
        for Span(text, _) in &mut self.0 {
            if let Some((end, _)) = text.char_indices().nth(columns) {
                text.truncate(end);
            }
            columns -= text.chars().count();
        }
    }
}

/// The longest step of each column, in two rows of eighths of the bound.
fn heights(picture: &Picture, window: Window) -> [String; 2] {
    const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let bound = picture.state.stall.in_force_us.unwrap_or(100_000).max(1);
    let mut longest = vec![0; window.columns as usize];
    for step in window.steps(picture) {
        for us in &mut longest[window.columns_of(step.started_us, step.started_us + step.actual_us)]
        {
            *us = step.actual_us.max(*us);
        }
    }
    let row = |base: u64| -> String {
        let eighths = longest
            .iter()
            .map(|us| (us * 16).div_ceil(bound).saturating_sub(base).min(8));
        eighths.map(|eighths| EIGHTHS[eighths as usize]).collect()
    };
    let up_to = format!("up to {}", milliseconds(bound));
    let (above, below) = if window.label == SHORT_LABEL {
        ("longest step".to_owned(), up_to)
    } else {
        (format!("longest step, {up_to}"), String::new())
    };
    [
        window.padded(&above) + &row(8),
        window.padded(&below) + &row(0),
    ]
}

/// Parts, one after the other in as many lines as they take.
fn wrapped(parts: impl IntoIterator<Item = String>, between: &str, width: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if length(line) + length(between) + length(&part) <= width => {
                line.push_str(between);
                line.push_str(&part);
            }
            _ => lines.push(part),
        }
    }
    lines
}

fn milliseconds(us: u64) -> String {
    format!("{} ms", us.div_ceil(1000))
}

/// The picture in one line.
pub(super) fn line(picture: &Picture) -> String {
    let (rates, counts) = (picture.rates(), &picture.state.counts);
    let gap = picture.gap.as_ref().map_or(0, |gap| gap.us);
    format!(
        "answers {:.0} tokens/s, prompts {:.0} tokens/s; {} write, {} read, {} wait; longest gap {}",
        rates.decode,
        rates.prefill,
        counts.active,
        counts.prefilling,
        counts.queued,
        milliseconds(gap),
    )
}

#[cfg(test)]
mod tests {
    use super::super::picture::tests::example;
    use super::*;

    fn screen(view: &mut View, picture: &Picture, size: (u16, u16)) -> Vec<String> {
        let lines = view.draw(picture, size);
        let text = |line: &Line| {
            line.0
                .iter()
                .map(|Span(text, _)| text.as_str())
                .collect::<String>()
        };
        lines
            .iter()
            .map(|line| text(line).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn lanes_show_who_did_what_when() {
        let picture = example();
        let mut view = View::new("http://h");
        view.zoom(true);
        view.zoom(true);
        // 10 ms a column, 28 of them, 121 ms of work.
        view.paused_us = Some(280_000);
        let screen = screen(&mut view, &picture, (70, 12));
        assert_eq!(screen.len(), 12);
        assert!(screen.iter().all(|line| line.chars().count() <= 70));
        assert!(
            screen[3].starts_with(
                "longest gap 90 ms in the answer of 1: beside 80 tokens of the prompt"
            ),
            "{screen:#?}"
        );
        let lane = |line: &str| line.chars().skip(usize::from(LABEL)).collect::<String>();
        assert!(screen[5].contains("2 bb       writing"), "{screen:#?}");
        assert_eq!(lane(&screen[5]), " ░░░░░░░░░░░░");
        assert!(screen[6].contains("1 aa       stop"), "{screen:#?}");
        assert_eq!(lane(&screen[6]), "░████████████");
    }

    #[test]
    fn a_narrow_screen_shows_all_there_is_to_say() {
        let picture = example();
        let mut view = View::new("http://h");
        view.paused_us = Some(280_000);
        let screen = screen(&mut view, &picture, (40, 24));
        assert_eq!(screen.len(), 24);
        let all = screen.join("\n");
        for words in [
            ", no bound",
            "prompts 876 tokens/s",
            "of what was expected",
            "0 refused",
            "longest gap 90 ms in the answer of 1\nbeside 80 tokens of the prompt of 2",
            "\n    2 writing ",
            "\nlongest step ",
            "! longer than the bound",
        ] {
            assert!(all.contains(words), "{words}:\n{all}");
        }
    }

    #[test]
    fn nothing_is_drawn_beyond_the_screen() {
        let picture = example();
        for size in [(0, 0), (1, 1), (18, 3), (40, 8), (63, 15), (500, 100)] {
            let screen = screen(&mut View::new("http://h"), &picture, size);
            let (width, height) = (usize::from(size.0), usize::from(size.1));
            assert!(screen.len() <= height, "{size:?}: {screen:#?}");
            assert!(screen.iter().all(|line| line.chars().count() <= width));
        }
    }

    #[test]
    fn a_line_for_logs() {
        let line = line(&example());
        assert_eq!(
            line,
            "answers 41 tokens/s, prompts 876 tokens/s; 0 write, 0 read, 0 wait; longest gap 90 ms"
        );
    }

    #[test]
    fn zoom_and_time_have_ends() {
        let mut view = View::new("");
        for _ in 0..20 {
            view.zoom(true);
        }
        assert_eq!(ZOOMS_US[view.zoom], 5_000);
        for _ in 0..20 {
            view.zoom(false);
        }
        assert_eq!(ZOOMS_US[view.zoom], 1_000_000);
        view.pause(&example());
        view.scroll(true);
        assert_eq!(view.paused_us, Some(0));
    }
}
