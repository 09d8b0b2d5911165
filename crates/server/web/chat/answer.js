// One answer: the request, and what its stream makes of the message.

import { ask, events } from '../api.js';
import { messagesFor, optionsFor } from '../conversation.js';

/** Tokens of late whose times make the speed that is shown. */
const RECENT = 32;

/**
 * Fills `message`, the model's, calling `changed` whenever there is something new. With `goOn` it is continued. Never throws: what went
 * wrong stands in the message.
 */
export async function answer(conversation, message, { signal, changed, goOn = false }) {
  const begun = performance.now();
  const times = [];
  message.state = 'waiting';
  message.error = undefined;
  try {
    const last = goOn ? message : conversation.messages.find((one) => one.id === message.parent);
    const response = await ask('/v1/chat/completions', {
      signal,
      body: {
        messages: messagesFor(conversation, last),
        ...optionsFor(conversation),
        ...(goOn && { continue_final_message: true, add_generation_prompt: false }),
        stream: true,
        stream_options: { include_usage: true },
        return_progress: true,
      },
    });
    for await (const { data } of events(response)) {
      if (data === '[DONE]') break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      take(message, chunk, { begun, times });
      changed();
    }
    if (message.state !== 'cut') message.state = 'done';
  } catch (error) {
    message.state = error.name === 'AbortError' ? 'stopped' : 'failed';
    if (message.state === 'failed') message.error = error.message;
  }
  message.progress = undefined;
  message.speed = undefined;
  changed();
}

function take(message, chunk, { begun, times }) {
  if (chunk.prompt_progress) {
    message.progress = chunk.prompt_progress;
    message.state = 'reading';
  }
  if (chunk.timings) message.timings = chunk.timings;
  if (chunk.usage) message.usage = chunk.usage;
  const choice = chunk.choices[0];
  if (!choice) return;
  const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta;
  if (content || reasoning || calls) {
    const now = performance.now();
    message.state = reasoning ? 'thinking' : 'writing';
    message.firstAfter ??= now - begun;
    times.push(now);
    if (times.length > RECENT) times.shift();
    if (times.length > 4) message.speed = (1e3 * (times.length - 1)) / (now - times[0]);
  }
  if (content) {
    message.text += content;
    if (message.thoughtSince) {
      message.thoughtFor ??= performance.now() - message.thoughtSince;
    }
  }
  if (reasoning) {
    message.thoughtSince ??= performance.now();
    message.reasoning = (message.reasoning ?? '') + reasoning;
  }
  for (const call of calls ?? []) takeCall(message, call);
  if (choice.finish_reason === 'length') message.state = 'cut';
}

function takeCall(message, { index, id, function: called }) {
  message.calls ??= [];
  message.calls[index] ??= { id, name: '', arguments: '' };
  const call = message.calls[index];
  call.name += called?.name ?? '';
  call.arguments += called?.arguments ?? '';
}
