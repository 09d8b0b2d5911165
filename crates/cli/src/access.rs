//! How the server is reached and by whom: its socket, its certificate, its keys.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use andante_server::{ApiKey, Listener, TlsIdentity};
use anyhow::{Context, Result, ensure};
use tokio::net::{TcpListener, UnixListener};

use crate::args::{AccessArgs, ServeArgs};

/// The environment variable with one more key.
const KEY_VARIABLE: &str = "ANDANTE_API_KEY";

/// A socket that is bound, and its address as a person writes it.
pub(crate) struct Bound {
    pub(crate) listener: Listener,
    pub(crate) address: String,
}

/// Binds what the arguments say.
pub(crate) async fn bind(args: &ServeArgs) -> Result<Bound> {
    if let Some(path) = &args.unix_socket {
        return bind_unix(path);
    }
    let identity = identity(&args.access)?;
    let address = SocketAddr::new(args.host, args.port);
    let socket = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; --port chooses another port"))?;
    let address = socket.local_addr()?;
    let listener = Listener::from(socket);
    let (scheme, listener) = match identity {
        Some(identity) => ("https", listener.with_tls(identity)),
        None => ("http", listener),
    };
    Ok(Bound {
        listener,
        address: format!("{scheme}://{address}"),
    })
}

fn bind_unix(path: &Path) -> Result<Bound> {
    // What a server left behind that was killed is in the way; anything else is somebody's.
    if let Ok(there) = fs::symlink_metadata(path) {
        ensure!(
            there.file_type().is_socket(),
            "{} is there and no socket",
            path.display()
        );
        ensure!(
            std::os::unix::net::UnixStream::connect(path)
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused),
            "a server listens on {}",
            path.display()
        );
        fs::remove_file(path)?;
    }
    let socket =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    Ok(Bound {
        listener: Listener::from(socket),
        address: format!("unix:{}", path.display()),
    })
}

fn identity(args: &AccessArgs) -> Result<Option<TlsIdentity>> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        return Ok(None);
    };
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let identity = TlsIdentity::from_pem(&read(certificate)?, &read(key)?);
    Ok(Some(identity.with_context(|| {
        format!("{} with {}", certificate.display(), key.display())
    })?))
}

/// All keys: of the arguments, the file and the environment.
pub(crate) fn keys(args: &AccessArgs) -> Result<Vec<ApiKey>> {
    let mut keys = args.api_key.clone();
    if let Some(path) = &args.api_key_file {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let read = ApiKey::parse_lines(&text).with_context(|| path.display().to_string())?;
        // A server that was to be locked must not stand open.
        ensure!(!read.is_empty(), "{} holds no key", path.display());
        keys.extend(read);
    }
    if let Some(text) = key_of_environment() {
        keys.push(ApiKey::parse(&text).context(KEY_VARIABLE)?);
    }
    Ok(keys)
}

/// The key that the environment holds, for the server and for who talks to it.
pub(crate) fn key_of_environment() -> Option<String> {
    std::env::var(KEY_VARIABLE).ok()
}

#[cfg(test)]
mod tests;
