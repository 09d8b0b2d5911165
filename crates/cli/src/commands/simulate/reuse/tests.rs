//! The bounds by hand, and our scheduler against them.

use andante_sched::{Config, Priority};

use super::super::world::{self, Machine, Ours};
use super::*;
use crate::trace::Prompt;

fn request(arrival_us: u64, tokens: Vec<u32>) -> Request {
    Request {
        arrival_us,
        prompt: Prompt::Tokens(tokens),

        answer: 40,
        tenant: 0,
        priority: Priority::Normal,
    }
}

/// Whole blocks, each of one number, and some tokens more.
fn blocks(names: &[u32], more: u32) -> Vec<u32> {
    let tokens = names.iter().flat_map(|&name| [name; BLOCK_TOKENS as usize]);
    tokens.chain((0..more).map(|i| 1_000_000 + i)).collect()
}

fn reuse(prompts: &[Vec<u32>], most: u32) -> (u64, u64) {
    let requests: Vec<_> = prompts
        .iter()
        .map(|prompt| request(0, prompt.clone()))
        .collect();
    let reuse = bounds(&requests, most);
    let block = u64::from(BLOCK_TOKENS);
    assert!(reuse.unlimited.is_multiple_of(block));
    (reuse.unlimited / block, reuse.least_recently_used / block)
}

#[test]
fn a_prompt_takes_over_the_longest_chain_of_whole_blocks() {
    let prompts = [
        blocks(&[1, 2, 3], 5),
        blocks(&[1, 2, 4], 0),
        // Equal blocks after others are others.
        blocks(&[2, 3], 1),
        blocks(&[1, 2, 3], 9),
        // The last token is always computed, so of a prompt of whole blocks one block is.
        blocks(&[1, 2, 3], 0),
    ];
    assert_eq!(reuse(&prompts, 100).0, 2 + 3 + 2);
}

#[test]
fn with_little_room_the_least_recently_used_goes_and_beginnings_last() {
    let (a, b) = (blocks(&[1, 2, 3], 1), blocks(&[4, 5, 6], 1));
    let prompts = [a.clone(), b.clone(), a.clone(), b, a];
    // The answer fills a block, and its end needs another.
    assert_eq!(reuse(&prompts, 8), (9, 9));
    // Two blocks of the other stay each time, but the third is needed for the new one.
    assert_eq!(reuse(&prompts, 7).1, 6);
    assert_eq!(reuse(&prompts, 5).1, 0);
}

/// Conversations that grow by turns, share a system prompt, and come back after others.
fn conversations() -> Vec<Request> {
    let mut seed = 7_u64;
    let mut random = move |below: u32| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u32 % below
    };
    let mut texts: Vec<Vec<u32>> = (0..12).map(|_| blocks(&[9, 8, 7], 3)).collect();
    (0..300_u64)
        .map(|turn| {
            let text = &mut texts[random(12) as usize];
            let more = 20 + random(200);
            text.extend((0..more).map(|_| random(1000)));
            // So far apart that each is over before the next comes.
            let prompt = request(turn * 100_000_000, text.clone());
            if text.len() > 3000 {
                text.truncate(99);
            }
            prompt
        })
        .collect()
}

fn taken_over(requests: &[Request], kv_blocks: u32) -> u64 {
    let base = Config::new(2, kv_blocks, BLOCK_TOKENS);
    let machine = Machine {
        cost: base.cost,
        noise_permille: 0,
        seed: 1,
    };
    let mut server = Ours::new(base, true);
    let run = world::run(&mut server, requests, machine);
    let cached = run
        .requests
        .iter()
        .map(|request| request.cached.expect("all began"));
    cached.map(u64::from).sum()
}

#[test]
fn nothing_that_was_computed_and_still_fits_is_computed_again() {
    let requests = conversations();
    let reuse = bounds(&requests, u32::MAX);
    assert!(reuse.unlimited > 100_000, "the conversations share much");
    assert_eq!(reuse.unlimited, reuse.least_recently_used);
    assert_eq!(taken_over(&requests, 50_000), reuse.unlimited);
}

#[test]
fn with_little_memory_no_less_is_taken_over_than_by_dropping_the_least_recently_used() {
    let requests = conversations();
    for blocks in [100, 150, 250, 400, 600] {
        let reuse = bounds(&requests, blocks);
        let ours = taken_over(&requests, blocks);
        assert!(
            ours >= reuse.least_recently_used,
            "{blocks} blocks: {ours} of {}",
            reuse.least_recently_used
        );
        assert!(ours <= reuse.unlimited);
    }
}
