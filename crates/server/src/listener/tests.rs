//! The same answers over TLS and a UNIX socket.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;
use crate::fixture::Fixture;
use crate::{Phase, serve};

/// For `localhost`, signed by itself, until 2126:
/// `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -subj /CN=localhost
/// -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE -keyout localhost.key -out localhost.crt`
const CERTIFICATE: &[u8] = include_bytes!("../../tests/data/localhost.crt");
const KEY: &[u8] = include_bytes!("../../tests/data/localhost.key");

/// Says hello over `stream` and gives what comes back.
async fn health(mut stream: impl Connection) -> String {
    let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut reply = Vec::new();
    // A TLS connection may end without its last words.
    let _ = stream.read_to_end(&mut reply).await;
    String::from_utf8(reply).unwrap()
}

fn client() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(CERTIFICATE) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn tls_is_spoken_and_nothing_else_is_understood() {
    let fixture = Fixture::new();
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let identity = TlsIdentity::from_pem(CERTIFICATE, KEY).unwrap();
    let (phase, receiver) = watch::channel(Phase::Serve);
    let listener = Listener::from(socket).with_tls(identity);
    let serving = tokio::spawn(serve(listener, fixture.server.clone(), receiver));
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let secure = client().connect(name, stream).await.unwrap();
    assert!(health(secure).await.starts_with("HTTP/1.1 200"));
    // Plain HTTP gets no answer in plain text.
    let plain = TcpStream::connect(address).await.unwrap();
    assert!(!health_bytes(plain).await.starts_with(b"HTTP"));
    phase.send(Phase::Drain).unwrap();
    serving.await.unwrap();
}

async fn health_bytes(mut stream: TcpStream) -> Vec<u8> {
    stream
        .write_all(b"GET /health HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply).await;
    reply
}

#[tokio::test]
async fn a_unix_socket_serves_too_and_leaves_its_path_to_the_next_server() {
    let fixture = Fixture::new();
    let name = format!(
        "andante-{}-{}.sock",
        std::process::id(),
        fixture.server.unique_id("")
    );
    let path = std::env::temp_dir().join(name);
    let socket = UnixListener::bind(&path).unwrap();
    let (phase, receiver) = watch::channel(Phase::Serve);
    let serving = tokio::spawn(serve(
        Listener::from(socket),
        fixture.server.clone(),
        receiver,
    ));
    let reply = health(UnixStream::connect(&path).await.unwrap()).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    // A running answer keeps the server, but not the path.
    let mut running = UnixStream::connect(&path).await.unwrap();
    let body = r#"{"prompt": "go on", "ignore_eos": true, "stream": true}"#;
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    running.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(running.read_u8().await.unwrap(), b'H');
    phase.send(Phase::Drain).unwrap();
    while path.exists() {
        tokio::task::yield_now().await;
    }
    let next = Listener::from(UnixListener::bind(&path).unwrap());
    phase.send(Phase::Stop).unwrap();
    serving.await.unwrap();
    assert!(path.exists(), "it is the next server's");
    drop(next);
    assert!(!path.exists());
}

#[test]
fn a_certificate_and_a_key_must_be_there_and_fit() {
    let from = |certificate: &[u8], key: &[u8]| TlsIdentity::from_pem(certificate, key).err();
    assert!(matches!(from(b"", KEY), Some(TlsError::NoCertificate)));
    assert!(matches!(from(CERTIFICATE, b""), Some(TlsError::Key(_))));
    assert!(matches!(
        from(CERTIFICATE, CERTIFICATE),
        Some(TlsError::Key(_))
    ));
    assert!(from(CERTIFICATE, KEY).is_none());
}
