//! A conversation as every wire format delivers it: neutral between HTTP APIs and templates.

use serde_json::{Map, Value};

/// What a chat template renders.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// The conversation, oldest message first.
    pub messages: Vec<Message>,
    /// Tool definitions as JSON, in the `{"type": "function", "function": {…}}` form that templates expect.
    pub tools: Vec<Value>,
    /// Tools in the same form that the conversation itself describes: they can be called, and the head of the prompt does not
    /// list them.
    pub loaded_tools: Vec<Value>,
    /// Which tools the model may or must call.
    pub tool_choice: ToolChoice,
    /// Whether it may call several in one answer.
    pub parallel_tool_calls: bool,
    /// Further template variables (`chat_template_kwargs`, for example `enable_thinking`).
    pub template_args: Map<String, Value>,
    /// Whether the prompt ends with the opening of the assistant's next message.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends within the last message, which the answer goes on with; nothing else is opened then. Only for a
    /// last message that has text and calls nothing.
    pub continue_final_message: bool,
}

impl ChatRequest {
    /// The tools that may be called, wherever they are described.
    #[must_use]
    pub fn callable_tools(&self) -> Vec<Value> {
        match self.tool_choice {
            ToolChoice::None => Vec::new(),
            _ => [&self.tools[..], &self.loaded_tools].concat(),
        }
    }
}

/// What a tool's definition says of its function.
pub(crate) fn function(tool: &Value) -> &Value {
    tool.get("function").unwrap_or(tool)
}

impl Default for ChatRequest {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            tools: Vec::new(),
            loaded_tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: true,
            template_args: Map::new(),
            add_generation_prompt: false,
            continue_final_message: false,
        }
    }
}

/// Which of the tools the model may or must call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// What it likes, or none.
    #[default]
    Auto,
    /// None.
    None,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The text; absent in messages that only call tools.
    pub content: Option<String>,
    /// The speaker's name, or the tool's.
    pub name: Option<String>,
    /// What the model thought before it answered (`reasoning_content`). Where an API gave it out under a handle, this is the
    /// text that the engine has sealed in the handle, not the client's copy.
    pub reasoning: Option<String>,
    /// Calls that the assistant made.
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool message answers.
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message that is only text.
    #[must_use]
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: Some(content.into()),
            name: None,
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }
}

/// One tool call of an assistant message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Identifies the call; the tool's answer repeats it.
    pub id: Option<String>,
    /// The function's name.
    pub name: String,
    /// The arguments, JSON text; text that is not JSON is passed on as a string.
    pub arguments: String,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions of the operator.
    System,
    /// Instructions of the developer; rendered as system where the template knows no such role.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
}

impl Role {
    /// The name that templates and APIs use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}
