//! Command lines as ds4-server's users write them.

use super::Ds4Args;
use crate::args::{Cli, Command, ServeArgs};
use crate::models::ModelRef;
use clap::Parser as _;

fn parse(line: &str) -> Result<Box<ServeArgs>, clap::Error> {
    let line = ["andante", "serve"]
        .into_iter()
        .chain(line.split_whitespace());
    Ok(match Cli::try_parse_from(line)?.command {
        Command::Serve(args) => args,
        _ => unreachable!("serve was asked for"),
    })
}

fn served(line: &str) -> Box<ServeArgs> {
    parse(line).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn flags_of_the_same_meaning_have_the_same_names() {
    let args = served(
        "-m model.gguf -c 200000 -n 4096 -t 6 --chdir /tmp --prefill-chunk 2048 --batched-session 3 --mixed-prefill-quantum 128 \
         --host localhost --port 8001 --cors --think-budget 2000 --max-queue 8 --max-active-requests 2 --api-key secret-of-mine \
         --kv-disk-dir kv --kv-disk-space-mb 4096",
    );
    assert!(matches!(&args.model.model, ModelRef::Path(path) if path.ends_with("model.gguf")));
    assert_eq!(args.model.compute.threads, Some(6));
    assert_eq!((args.engine.ctx, args.engine.sessions), (Some(200_000), 3));
    assert_eq!(args.engine.max_active, Some(2));
    assert_eq!(args.engine.prefill_chunk, 2048);
    assert_eq!(args.engine.mixed_prefill_quantum, Some(128));
    assert_eq!(args.engine.max_queue, 8);
    assert_eq!((args.tokens, args.think_budget), (Some(4096), Some(2000)));
    assert_eq!(args.chdir, Some("/tmp".into()));
    assert_eq!(args.host, std::net::IpAddr::from([127, 0, 0, 1]));
    assert_eq!((args.port, args.access.cors), (8001, true));
    assert_eq!(args.access.api_key.len(), 1);
    assert_eq!(args.kv.kv_disk_dir, Some("kv".into()));
    assert_eq!(args.kv.kv_disk_space_mb, 4096);
    assert_eq!(args.ds4, Ds4Args::default());
}

#[test]
fn a_flag_that_does_nothing_here_is_answered_by_a_line() {
    let args = served(
        "--quality --warm-weights --power 60 --power 40 --mtp draft.gguf --mtp-draft 2 --dspark --kv-cache-min-tokens 512 \
         --kv-cache-reject-different-quant --disable-exact-dsml-tool-replay --tool-memory-max-ids 100000 --cpu --backend cpu",
    );
    let named: Vec<&str> = args
        .ds4
        .notes
        .iter()
        .map(|note| note.split_once(": ").expect("a reason").0)
        .collect();
    let expected = [
        "--quality",
        "--warm-weights",
        "--power",
        "--mtp",
        "--mtp-draft",
        "--dspark",
        "--kv-cache-min-tokens",
        "--disable-exact-dsml-tool-replay",
        "--tool-memory-max-ids",
    ];
    assert_eq!(named, expected);
    assert!(!args.ds4.streams_weights);
    assert!(served("--power 100 --mtp").ds4.notes.len() == 1);
    let streams = served("--ssd-streaming --ssd-streaming-cache-experts 40GB");
    assert!(streams.ds4.streams_weights && streams.ds4.notes.len() == 2);
}

#[test]
fn what_cannot_be_had_is_refused_by_name() {
    for (line, why) in [
        (
            "--metal",
            "--metal cannot be had here: this program computes on the processor",
        ),
        ("--backend cuda", "--backend cannot be had here"),
        ("--gpu-vram 20,20", "--gpu-vram cannot be had here"),
        ("--power 0", "1 to 100"),
        ("--power full", "1 to 100"),
        ("--vision eyes.gguf", "images are not read"),
        (
            "--dir-steering-file d.bin --dir-steering-ffn 0.8",
            "activations are not steered",
        ),
        (
            "--role worker --coordinator 10.0.0.1 9000",
            "one process serves the whole model",
        ),
        ("--simulate-used-memory 40GB", "MemoryMax"),
    ] {
        let error = parse(line).expect_err(line).to_string();
        assert!(error.contains(why), "{line}: {error}");
    }
    assert!(parse("--ssd-streaming-warm").is_err(), "no flag of theirs");
}
