//! The line to the letter.

use super::*;

#[test]
fn a_model_without_running_state() {
    let memory = Memory {
        sessions: 4,
        context: 8192,
        blocks: 256,
        block_bytes: 2_949_120,
        block_tokens: 128,
        format: "f16, avx512",
        states: 0,
        state_bytes: 0,
    };
    let line = Startup {
        name: "smollm2",
        load_time: Duration::from_millis(456),
        memory,
        address: "http://127.0.0.1:8000",
    };
    assert_eq!(
        line.to_string(),
        "serving smollm2, loaded in 0.46 s, KV of 4 sessions of 8192 tokens in 720 MiB (f16, 22.5 KiB a token; what they \
         leave free keeps prefixes), on http://127.0.0.1:8000"
    );
}

#[test]
fn running_states_are_part_of_the_memory() {
    let memory = Memory {
        sessions: 3,
        context: 200_000,
        blocks: 4689,
        block_bytes: 1_761_280,
        block_tokens: 128,
        format: "f32 records (f16, avx512)",
        states: 12,
        state_bytes: 23_453_696,
    };
    assert_eq!(
        memory.to_string(),
        "KV of 3 sessions of 200000 tokens in 7877 MiB (f32 records, 13.4 KiB a token; what they leave free keeps prefixes), \
         12 running states of 22.4 MiB in 269 MiB"
    );
}
