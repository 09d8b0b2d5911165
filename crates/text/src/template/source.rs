//! Rewriting a template's source before it is compiled: control tokens become codes, tags that only training needs become blocks.

use regex::{Captures, Regex};

use super::codes::Codes;

/// Name of the function that a rewritten template calls for a control token spelt around a role.
pub(super) const ROLE_TOKEN: &str = "andante_role_token";
/// The roles that such a token may name.
pub(super) const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// A control token whose spelling contains a role: what stands before and after it.
pub(super) type Frame = (String, String);

/// The source to compile. The frames that it asks [`ROLE_TOKEN`] for, by index, are added to `frames`.
pub(super) fn rewrite(
    source: &str,
    control: &[&str],
    codes: &mut Codes,
    frames: &mut Vec<Frame>,
) -> String {
    let generation =
        Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}").expect("a valid pattern");
    let source = generation.replace_all(source, |found: &Captures<'_>| {
        let tag = if found.get(2).is_some() {
            "endif"
        } else {
            "if true"
        };
        format!("{{%{} {tag} {}%}}", &found[1], &found[3])
    });
    let source = rewrite_roles(&source, control, frames);
    let mut out = String::with_capacity(source.len());
    for piece in pieces(&source) {
        let text = &source[piece.start..piece.end];
        match piece.kind {
            Kind::Code => out.push_str(text),
            Kind::Literal if is_searched_for(&source, &piece) => out.push_str(text),
            Kind::Literal | Kind::Text => out.push_str(&codes.encode(text)),
        }
    }
    out
}

/// Finds control tokens spelt around a role, as in `'<|' + message['role'] + '|>'` or `<|{{ message.role }}|>`.
fn rewrite_roles(source: &str, control: &[&str], frames: &mut Vec<Frame>) -> String {
    for token in control {
        for role in ROLES {
            if let Some((before, after)) = token.split_once(role)
                && !before.is_empty()
                && !after.is_empty()
                && source.contains(before)
                && !frames.contains(&(before.to_owned(), after.to_owned()))
            {
                frames.push((before.to_owned(), after.to_owned()));
            }
        }
    }
    let mut source = source.to_owned();
    for (index, (before, after)) in frames.iter().enumerate() {
        let (before, after) = (regex::escape(before), regex::escape(after));
        let role = r#"(\w+(?:\.role|\['role'\]|\["role"\])|role)"#;
        let joined = Regex::new(&format!(
            r#"{before}(['"]\s*[+~]\s*){role}(\s*[+~]\s*['"]){after}"#
        ))
        .expect("a valid pattern");
        let call = format!("${{1}}{ROLE_TOKEN}(${{2}}, {index})${{3}}");
        source = joined.replace_all(&source, call.as_str()).into_owned();
        let printed = Regex::new(&format!(r"{before}\{{\{{\s*{role}\s*\}}\}}{after}"))
            .expect("a valid pattern");
        let call = format!("{{{{ {ROLE_TOKEN}(${{1}}, {index}) }}}}");
        source = printed.replace_all(&source, call.as_str()).into_owned();
    }
    source
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Outside of tags: printed as it stands.
    Text,
    /// Inside of tags.
    Code,
    /// A string inside of tags, with its quotes.
    Literal,
}

struct Piece {
    kind: Kind,
    start: usize,
    end: usize,
}

/// Cuts a source into text, code and string literals. Comments count as text; they are printed nowhere.
fn pieces(source: &str) -> Vec<Piece> {
    let bytes = source.as_bytes();
    let mut pieces = Vec::new();
    let mut kind = Kind::Text;
    let mut start = 0;
    let mut at = 0;
    let mut cut = |kind, start: &mut usize, end| {
        if end > *start {
            pieces.push(Piece {
                kind,
                start: *start,
                end,
            });
            *start = end;
        }
    };
    while at < bytes.len() {
        match (kind, bytes[at], bytes.get(at + 1)) {
            (Kind::Text, b'{', Some(b'#')) => {
                at = source[at..].find("#}").map_or(bytes.len(), |n| at + n + 2);
            }
            (Kind::Text, b'{', Some(b'{' | b'%')) => {
                cut(Kind::Text, &mut start, at);
                kind = Kind::Code;
                at += 2;
            }
            (Kind::Code, b'}' | b'%', Some(b'}')) => {
                at += 2;
                cut(Kind::Code, &mut start, at);
                kind = Kind::Text;
            }
            (Kind::Code, quote @ (b'\'' | b'"'), _) => {
                cut(Kind::Code, &mut start, at);
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                at = (at + 1).min(bytes.len());
                cut(Kind::Literal, &mut start, at);
            }
            _ => at += 1,
        }
    }
    cut(kind, &mut start, bytes.len());
    pieces
}

/// Whether the literal is only looked for in other strings, as in `'<x>' in content` or `content.split('<x>')`.
/// User text has control tokens as plain text, so that is what to look for.
fn is_searched_for(source: &str, literal: &Piece) -> bool {
    const METHODS: [&str; 15] = [
        "split",
        "rsplit",
        "startswith",
        "endswith",
        "find",
        "rfind",
        "index",
        "rindex",
        "count",
        "replace",
        "partition",
        "rpartition",
        "strip",
        "lstrip",
        "rstrip",
    ];
    let after = source[literal.end..].trim_start();
    if after.starts_with("in ") || after.starts_with("not in ") {
        return true;
    }
    let Some(call) = source[..literal.start].trim_end().strip_suffix('(') else {
        return false;
    };
    METHODS.iter().any(|method| {
        call.strip_suffix(method)
            .is_some_and(|before| before.trim_end().ends_with(['.', '|']))
    })
}
