//! Blocks never overlap, and hold everything.

use super::*;

fn call(id: &str, name: &str) -> Part {
    Part::Call {
        id: id.into(),
        name: name.into(),
    }
}

/// What happened, one word a step.
fn steps(parts: Vec<Part>) -> Vec<String> {
    let mut blocks = Blocks::default();
    let mut steps = Vec::new();
    let mut note = |index: usize, step: Step<'_>| {
        let kind = |block: &Block| match block {
            Block::Text(_) => "text".to_owned(),
            Block::Reasoning(_) => "reasoning".to_owned(),
            Block::Call { name, .. } => name.clone(),
        };
        steps.push(match step {
            Step::Opened(block) => format!("{index} + {}", kind(block)),
            Step::Grew(block, piece) => format!("{index} {} {piece:?}", kind(block)),
            Step::Closed(block) => format!("{index} - {}", kind(block)),
        });
    };
    for part in parts {
        blocks.push(part, &mut note);
    }
    blocks.close(&mut note);
    blocks.close(&mut note);
    steps
}

#[test]
fn one_block_is_open_at_a_time() {
    let parts = vec![
        Part::Text("a".into()),
        Part::Text("b".into()),
        Part::Reasoning("c".into()),
        call("call_1", "f"),
        Part::Arguments("{".into()),
        Part::Arguments("}".into()),
        call("call_2", "g"),
        Part::Text("d".into()),
    ];
    let expected = [
        "0 + text",
        "0 text \"a\"",
        "0 text \"b\"",
        "0 - text",
        "1 + reasoning",
        "1 reasoning \"c\"",
        "1 - reasoning",
        "2 + f",
        "2 f \"{\"",
        "2 f \"}\"",
        "2 - f",
        "3 + g",
        "3 - g",
        "4 + text",
        "4 text \"d\"",
        "4 - text",
    ];
    assert_eq!(steps(parts), expected);
}

#[test]
fn empty_pieces_open_nothing() {
    let parts = vec![
        Part::Text(String::new()),
        Part::Reasoning(String::new()),
        call("call_1", "f"),
        Part::Arguments(String::new()),
    ];
    assert_eq!(steps(parts), ["0 + f", "0 - f"]);
}

#[test]
fn a_whole_answer_is_the_blocks_that_closed() {
    let parts = vec![
        Part::Reasoning("hm".into()),
        call("call_1", "f"),
        Part::Arguments("{\"a\":1}".into()),
    ];
    let call = Block::Call {
        id: "call_1".into(),
        name: "f".into(),
        arguments: "{\"a\":1}".into(),
    };
    assert_eq!(collect(parts), [Block::Reasoning("hm".into()), call]);
}
