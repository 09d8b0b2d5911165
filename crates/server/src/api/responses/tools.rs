//! The tools of a Responses request as functions with flat names, and the way back from a call to what was offered.
//!
//! Kinds other than functions: a *namespace* holds tools of its own, a *custom* tool takes one text, which the model writes
//! as the argument `input`. Tools that OpenAI's own service runs are offers that nobody here can take up; leaving them out breaks
//! no promise.

use std::collections::HashMap;

use andante_text::ToolChoice;
use serde_json::{Map, Value, json};

use crate::api::tools;
use crate::error::ApiError;
use crate::json::Field;

/// The one argument of a custom tool.
pub(super) const INPUT: &str = "input";

/// What a model may call.
#[derive(Default)]
pub(super) struct Tools {
    tools: Vec<Tool>,
    by_flat_name: HashMap<String, usize>,
}

/// One of them.
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) is_custom: bool,
    flat_name: String,
    function: Map<String, Value>,
}

impl Tools {
    /// The tools of several lists: the request's own and those that items of its input add.
    pub(super) fn decode(lists: &[Field<'_>]) -> Result<Self, ApiError> {
        let mut tools = Vec::new();
        for list in lists {
            read_list(list, None, &mut tools)?;
        }
        let mut count: HashMap<String, usize> = HashMap::new();
        for tool in &tools {
            *count.entry(tool.name.clone()).or_default() += 1;
        }
        let mut by_flat_name = HashMap::new();
        for (index, tool) in tools.iter_mut().enumerate() {
            if let (Some(namespace), 2..) = (&tool.namespace, count[&tool.name]) {
                tool.flat_name = format!("{namespace}__{}", tool.name);
            }
            tool.function["name"] = tool.flat_name.clone().into();
            by_flat_name.insert(tool.flat_name.clone(), index);
        }
        Ok(Self {
            tools,
            by_flat_name,
        })
    }

    /// The definitions for the prompt.
    pub(super) fn listed(&self) -> Vec<Value> {
        let tools = self.tools.iter();
        tools
            .map(|tool| json!({ "type": "function", "function": tool.function }))
            .collect()
    }

    /// The tool that the model calls by this name.
    pub(super) fn called(&self, flat_name: &str) -> Option<&Tool> {
        self.by_flat_name
            .get(flat_name)
            .map(|&index| &self.tools[index])
    }

    /// The name by which the model knows a tool.
    pub(super) fn flat_name(&self, namespace: Option<&str>, name: &str) -> String {
        let same = |tool: &&Tool| tool.name == name && tool.namespace.as_deref() == namespace;
        let tool = self.tools.iter().find(same);
        tool.map_or(name, |tool| &tool.flat_name).to_owned()
    }

    /// `tool_choice`, in neutral words. A list of allowed tools leaves only those.
    pub(super) fn choose(&mut self, field: &Field<'_>) -> Result<ToolChoice, ApiError> {
        let choice = self.chosen(field)?;
        let names = self.tools.iter().map(|tool| tool.flat_name.as_str());
        tools::checked(choice, field, names)
    }

    fn chosen(&mut self, choice: &Field<'_>) -> Result<ToolChoice, ApiError> {
        let mode = |field: &Field<'_>, word: &str| match word {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Ok(ToolChoice::Required),
            other => Err(field.error(format!("`{other}` is no choice"))),
        };
        match choice.value() {
            None => Ok(ToolChoice::Auto),
            Some(Value::String(word)) => mode(choice, word),
            Some(Value::Object(_)) => {
                let kind = choice.get("type");
                match kind.required()? {
                    "allowed_tools" => {
                        let mut allowed = Vec::new();
                        for tool in choice.get("tools").items()?.into_iter().flatten() {
                            allowed.extend(tool.get("name").string()?.map(str::to_owned));
                        }
                        self.tools.retain(|tool| allowed.contains(&tool.name));
                        self.by_flat_name = self.index();
                        let word = choice.get("mode");
                        mode(&word, word.string()?.unwrap_or("auto"))
                    }
                    "function" | "custom" => {
                        let name = choice.get("name").required()?;
                        let namespace = choice.get("namespace").string()?;
                        Ok(ToolChoice::Named(self.flat_name(namespace, name)))
                    }
                    // A tool that was left out cannot be called.
                    other => Err(kind.unsupported(&format!("`{other}`"))),
                }
            }
            Some(_) => Err(choice.wrong_type("a string or an object")),
        }
    }

    fn index(&self) -> HashMap<String, usize> {
        let tools = self.tools.iter().enumerate();
        tools
            .map(|(index, tool)| (tool.flat_name.clone(), index))
            .collect()
    }
}

fn read_list(
    list: &Field<'_>,
    namespace: Option<&str>,
    tools: &mut Vec<Tool>,
) -> Result<(), ApiError> {
    for tool in list.items()?.into_iter().flatten() {
        tool.map()?;
        let name = tool.get("name");
        let named = || name.required();
        match tool.get("type").string()? {
            None | Some("function") => {
                tools.push(Tool::new(named()?, namespace, function(&tool)?, false));
            }
            Some("custom") => {
                tools.push(Tool::new(named()?, namespace, custom(&tool)?, true));
            }
            Some("namespace") if namespace.is_none() => {
                read_list(&tool.get("tools"), Some(named()?), tools)?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl Tool {
    fn new(
        name: &str,
        namespace: Option<&str>,
        function: Map<String, Value>,
        is_custom: bool,
    ) -> Self {
        Self {
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            flat_name: name.to_owned(),
            function,
            is_custom,
        }
    }
}

fn function(tool: &Field<'_>) -> Result<Map<String, Value>, ApiError> {
    let parameters = tool.get("parameters");
    parameters.map()?;
    let mut function = described(tool.get("description").string()?);
    let none = || json!({ "type": "object", "properties": {} });
    let parameters = parameters.value().cloned().unwrap_or_else(none);
    function.insert("parameters".into(), parameters);
    if let Some(strict) = tool.get("strict").bool()? {
        function.insert("strict".into(), strict.into());
    }
    Ok(function)
}

/// A tool that takes text. The grammar of the text, if there is one, goes with its description; an expression is kept to as well. (A
/// Lark grammar is not: models write the text as JSON, with escapes that the grammar does not have.)
fn custom(tool: &Field<'_>) -> Result<Map<String, Value>, ApiError> {
    let format = tool.get("format");
    format.map()?;
    let mut input = Map::new();
    input.insert("type".into(), "string".into());
    let mut description = tool.get("description").string()?.unwrap_or("").to_owned();
    if let Some(grammar) = format.get("definition").string()? {
        let syntax = format.get("syntax").string()?.unwrap_or("lark");
        description += &format!("\nThe input must match this grammar ({syntax}):\n{grammar}");
        if syntax == "regex" {
            input.insert("pattern".into(), format!("^(?:{grammar})$").into());
        }
    }
    let mut function = described(Some(&description));
    if input.contains_key("pattern") {
        function.insert("strict".into(), true.into());
    }
    function.insert(
        "parameters".into(),
        json!({
            "type": "object",
            "properties": { INPUT: input },
            "required": [INPUT],
        }),
    );
    Ok(function)
}

/// The name comes first, and its value when all names are known. The description is always there: templates add to it
/// without asking.
fn described(description: Option<&str>) -> Map<String, Value> {
    let mut function = Map::new();
    function.insert("name".into(), Value::Null);
    function.insert("description".into(), description.unwrap_or("").into());
    function
}
