//! Texts whose hidden states become one vector: whatever the chunks, the neighbours and the cache.

use andante_model::Pooling;

use super::*;

const TEXT: &str = "some words that are longer than a block of sixteen tokens";

fn rig(pooling: Option<Pooling>) -> Rig {
    let config = EngineConfig { pooling, ..small() };
    Rig::new(FakeModel::new(VOCAB), &config)
}

/// The embedding, and how much of it came from the cache.
fn embed(rig: &mut Rig, text: &str) -> (Vec<f32>, Usage) {
    let text = PromptInput::Text(text.into());
    let request = rig.handle.prepare_embedding(text).expect("it fits");
    let mut stream = rig.handle.submit(request).expect("there is room");
    rig.settle();
    let Some(Event::Embedding(vector)) = stream.try_recv() else {
        panic!("no embedding");
    };
    match stream.try_recv() {
        Some(Event::Finished { usage, .. }) => (vector, usage),
        other => panic!("{other:?} instead of the end"),
    }
}

fn states(text: &str) -> Vec<[f32; 4]> {
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    let upto = 1..=tokens.len();
    upto.map(|len| FakeModel::state(&tokens[..len])).collect()
}

#[test]
fn the_last_state_alone_needs_no_others() {
    let mut rig = rig(None);
    let expected = states(TEXT).pop().expect("a state").to_vec();
    let (vector, usage) = embed(&mut rig, TEXT);
    assert_eq!(vector, expected);
    assert_eq!((usage.cached_tokens, usage.completion_tokens), (0, 0));
    let (vector, usage) = embed(&mut rig, TEXT);
    assert_eq!(vector, expected);
    assert_eq!(usage.cached_tokens as usize, TEXT.len() - 1);
    rig.assert_empty();
    let status = rig.handle.status();
    assert_eq!((status.finished, status.generated_tokens), (2, 0));
}

#[test]
fn a_mean_is_of_all_tokens_in_whatever_parts() {
    let mut rig = rig(Some(Pooling::Mean));
    let states = states(TEXT);
    let mut mean = states[0].to_vec();
    for state in &states[1..] {
        mean.iter_mut().zip(state).for_each(|(sum, x)| *sum += x);
    }
    mean.iter_mut()
        .for_each(|x| *x *= 1.0 / states.len() as f32);
    assert_eq!(embed(&mut rig, TEXT).0, mean);
    // Beside an answer its steps are smaller.
    let request = rig.request("a", Sampling::default());
    let answer = rig.handle.submit(request).expect("there is room");
    rig.step();
    let (vector, usage) = embed(&mut rig, TEXT);
    assert_eq!((vector, usage.cached_tokens), (mean, 0));
    drop(answer);
}

#[test]
fn a_text_has_the_same_vector_whatever_was_said_before() {
    let mut rig = super::on_disk::rig_of_pairs();
    let text = "abba abba abba";
    let before = embed(&mut rig, text).0;
    // The model would spell it in single letters.
    let letters: Vec<u32> = text.bytes().map(u32::from).collect();
    let said = rig
        .handle
        .prepare_text(PromptInput::Tokens(letters.clone()), greedy(3));
    let stream = rig
        .handle
        .submit(said.expect("it fits"))
        .expect("there is room");
    rig.settle();
    drop(stream);
    let prompt = rig.request(text, Sampling::default()).prompt;
    assert_eq!(prompt[..], letters, "prompts are spelt so");
    assert_eq!(embed(&mut rig, text).0, before);
}

#[test]
fn states_that_are_not_numbers_fail() {
    let mut rig = Rig::new(FakeModel::new(VOCAB).poison(u32::from(b'x')), &small());
    let text = PromptInput::Text("a x".into());
    let request = rig.handle.prepare_embedding(text).expect("it fits");
    let mut stream = rig.handle.submit(request).expect("there is room");
    rig.settle();
    let end = Event::Failed(crate::error::Failure::NonFiniteLogits);
    assert_eq!(stream.try_recv(), Some(end));
}
