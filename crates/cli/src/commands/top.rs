//! `andante top`: what a server does, live: every sequence a lane, every step a column, rates and waits above.

mod feed;
mod picture;
mod view;

use std::io::{self, IsTerminal, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, terminal};

use crate::access;
use crate::args::TopArgs;
use crate::output::print;
use crate::peer::Peer;
use feed::Feed;
use picture::Picture;
use view::View;

/// How often the screen is drawn anew.
const FRAME: Duration = Duration::from_millis(200);

/// How often a line is printed where there is no screen.
const LINE: Duration = Duration::from_secs(1);

/// Watches until `q`, Ctrl-C or the server's end.
pub(crate) fn run(args: &TopArgs) -> Result<()> {
    let key = args.key.clone().or_else(access::key_of_environment);
    let feed = Feed::open(&Peer::new(&args.url, key))?;
    if io::stdout().is_terminal() {
        let screen = Screen::open()?;
        let result = watch(&feed, &screen);
        drop(screen);
        result
    } else {
        tell(&feed)
    }
}

fn watch(feed: &Feed, screen: &Screen) -> Result<()> {
    let (mut picture, mut view) = (Picture::default(), View::new(feed.base()));
    loop {
        let alive = feed.take(&mut picture)?;
        screen.show(&view.draw(&picture, terminal::size()?))?;
        if !alive {
            return Ok(());
        }
        let until = Instant::now() + FRAME;
        while event::poll(until.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && !press(key, &picture, &mut view)
            {
                return Ok(());
            }
        }
    }
}

/// False where that key ends the program.
fn press(key: KeyEvent, picture: &Picture, view: &mut View) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char(' ' | 'p') => view.pause(picture),
        KeyCode::Char('+' | '=') => view.zoom(true),
        KeyCode::Char('-') => view.zoom(false),
        KeyCode::Left => view.scroll(true),
        KeyCode::Right => view.scroll(false),
        _ => {}
    }
    true
}

/// One line a second, for logs.
fn tell(feed: &Feed) -> Result<()> {
    let mut picture = Picture::default();
    while feed.take(&mut picture)? {
        print(format_args!("{}\n", view::line(&picture)))?;
        std::thread::sleep(LINE);
    }
    Ok(())
}

/// The whole terminal, given back when dropped.
struct Screen;

impl Screen {
    fn open() -> Result<Self> {
        terminal::enable_raw_mode().context("cannot use this terminal")?;
        let screen = Self;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    fn show(&self, lines: &[view::Line]) -> Result<()> {
        // In one piece, each line over the one that was there: nothing flickers.
        let mut frame = String::from("\x1b[H");
        for (index, line) in lines.iter().enumerate() {
            let end = if index + 1 < lines.len() {
                "\x1b[K\r\n"
            } else {
                "\x1b[K"
            };
            frame.push_str(&format!("{line}{end}"));
        }
        // The screen may have been smaller.
        frame.push_str("\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(frame.as_bytes())?;
        Ok(out.flush()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to hear that this fails.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
