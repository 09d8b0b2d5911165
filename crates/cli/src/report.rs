//! Reports of what must not happen: a panic, a model that fails, a step that never ends. A file that its owner can read and send.

use std::backtrace::Backtrace;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use andante_engine::EngineHandle;

/// Reports of one process: the first ones say it all.
const MOST: u32 = 5;

/// Writes reports into a folder.
#[derive(Clone)]
pub(crate) struct Reporter(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    written: AtomicU32,
    /// Once it runs.
    engine: OnceLock<EngineHandle>,
}

impl Reporter {
    /// In `ANDANTE_REPORTS`, or else where systemd (`STATE_DIRECTORY`) or the user's desktop (`XDG_STATE_HOME`) keep state.
    pub(crate) fn from_environment() -> Self {
        let var = |name| std::env::var_os(name).filter(|text| !text.is_empty());
        let folder = var("ANDANTE_REPORTS")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(var("STATE_DIRECTORY")?).join("reports")))
            .or_else(|| Some(PathBuf::from(var("XDG_STATE_HOME")?).join("andante/reports")))
            .or_else(|| Some(PathBuf::from(var("HOME")?).join(".local/state/andante/reports")));
        Self::to(folder.unwrap_or_else(|| std::env::temp_dir().join("andante-reports")))
    }

    fn to(folder: PathBuf) -> Self {
        Self(Arc::new(Inner {
            folder,
            written: AtomicU32::new(0),
            engine: OnceLock::new(),
        }))
    }

    /// Reports of this engine from now on.
    pub(crate) fn engine(&self, engine: EngineHandle) {
        _ = self.0.engine.set(engine);
    }

    /// Reports every panic of this process from now on, beside what is said of it anyway.
    pub(crate) fn hook(&self) {
        let reporter = self.clone();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            before(panic);
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("unnamed").to_owned();
            reporter.tell(&format!("panic of thread {name}: {panic}"));
        }));
    }

    /// Writes a report and says where.
    pub(crate) fn tell(&self, what: &str) {
        match self.write(what) {
            Ok(Some(path)) => tracing::error!(
                "a report of this was written to {}; it holds settings and figures, no conversations (a panic's message may quote \
                 some characters): please look it over and send it along when you report the bug",
                path.display()
            ),
            Ok(None) => {}
            Err(error) => tracing::error!(
                "no report could be written to {}: {error}",
                self.0.folder.display()
            ),
        }
    }

    /// `None` when there have been enough.
    fn write(&self, what: &str) -> io::Result<Option<PathBuf>> {
        let number = self.0.written.fetch_add(1, Ordering::Relaxed);
        if number >= MOST {
            return Ok(None);
        }
        fs::create_dir_all(&self.0.folder)?;
        let now = jiff::Timestamp::now();
        let stamp = now.strftime("%Y%m%dT%H%M%SZ");
        let name = format!("{stamp}-{}-{number}.txt", std::process::id());
        let path = self.0.folder.join(name);
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let trace = Backtrace::force_capture();
        let text = text(what, self.0.engine.get());
        write!(file, "time: {now}\n{text}\n{trace}\n")?;
        Ok(Some(path))
    }
}

/// What a report says beside time and place.
fn text(what: &str, engine: Option<&EngineHandle>) -> String {
    let mut text = format!(
        "andante {}, {} {}\n{what}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    let Some(engine) = engine else {
        text += "no model was loaded yet\n";
        return text;
    };
    let info = engine.info();
    let facts = [
        (
            "model",
            format!(
                "{}, {} weights in {} bytes",
                info.architecture, info.parameters, info.weight_bytes
            ),
        ),
        ("backend", info.backend.clone()),
        ("KV", info.kv_format.clone()),
    ];
    for (name, fact) in facts {
        _ = writeln!(text, "{name}: {fact}");
    }
    // Whoever panics may be just the one that holds it.
    if let Some(status) = engine.try_status() {
        _ = writeln!(
            text,
            "health: {:?}\nscheduler: {}\nrequests: {} finished, {} failed, {} cancelled, {} refused\nfigures: {:?}",
            status.health,
            status.config,
            status.finished,
            status.failed,
            status.cancelled,
            status.refused,
            status.scheduler
        );
        text += "last steps, oldest first:\n";
        for step in &status.recent {
            _ = writeln!(text, "  {step:?}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_report_is_private_and_names_what_happened() {
        let folder = tempfile::tempdir().unwrap();
        let reporter = Reporter::to(folder.path().join("reports"));
        let path = reporter
            .write("the model failed: no memory")
            .unwrap()
            .unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(concat!("andante ", env!("CARGO_PKG_VERSION"))),
            "{text}"
        );
        assert!(text.contains("\nthe model failed: no memory\n"), "{text}");
        assert!(text.contains("no model was loaded yet"), "{text}");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_crash_loop_does_not_fill_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let reporter = Reporter::to(folder.path().to_owned());
        for _ in 0..20 {
            reporter.tell("again");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MOST as usize);
    }
}
