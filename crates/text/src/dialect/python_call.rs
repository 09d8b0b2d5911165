//! Calls as a line of Python: `read(path="a.txt", lines=[1, 2])`, alone or in `print(…)`, one after the other.
//!
//! Literals only: what would have to be computed is no call.

use serde_json::{Map, Number, Value};

use super::block::Tools;

/// The calls that the code consists of; `None` when there is anything else in it.
pub(super) fn parse(code: &str, tools: &Tools) -> Option<Vec<(String, Value)>> {
    let mut reader = Reader {
        rest: code,
        depth: 0,
    };
    let mut calls = Vec::new();
    loop {
        reader.blanks();
        if reader.rest.is_empty() {
            break;
        }
        calls.push(reader.statement(tools)?);
        reader.blanks();
        reader.eat(";");
    }
    (!calls.is_empty()).then_some(calls)
}

struct Reader<'c> {
    rest: &'c str,
    depth: u32,
}

impl Reader<'_> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, text: &str) -> bool {
        self.blanks();
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> String {
        self.blanks();
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    /// A call, or one that is printed.
    fn statement(&mut self, tools: &Tools) -> Option<(String, Value)> {
        let whole = self.rest;
        if self.word() == "print" && self.eat("(") && !tools.knows("print") {
            let call = self.call(tools)?;
            return self.eat(")").then_some(call);
        }
        self.rest = whole;
        self.call(tools)
    }

    fn call(&mut self, tools: &Tools) -> Option<(String, Value)> {
        let word = self.word();
        if !self.eat("(") {
            return None;
        }
        let last = word.rsplit('.').next().unwrap_or_default();
        // Llama 3 calls a tool's method.
        let object = word.strip_suffix(".call").unwrap_or_default();
        let name = [&word[..], last, object]
            .into_iter()
            .find(|name| tools.knows(name))?;
        let mut arguments = Map::new();
        while !self.eat(")") {
            let key = self.word();
            if key.is_empty() || !self.eat("=") {
                return None;
            }
            arguments.insert(key, self.value()?);
            if !self.eat(",") {
                return self.eat(")").then(|| (name.to_owned(), arguments.into()));
            }
        }
        Some((name.to_owned(), arguments.into()))
    }

    fn value(&mut self) -> Option<Value> {
        self.depth += 1;
        let value = if self.depth > 64 {
            None
        } else {
            self.literal()
        };
        self.depth -= 1;
        value
    }

    fn literal(&mut self) -> Option<Value> {
        self.blanks();
        match self.rest.chars().next()? {
            quote @ ('"' | '\'') => self.string(quote).map(Value::from),
            '[' => {
                self.eat("[");
                let mut items = Vec::new();
                while !self.eat("]") {
                    items.push(self.value()?);
                    if !self.eat(",") {
                        return self.eat("]").then_some(Value::Array(items));
                    }
                }
                Some(Value::Array(items))
            }
            '{' => self.dictionary(),
            _ => self.scalar(),
        }
    }

    fn dictionary(&mut self) -> Option<Value> {
        self.eat("{");
        let mut entries = Map::new();
        while !self.eat("}") {
            self.blanks();
            let quote = self
                .rest
                .chars()
                .next()
                .filter(|c| matches!(c, '"' | '\''))?;
            let key = self.string(quote)?;
            if !self.eat(":") {
                return None;
            }
            entries.insert(key, self.value()?);
            if !self.eat(",") {
                return self.eat("}").then_some(Value::Object(entries));
            }
        }
        Some(Value::Object(entries))
    }

    fn scalar(&mut self) -> Option<Value> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "True" | "true" => Some(true.into()),
            "False" | "false" => Some(false.into()),
            "None" | "null" => Some(Value::Null),
            number => number.parse::<Number>().ok().map(Value::Number),
        }
    }

    fn string(&mut self, quote: char) -> Option<String> {
        let tripled = String::from(quote).repeat(3);
        let quotes = if self.rest.starts_with(&tripled) {
            tripled
        } else {
            String::from(quote)
        };
        self.rest = &self.rest[quotes.len()..];
        let mut text = String::new();
        loop {
            if let Some(rest) = self.rest.strip_prefix(&quotes[..]) {
                self.rest = rest;
                return Some(text);
            }
            let mut chars = self.rest.chars();
            match chars.next()? {
                '\\' => match chars.next()? {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    '\n' => {}
                    c @ ('\\' | '\'' | '"') => text.push(c),
                    other => text.extend(['\\', other]),
                },
                '\n' if quotes.len() == 1 => return None,
                c => text.push(c),
            }
            self.rest = chars.as_str();
        }
    }
}
