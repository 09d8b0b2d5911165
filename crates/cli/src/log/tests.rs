//! What is written, but for the time.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::*;

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A request's line, a note with fields, one with a client's words in it.
fn written(format: LogFormat) -> Vec<String> {
    let kept = Kept::default();
    let writer = kept.clone();
    let subscriber = subscriber(format, false, move || writer.clone());
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(target: REQUEST_LOG, event = "finished", prompt_tokens = 812, "req_1 chat: ctx 768..812 | {}", "stop");
        tracing::warn!(status = 404, path = ?"/a\nb", key = "ann", "refused");
    });
    let bytes = kept.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn text_has_a_line_for_each_event() {
    let lines = written(LogFormat::Text);
    let untimed: Vec<&str> = lines
        .iter()
        .map(|line| line.split_once("Z ").expect("a time").1)
        .collect();
    assert_eq!(
        untimed,
        [
            " INFO req_1 chat: ctx 768..812 | stop",
            r#" WARN refused status=404 path="/a\nb" key="ann""#
        ]
    );
}

#[test]
fn json_has_an_object_for_each_event() {
    let lines = written(LogFormat::Json);
    let objects: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(objects.len(), 2);
    let request = &objects[0];
    assert_eq!(request["message"], "req_1 chat: ctx 768..812 | stop");
    assert_eq!(request["event"], "finished");
    assert_eq!(request["prompt_tokens"], 812);
    assert_eq!(request["level"], "INFO");
    assert!(request["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        (&objects[1]["status"], &objects[1]["key"]),
        (&404.into(), &"ann".into())
    );
}
