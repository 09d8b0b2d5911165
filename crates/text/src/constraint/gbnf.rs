//! GBNF, llama.cpp's grammar format, translated to Lark (<https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md>).
//!
//! GBNF's rules go character by character, Lark's lexer by the longest terminal. So every rule that reaches no recursion
//! becomes a terminal as a whole, and within recursive rules every run of what is not recursive becomes one: what is left to
//! the lexer is where terminals of recursive rules meet. There a terminal takes all it can, and an answer that GBNF would
//! allow only with a shorter one is not allowed.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use parse::{Class, Item, Rule, Sequence, parse};

use super::literal;
use crate::TextError;

/// The grammar in Lark, with the rule `root` as `start`.
///
/// # Errors
/// [`TextError::Constraint`] with the line for what does not parse and for tokens in angle brackets; for names without a
/// rule, names with several, and a missing `root`.
pub(super) fn to_lark(source: &str) -> Result<String, TextError> {
    let grammar = parse(source)?;
    let recursive = recursive(&grammar.rules);
    let mut writer = Writer {
        recursive: &recursive,
        lark: String::new(),
        helpers: 0,
    };
    let root = writer.name(grammar.root);
    _ = writeln!(writer.lark, "start: {root}");
    for (index, rule) in grammar.rules.iter().enumerate() {
        let name = writer.name(index);
        writer.define(&name, &rule.alternatives, recursive[index]);
    }
    Ok(writer.lark)
}

/// Whether each rule is part of a recursion or leads to one.
fn recursive(rules: &[Rule]) -> Vec<bool> {
    let mut uses: Vec<Vec<usize>> = Vec::with_capacity(rules.len());
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); rules.len()];
    for (index, rule) in rules.iter().enumerate() {
        let mut used = Vec::new();
        collect(&rule.alternatives, &mut used);
        used.sort_unstable();
        used.dedup();
        for &rule in &used {
            users[rule].push(index);
        }
        uses.push(used);
    }
    // Rules whose uses are all known to end are known to end.
    let mut open: Vec<usize> = uses.iter().map(Vec::len).collect();
    let mut recursive = vec![true; rules.len()];
    let mut ending: Vec<usize> = (0..rules.len()).filter(|&rule| open[rule] == 0).collect();
    while let Some(rule) = ending.pop() {
        recursive[rule] = false;
        for &user in &users[rule] {
            open[user] -= 1;
            if open[user] == 0 {
                ending.push(user);
            }
        }
    }
    recursive
}

fn collect(alternatives: &[Sequence], used: &mut Vec<usize>) {
    for (item, _) in alternatives.iter().flatten() {
        match item {
            Item::Rule(rule) => used.push(*rule),
            Item::Group(inner) => collect(inner, used),
            Item::Text(_) | Item::Class(_) => {}
        }
    }
}

struct Writer<'g> {
    recursive: &'g [bool],
    lark: String,
    /// Rules and terminals of its own, for groups and runs.
    helpers: usize,
}

impl Writer<'_> {
    /// Lark tells rules and terminals apart by case.
    fn name(&self, rule: usize) -> String {
        let letter = if self.recursive[rule] { 'r' } else { 'T' };
        format!("{letter}{rule}")
    }

    fn helper(&mut self, recursive: bool) -> String {
        self.helpers += 1;
        format!("{}{}", if recursive { "g" } else { "G" }, self.helpers)
    }

    /// Writes a definition, after those that it needs.
    fn define(&mut self, name: &str, alternatives: &[Sequence], recursive: bool) {
        let texts: Vec<String> = alternatives
            .iter()
            .map(|sequence| {
                if recursive {
                    self.rule_sequence(sequence)
                } else {
                    self.terminal_sequence(sequence)
                }
            })
            .collect();
        _ = writeln!(self.lark, "{name}: {}", texts.join(" | "));
    }

    fn terminal_sequence(&mut self, sequence: &[(Item, Repeat)]) -> String {
        let items: Vec<String> = sequence
            .iter()
            .map(|(item, repeat)| self.item(item, *repeat, false))
            .collect();
        items.join(" ")
    }

    /// A sequence of a recursive rule, with each run that is not recursive as one terminal.
    fn rule_sequence(&mut self, sequence: &[(Item, Repeat)]) -> String {
        let mut texts = Vec::new();
        let mut rest = sequence;
        while let Some((item, repeat)) = rest.first() {
            let run = rest
                .iter()
                .take_while(|(item, _)| !self.recurs(item))
                .count();
            if run == 0 {
                texts.push(self.item(item, *repeat, true));
                rest = &rest[1..];
                continue;
            }
            let terminal = self.helper(false);
            let text = self.terminal_sequence(&rest[..run]);
            _ = writeln!(self.lark, "{terminal}: {text}");
            texts.push(terminal);
            rest = &rest[run..];
        }
        texts.join(" ")
    }

    fn recurs(&self, item: &Item) -> bool {
        match item {
            Item::Rule(rule) => self.recursive[*rule],
            Item::Group(inner) => inner.iter().flatten().any(|(item, _)| self.recurs(item)),
            Item::Text(_) | Item::Class(_) => false,
        }
    }

    fn item(&mut self, item: &Item, repeat: Repeat, recursive: bool) -> String {
        let atom = match item {
            Item::Text(text) => literal(text),
            Item::Class(class) => regex(class),
            Item::Rule(rule) => self.name(*rule),
            Item::Group(inner) => {
                // A definition of its own: Lark nests groups only so deep.
                let name = self.helper(recursive);
                self.define(&name, inner, recursive);
                name
            }
        };
        match repeat {
            Repeat {
                min: 1,
                max: Some(1),
            } => atom,
            Repeat { max: Some(0), .. } => "\"\"".to_owned(),
            Repeat { min: 0, max: None } => format!("{atom}*"),
            Repeat { min: 1, max: None } => format!("{atom}+"),
            Repeat {
                min: 0,
                max: Some(1),
            } => format!("{atom}?"),
            Repeat { min, max: None } => format!("{atom}{{{min},}}"),
            Repeat {
                min,
                max: Some(max),
            } => format!("{atom}{{{min},{max}}}"),
        }
    }
}

/// How often an item occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    min: u32,
    max: Option<u32>,
}

impl Repeat {
    const ONCE: Self = Self {
        min: 1,
        max: Some(1),
    };
}

/// A class as a regular expression of Lark, every character by its number.
fn regex(class: &Class) -> String {
    let mut text = String::from(if class.negated { "/[^" } else { "/[" });
    for &(first, last) in &class.ranges {
        _ = write!(text, "\\x{{{:x}}}", u32::from(first));
        if last != first {
            _ = write!(text, "-\\x{{{:x}}}", u32::from(last));
        }
    }
    text.push_str("]/");
    text
}
