//! Reading GBNF.

use rustc_hash::FxHashMap;

use super::Repeat;
use crate::TextError;

/// How deep groups nest.
const MAX_DEPTH: usize = 200;

/// The rules, and which of them answers begin with.
pub(super) struct Grammar {
    pub(super) rules: Vec<Rule>,
    pub(super) root: usize,
}

#[derive(Debug, Default)]
pub(super) struct Rule {
    pub(super) alternatives: Vec<Sequence>,
}

pub(super) type Sequence = Vec<(Item, Repeat)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Text(String),
    Class(Class),
    /// A rule, by its index.
    Rule(usize),
    Group(Vec<Sequence>),
}

/// Characters from the first to the last of each range, or all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) negated: bool,
    pub(super) ranges: Vec<(char, char)>,
}

pub(super) fn parse(source: &str) -> Result<Grammar, TextError> {
    let mut parser = Parser {
        source,
        at: 0,
        names: FxHashMap::default(),
        rules: Vec::new(),
    };
    parser.skip_blank(true);
    while parser.at < source.len() {
        parser.rule()?;
        parser.skip_blank(true);
    }
    let Some(&root) = parser.names.get("root") else {
        return Err(TextError::constraint("the grammar has no rule `root`"));
    };
    let undefined = |(_, rule): &(&&str, &usize)| parser.rules[**rule].is_none();
    if let Some((name, _)) = parser.names.iter().filter(undefined).min() {
        return Err(TextError::constraint(format!("there is no rule `{name}`")));
    }
    Ok(Grammar {
        rules: parser.rules.into_iter().flatten().collect(),
        root,
    })
}

struct Parser<'s> {
    source: &'s str,
    at: usize,
    names: FxHashMap<&'s str, usize>,
    /// `None` for a rule that has been named only.
    rules: Vec<Option<Rule>>,
}

impl<'s> Parser<'s> {
    fn rule(&mut self) -> Result<(), TextError> {
        let name = self.name()?;
        self.skip_blank(false);
        self.expect("::=")?;
        self.skip_blank(true);
        let index = self.index(name);
        if self.rules[index].is_some() {
            return Err(self.error(&format!("a second rule `{name}`")));
        }
        let alternatives = self.alternatives(0)?;
        self.rules[index] = Some(Rule { alternatives });
        let rest = &self.source[self.at..];
        if rest.is_empty() || rest.starts_with(['\n', '\r']) {
            Ok(())
        } else {
            Err(self.error("no rule goes on like this"))
        }
    }

