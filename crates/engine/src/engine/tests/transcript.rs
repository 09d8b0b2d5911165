//! Whole sessions, written down for bug reports.

use std::io::{self, Write};

use serde_json::Value;

use super::*;
use crate::transcript::{Transcript, TranscriptConfig};

/// Memory that can be read while it is written to.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Memory {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("text")
    }

    fn lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).expect("a line of JSON");
        self.text().lines().map(parse).collect()
    }
}

fn rig(model: FakeModel, most_bytes: u64) -> (Rig, Memory) {
    let memory = Memory::default();
    let mut rig = Rig::new(model, &small());
    let transcript = Transcript::to(memory.clone(), most_bytes).expect("a thread");
    rig.engine.transcribe_to(transcript);
    (rig, memory)
}

#[test]
fn a_session_is_written_from_its_prompt_to_its_end() {
    let (mut rig, memory) = rig(FakeModel::new(VOCAB).poison(u32::from(b'Z')), u64::MAX);
    let prompt = long(40);
    let answer = rig.answer(&prompt, greedy(20)).text;
    rig.answer(&prompt, greedy(20));
    rig.answer("BAD Z", greedy(20));
    let gone = rig.submit("GONE", greedy(200));
    rig.step();
    drop(gone);
    rig.settle();
    drop(rig);
    let lines = memory.lines();
    assert_eq!(lines[0]["event"], "begin");
    assert_eq!(lines[0]["model"]["architecture"], "fake");
    let of = |id: u64, event: &str| -> Vec<&Value> {
        let wanted = |line: &&Value| line["id"] == id && line["event"] == event;
        lines.iter().filter(wanted).collect()
    };
    let request = of(1, "request")[0];
    assert_eq!(request["prompt"], *prompt);
    assert_eq!(request["tokens"].as_array().expect("tokens").len(), 40);
    assert_eq!(request["sampling"]["temperature"], 0.0);
    let text = |lines: &[&Value]| -> String {
        let text = |line: &&Value| line["text"].as_str().expect("a text").to_owned();
        lines.iter().map(text).collect()
    };
    assert_eq!(text(&of(1, "token")), answer);
    let parts = |lines: Vec<&Value>| -> String {
        let parts = lines
            .iter()
            .flat_map(|line| line["parts"].as_array().expect("parts"));
        parts
            .map(|part| {
                assert_eq!(part[0], "text");
                part[1].as_str().expect("a text").to_owned()
            })
            .collect()
    };
    assert_eq!(parts([of(1, "token"), of(1, "rest")].concat()), answer);
    let end = of(1, "end")[0];
    assert_eq!(
        (&end["outcome"], &end["prompt_tokens"], &end["new_tokens"]),
        (&"length".into(), &40.into(), &20.into())
    );
    assert_eq!(of(1, "found")[0]["cached_tokens"], 0);
    // The same prompt, of which two blocks are whole.
    assert_eq!(of(2, "found")[0]["cached_tokens"], 32);
    let outcome = |id| {
        of(id, "end")[0]["outcome"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    assert_eq!(outcome(3), Failure::NonFiniteLogits.to_string());
    assert_eq!(outcome(4), "cancelled");
    for id in 1..=4 {
        assert_eq!((of(id, "request").len(), of(id, "end").len()), (1, 1));
    }
}

#[test]
fn a_transcript_does_not_grow_beyond_its_size() {
    let (mut rig, memory) = rig(FakeModel::new(VOCAB), 4000);
    for _ in 0..5 {
        assert_eq!(rig.answer("A", greedy(40)).text, letters("A", 40));
    }
    drop(rig);
    let text = memory.text();
    assert!((3000..=4000).contains(&text.len()), "{}", text.len());
    let lines = memory.lines();
    assert_eq!(lines.last().expect("lines")["event"], "full");
}

#[test]
fn a_disk_that_is_too_slow_costs_lines_and_no_time() {
    let memory = Memory::default();
    let (transcript, mut writer) = Transcript::to(memory.clone(), u64::MAX).expect("a thread");
    let stuck = memory.0.lock().expect("no panic");
    for token in 0..20_000 {
        transcript.token(1, token, b"a", &[]);
    }
    drop(stuck);
    while memory.text().lines().count() < 2000 {
        std::thread::yield_now();
    }
    transcript.end(1, "stop", (1, 1));
    writer.finish();
    let lines = memory.lines();
    let lost = lines.iter().filter_map(|line| line["lines"].as_u64());
    let tokens = lines.iter().filter(|line| line["event"] == "token");
    let lost: u64 = lost.sum();
    assert!(lost > 10_000);
    assert_eq!(tokens.count() as u64 + lost, 20_000);
}

#[cfg(unix)]
#[test]
fn a_transcript_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.jsonl");
    std::fs::write(&path, "what was there").expect("it can be written");
    let config = EngineConfig {
        transcript: Some(TranscriptConfig {
            path: path.clone(),
            most_bytes: 1 << 20,
        }),
        ..small()
    };
    let mut rig = Rig::new(FakeModel::new(VOCAB), &config);
    rig.answer("A", greedy(3));
    drop(rig);
    let mode = std::fs::metadata(&path)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).expect("text");
    assert!(text.starts_with("{\"event\":\"begin\""));
}
