//! The hub is played by a small HTTP server on loopback that can break off, lie and refuse.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use sha2::{Digest, Sha256};

use super::{ModelRef, Store};

/// What the mock hub serves and how it misbehaves.
#[derive(Clone)]
struct Mock {
    content: Vec<u8>,
    etag: String,
    /// The first GET ends after this many bytes.
    breaks_at: Option<usize>,
    status: u16,
}

impl Mock {
    fn new(content: &[u8]) -> Self {
        let sha: String = Sha256::digest(content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            content: content.to_vec(),
            etag: sha,
            breaks_at: None,
            status: 200,
        }
    }

    /// Starts serving; the log holds one line per request: method, path, range.
    fn start(mut self) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&log);
        thread::spawn(move || {
            for stream in listener.incoming() {
                self.answer(stream.unwrap(), &seen);
            }
        });
        (address, log)
    }

    fn answer(&mut self, mut stream: TcpStream, log: &Mutex<Vec<String>>) {
        let mut lines = BufReader::new(stream.try_clone().unwrap())
            .lines()
            .map(|line| line.unwrap());
        let Some(request) = lines.next() else { return };
        let mut range = None;
        for line in lines.take_while(|line| !line.is_empty()) {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
                range = value.trim_end_matches('-').parse::<usize>().ok();
            }
        }
        let (method, path) = request.rsplit_once(' ').unwrap().0.split_once(' ').unwrap();
        log.lock()
            .unwrap()
            .push(format!("{method} {path} {range:?}"));
        let start = range.unwrap_or(0);
        let status = if self.status == 200 && range.is_some() {
            206
        } else {
            self.status
        };
        let body = if self.status == 200 {
            &self.content[start..]
        } else {
            b"no"
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nx-linked-etag: \"{}\"\r\nx-linked-size: {}\r\nconnection: close\r\n\r\n",
            body.len(),
            self.etag,
            self.content.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        if method == "GET" {
            let end = self.breaks_at.take().unwrap_or(body.len());
            // The client may have left already: that is its right.
            let _ = stream.write_all(&body[..end]);
        }
    }
}

fn store(hub: &str) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store {
        folder: folder.path().join("models"),
        hub: hub.to_owned(),
        token: None,
    };
    (folder, store)
}

#[test]
fn a_file_is_fetched_once_and_kept() {
    let content: Vec<u8> = (0..100_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let (hub, log) = Mock::new(&content).start();
    let (_folder, store) = store(&hub);
    let model: ModelRef = "hf:owner/repo@v1/dir/model.gguf".parse().unwrap();
    let path = store.fetch(&model).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);
    assert_eq!(store.fetch(&model).unwrap(), path);
    let url = "/owner/repo/resolve/v1/dir/model.gguf";
    assert_eq!(
        *log.lock().unwrap(),
        [format!("HEAD {url} None"), format!("GET {url} None")]
    );
}

#[test]
fn a_broken_transfer_goes_on_where_it_broke() {
    let content: Vec<u8> = (0..300_000u32).map(|i| (i % 253) as u8).collect();
    let (hub, log) = Mock {
        breaks_at: Some(120_000),
        ..Mock::new(&content)
    }
    .start();
    let (_folder, store) = store(&hub);
    let path = store.fetch(&"hf:o/r/m.gguf".parse().unwrap()).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
    assert_eq!(
        log.lock().unwrap().last().unwrap(),
        "GET /o/r/resolve/main/m.gguf Some(120000)"
    );
}

#[test]
fn a_damaged_file_is_refused_and_removed() {
    let (hub, _) = Mock {
        etag: "0".repeat(64),
        ..Mock::new(b"damaged")
    }
    .start();
    let (_folder, store) = store(&hub);
    let error = store
        .fetch(&"hf:o/r/m.gguf".parse().unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("damaged") && error.contains("SHA-256"),
        "{error}"
    );
    assert!(!store.folder.join("hub/o/r/main/m.part").exists());
}

#[test]
fn a_refusal_is_final_and_says_what_to_do() {
    let (hub, log) = Mock {
        status: 404,
        ..Mock::new(b"")
    }
    .start();
    let (_folder, store) = store(&hub);
    let error = store
        .fetch(&"hf:o/r/m.gguf".parse().unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("404") && error.contains("check owner"),
        "{error}"
    );
    assert_eq!(log.lock().unwrap().len(), 1);
}

#[test]
fn all_files_of_a_split_model_are_fetched() {
    let (hub, log) = Mock::new(b"part").start();
    let (_folder, store) = store(&hub);
    let path = store
        .fetch(&"hf:o/r/m-00001-of-00002.gguf".parse().unwrap())
        .unwrap();
    assert!(path.ends_with("m-00001-of-00002.gguf"));
    let gets = log
        .lock()
        .unwrap()
        .iter()
        .filter(|line| line.starts_with("GET"))
        .count();
    assert_eq!(gets, 2);
}

#[test]
fn names_that_are_no_models_are_refused() {
    for wrong in [
        "nosuch",
        "hf:owner",
        "hf:owner/repo",
        "hf:o/../m.gguf",
        "hf:o/r/../../m.gguf",
        "hf:o/r@/m.gguf",
    ] {
        assert!(wrong.parse::<ModelRef>().is_err(), "{wrong}");
    }
    assert!(matches!("smollm2".parse().unwrap(), ModelRef::Known(_)));
    assert!(matches!("./x/y.gguf".parse().unwrap(), ModelRef::Path(_)));
}
