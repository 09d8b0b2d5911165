//! Words to systemd, as sd_notify(3) has them: datagrams to the socket that `NOTIFY_SOCKET` names. Where there is none, nothing is
//! said.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// A way to whoever started the program.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear that all is well.
    watchdog: Option<Duration>,
}

impl Notify {
    /// By the variables `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
    pub(crate) fn from_environment() -> Self {
        let var = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let socket = var("NOTIFY_SOCKET").and_then(|name| {
            let connected = connect(&name);
            connected
                .inspect_err(|error| tracing::warn!("NOTIFY_SOCKET: cannot reach {name}: {error}"))
                .ok()
        });
        let own_id = std::process::id().to_string();
        let for_others = var("WATCHDOG_PID").is_some_and(|id| id != own_id);
        let us = var("WATCHDOG_USEC").filter(|_| !for_others);
        let us = us.and_then(|us| us.parse().ok()).filter(|&us| us > 0);
        Self {
            socket,
            watchdog: us.map(Duration::from_micros),
        }
    }

    /// Requests are taken from now on.
    pub(crate) fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={status}"));
    }

    /// It ends.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// All is well.
    pub(crate) fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    /// How often [`Self::alive`] is wanted at least, if at all.
    pub(crate) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    fn say(&self, words: &str) {
        if let Some(socket) = &self.socket {
            // Who does not listen has said so by that.
            _ = socket.send(words.as_bytes());
        }
    }
}

/// A socket by its path, or by its name after an `@` where it has no path.
fn connect(name: &str) -> io::Result<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_at_a_socket_with_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let heard = UnixDatagram::bind(&path).unwrap();
        let notify = Notify {
            socket: Some(connect(path.to_str().unwrap()).unwrap()),
            watchdog: None,
        };
        notify.ready("serving smollm2");
        notify.alive();
        notify.stopping();
        let mut buffer = [0; 100];
        for expected in [
            "READY=1\nSTATUS=serving smollm2",
            "WATCHDOG=1",
            "STOPPING=1",
        ] {
            let count = heard.recv(&mut buffer).unwrap();
            assert_eq!(std::str::from_utf8(&buffer[..count]).unwrap(), expected);
        }
        Notify::default().ready("nobody hears it");
    }

    #[test]
    fn a_socket_may_have_a_name_alone() {
        let name = format!("andante-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let heard = UnixDatagram::bind_addr(&address).unwrap();
        let socket = connect(&format!("@{name}")).unwrap();
        socket.send(b"READY=1").unwrap();
        let mut buffer = [0; 100];
        assert_eq!(heard.recv(&mut buffer).unwrap(), 7);
    }
}
