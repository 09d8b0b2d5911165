//! An answer's parts as a row of blocks, of which one is open at a time: what the Messages and the Responses API stream.

use andante_text::Part;

/// A stretch of the answer of one kind, as far as it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block {
    Text(String),
    Reasoning(String),
    Call {
        id: String,
        name: String,
        /// JSON text, or what the model wrote in its place.
        arguments: String,
    },
}

/// What happened to a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    Opened(&'a Block),
    /// This was added to it.
    Grew(&'a Block, &'a str),
    Closed(&'a Block),
}

/// The row under construction.
#[derive(Default)]
pub(super) struct Blocks {
    open: Option<Block>,
    /// Place of the open block, or of the next one.
    index: usize,
}

impl Blocks {
    /// Adds a piece of the answer; `each` hears what that means for the blocks, with their places in the row.
    pub(super) fn push(&mut self, part: Part, each: &mut impl FnMut(usize, Step<'_>)) {
        let text = match part {
            Part::Text(text) | Part::Reasoning(text) | Part::Arguments(text) if text.is_empty() => {
                return;
            }
            Part::Call { id, name } => {
                self.close(each);
                let arguments = String::new();
                let call = Block::Call {
                    id,
                    name,
                    arguments,
                };
                self.open(call, each);
                return;
            }
            Part::Text(text) => {
                if !matches!(self.open, Some(Block::Text(_))) {
                    self.close(each);
                    self.open(Block::Text(String::new()), each);
                }
                text
            }
            Part::Reasoning(text) => {
                if !matches!(self.open, Some(Block::Reasoning(_))) {
                    self.close(each);
                    self.open(Block::Reasoning(String::new()), each);
                }
                text
            }
            Part::Arguments(text) => text,
        };
        let Some(block) = &mut self.open else {
            debug_assert!(false, "arguments without a call");
            return;
        };
        match block {
            Block::Text(body) | Block::Reasoning(body) => body.push_str(&text),
            Block::Call { arguments, .. } => arguments.push_str(&text),
        }
        each(self.index, Step::Grew(block, &text));
    }

    /// Closes the block that is open, if one is.
    pub(super) fn close(&mut self, each: &mut impl FnMut(usize, Step<'_>)) {
        if let Some(block) = self.open.take() {
            each(self.index, Step::Closed(&block));
            self.index += 1;
        }
    }

    fn open(&mut self, block: Block, each: &mut impl FnMut(usize, Step<'_>)) {
        each(self.index, Step::Opened(&block));
        self.open = Some(block);
    }
}

/// The blocks of a whole answer.
pub(super) fn collect(parts: Vec<Part>) -> Vec<Block> {
    let mut blocks = Blocks::default();
    let mut row = Vec::new();
    let mut keep = |_, step: Step<'_>| {
        if let Step::Closed(block) = step {
            row.push(block.clone());
        }
    };
    for part in parts {
        blocks.push(part, &mut keep);
    }
    blocks.close(&mut keep);
    row
}

#[cfg(test)]
mod tests;
