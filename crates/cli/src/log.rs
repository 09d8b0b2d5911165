//! The log of `serve` on standard error: lines for people, or objects of JSON for programs.

use std::fmt;
use std::io::IsTerminal as _;

use andante_engine::REQUEST_LOG;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LogFormat;
use crate::output::{OF_TEXT, visible};

/// Begins to log.
pub(crate) fn init(format: LogFormat) {
    let is_terminal = std::io::stderr().is_terminal();
    subscriber(format, is_terminal, std::io::stderr).init();
}

fn subscriber<W>(format: LogFormat, ansi: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_ansi(ansi)
        .with_writer(writer);
    match format {
        LogFormat::Text => Box::new(builder.event_format(Text).finish()),
        LogFormat::Json => Box::new(builder.json().flatten_event(true).finish()),
    }
}

/// Time, level where it is no plain note, message, and the fields that the message does not hold.
struct Text;

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        SystemTime.format_time(&mut writer)?;
        let metadata = event.metadata();
        write!(writer, " {:>5} ", metadata.level())?;
        let mut line = Line {
            message: String::new(),
            fields: String::new(),
        };
        event.record(&mut line);
        writer.write_str(&visible(&line.message, OF_TEXT))?;
        // A request's line says what its fields do.
        if metadata.target() != REQUEST_LOG {
            writer.write_str(&line.fields)?;
        }
        writer.write_char('\n')
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields += &format!(" {}={value:?}", field.name());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // As the debug form, which holds no line breaks: a client's words cannot look like another line.
        self.record_debug(field, &value);
    }
}

#[cfg(test)]
mod tests;
