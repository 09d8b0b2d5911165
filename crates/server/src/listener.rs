//! Where connections come from: TCP, TLS over TCP, a UNIX socket.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, crypto::ring};

/// A socket that takes connections. A UNIX socket's file goes when it is dropped.
pub struct Listener {
    socket: Socket,
    tls: Option<TlsAcceptor>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection of any kind, ready for HTTP.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

/// A connection that has been accepted and no more.
pub(crate) struct Accepted {
    stream: Stream,
    tls: Option<TlsAcceptor>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Self {
        Self {
            socket: Socket::Tcp(socket),
            tls: None,
        }
    }
}

impl From<UnixListener> for Listener {
    fn from(socket: UnixListener) -> Self {
        Self {
            socket: Socket::Unix(socket),
            tls: None,
        }
    }
}

impl Listener {
    /// The same socket, speaking TLS.
    #[must_use]
    pub fn with_tls(mut self, identity: TlsIdentity) -> Self {
        self.tls = Some(TlsAcceptor::from(identity.0));
        self
    }

    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        let stream = match &self.socket {
            Socket::Tcp(socket) => Stream::Tcp(socket.accept().await?.0),
            Socket::Unix(socket) => Stream::Unix(socket.accept().await?.0),
        };
        Ok(Accepted {
            stream,
            tls: self.tls.clone(),
        })
    }
}

impl Drop for Listener {
    /// Removes a UNIX socket's file while the socket is still open: once it is closed, another server may take the path,
    /// and the file there would be that one's.
    fn drop(&mut self) {
        if let Socket::Unix(socket) = &self.socket
            && let Ok(address) = socket.local_addr()
            && let Some(path) = address.as_pathname()
        {
            // Somebody may have removed it before.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Accepted {
    /// The connection once it is ready for HTTP. A handshake may take so long.
    pub(crate) async fn open(self, handshake: Duration) -> io::Result<Box<dyn Connection>> {
        match self.stream {
            Stream::Unix(stream) => secure(stream, self.tls, handshake).await,
            Stream::Tcp(stream) => {
                // Events are small and each matters to a reader: never wait to fill a packet.
                stream.set_nodelay(true)?;
                secure(stream, self.tls, handshake).await
            }
        }
    }
}

async fn secure(
    stream: impl Connection + 'static,
    tls: Option<TlsAcceptor>,
    handshake: Duration,
) -> io::Result<Box<dyn Connection>> {
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let stream = tokio::time::timeout(handshake, tls.accept(stream)).await??;
    Ok(Box::new(stream))
}

/// A certificate with its private key.
pub struct TlsIdentity(Arc<rustls::ServerConfig>);

/// Why a certificate and a key are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificates are not PEM.
    #[error("the certificate file is not PEM: {0}")]
    Certificate(#[source] pem::Error),
    /// There is no certificate in the file.
    #[error("the certificate file holds no certificate")]
    NoCertificate,
    /// The key is not PEM.
    #[error("the key file holds no private key in PEM: {0}")]
    Key(#[source] pem::Error),
    /// They do not fit each other, or are of a kind that is not supported.
    #[error("the certificate cannot be used: {0}")]
    Rejected(#[from] rustls::Error),
}

impl TlsIdentity {
    /// From the texts of two PEM files: the certificate with those that vouch for it, and its private key.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let certificates = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<Vec<_>, _>>()
            .map_err(TlsError::Certificate)?;
        if certificates.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Key)?;
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(certificates, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

#[cfg(test)]
mod tests;