    fn name(&mut self) -> Result<&'s str, TextError> {
        let rest = &self.source[self.at..];
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let end = rest.find(|c| !letter(c)).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.error("a name is expected"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    fn index(&mut self, name: &'s str) -> usize {
        let next = self.rules.len();
        let index = *self.names.entry(name).or_insert(next);
        if index == next {
            self.rules.push(None);
        }
        index
    }

    fn alternatives(&mut self, depth: usize) -> Result<Vec<Sequence>, TextError> {
        if depth > MAX_DEPTH {
            return Err(self.error("groups nest too deep"));
        }
        let mut alternatives = vec![self.sequence(depth)?];
        loop {
            // A line may begin with another alternative.
            let before = self.at;
            self.skip_blank(true);
            if !self.take("|") {
                if depth == 0 {
                    self.at = before;
                }
                return Ok(alternatives);
            }
            self.skip_blank(true);
            alternatives.push(self.sequence(depth)?);
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Sequence, TextError> {
        let mut items = Vec::new();
        loop {
            self.skip_blank(depth > 0);
            let Some(next) = self.source[self.at..].chars().next() else {
                return Ok(items);
            };
            let item = match next {
                '"' => Item::Text(self.text()?),
                '[' => Item::Class(self.class()?),
                '.' => {
                    self.at += 1;
                    Item::Class(Class {
                        negated: false,
                        ranges: vec![('\0', char::MAX)],
                    })
                }
                '(' => {
                    self.at += 1;
                    let inner = self.alternatives(depth + 1)?;
                    self.expect(")")?;
                    Item::Group(inner)
                }
                '<' | '!' => return Err(self.error("tokens in angle brackets are not supported")),
                c if c.is_ascii_alphanumeric() => {
                    let name = self.name()?;
                    Item::Rule(self.index(name))
                }
                _ => return Ok(items),
            };
            let mut repeat = Repeat::ONCE;
            self.skip_blank(depth > 0);
            if let Some(found) = self.repeat()? {
                repeat = found;
                self.skip_blank(depth > 0);
                if let Some(again) = self.repeat()? {
                    items.push((Item::Group(vec![vec![(item, repeat)]]), again));
                    continue;
                }
            }
            items.push((item, repeat));
        }
    }

    /// `*`, `+`, `?`, `{m}`, `{m,}` or `{m,n}`.
    fn repeat(&mut self) -> Result<Option<Repeat>, TextError> {
        let (min, max) = if self.take("*") {
            (0, None)
        } else if self.take("+") {
            (1, None)
        } else if self.take("?") {
            (0, Some(1))
        } else if self.take("{") {
            self.skip_blank(false);
            let min = self.number()?;
            self.skip_blank(false);
            let mut max = Some(min);
            if self.take(",") {
                self.skip_blank(false);
                let open = self.source[self.at..].starts_with('}');
                max = if open { None } else { Some(self.number()?) };
                self.skip_blank(false);
            }
            self.expect("}")?;
            (min, max)
        } else {
            return Ok(None);
        };
        if max.is_some_and(|max| max < min) {
            return Err(self.error("at most is less than at least"));
        }
        Ok(Some(Repeat { min, max }))
    }

    fn number(&mut self) -> Result<u32, TextError> {
        let rest = &self.source[self.at..];
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let number = rest[..end].parse::<u32>().ok();
        // Larger ones could not be written in Lark.
        let number = number.filter(|&number| i32::try_from(number).is_ok_and(|n| n < i32::MAX));
        self.at += end;
        number.ok_or_else(|| self.error("a small whole number is expected"))
    }

    fn text(&mut self) -> Result<String, TextError> {
        self.expect("\"")?;
        let mut text = String::new();
        while !self.take("\"") {
            text.push(self.character()?);
        }
        Ok(text)
    }

    fn class(&mut self) -> Result<Class, TextError> {
        self.expect("[")?;
        let negated = self.take("^");
        let mut ranges = Vec::new();
        while !self.take("]") {
            let first = self.character()?;
            let mut last = first;
            let rest = &self.source[self.at..];
            if rest.starts_with('-') && !rest.starts_with("-]") {
                self.at += 1;
                last = self.character()?;
            }
            if last < first {
                return Err(self.error("a range ends before it begins"));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() {
            return Err(self.error("a class without characters"));
        }
        Ok(Class { negated, ranges })
    }

    /// One character of a text or class, with its escape.
    fn character(&mut self) -> Result<char, TextError> {
        let mut rest = self.source[self.at..].chars();
        let Some(first) = rest.next() else {
            return Err(self.error("the grammar ends within a text or class"));
        };
        self.at += first.len_utf8();
        if first != '\\' {
            return Ok(first);
        }
        let Some(letter) = rest.next() else {
            return Err(self.error("the grammar ends within an escape"));
        };
        self.at += letter.len_utf8();
        match letter {
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' | '.' => Ok(letter),
            'x' => self.code(2),
            'u' => self.code(4),
            'U' => self.code(8),
            _ => Err(self.error(&format!("there is no escape `\\{letter}`"))),
        }
    }

    fn code(&mut self, digits: usize) -> Result<char, TextError> {
        let code = self.source.get(self.at..self.at + digits);
        let code = code.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += if code.is_some() { digits } else { 0 };
        code.and_then(char::from_u32)
            .ok_or_else(|| self.error("an escape names no character"))
    }

    /// Skips blanks and comments, and line ends where a rule may go on behind one.
    fn skip_blank(&mut self, lines: bool) {
        loop {
            let rest = &self.source[self.at..];
            let blank = |c: char| matches!(c, ' ' | '\t') || (lines && matches!(c, '\n' | '\r'));
            self.at += rest.len() - rest.trim_start_matches(blank).len();
            let rest = &self.source[self.at..];
            if !rest.starts_with('#') {
                return;
            }
            self.at += rest.find(['\n', '\r']).unwrap_or(rest.len());
        }
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.source[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), TextError> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.error(&format!("`{token}` is expected")))
        }
    }

    fn error(&self, why: &str) -> TextError {
        let line = self.source[..self.at].matches('\n').count() + 1;
        TextError::constraint(format!("line {line}: {why}"))
    }
}
